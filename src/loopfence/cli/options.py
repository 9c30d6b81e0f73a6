"""The options and arguments that several typer commands share."""

from pathlib import Path
from typing import Annotated

import typer

from loopfence.cli.opening import URL_VARIABLE

Url = Annotated[
    str | None,
    typer.Option(metavar="URL", envvar=URL_VARIABLE, show_default=False, help="Where the sessions are kept."),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE.toml", show_default=False, help="A policy, read from a TOML file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", show_default=False, help="The session's id.")]

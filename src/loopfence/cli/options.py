"""What several commands share: their options, opening the guard, reading JSON, printing it."""

import json
from pathlib import Path
from typing import Annotated, Any, Never
from urllib.parse import parse_qs, urlsplit

import typer

from loopfence import LoopGuard
from loopfence.cli.policy_file import load_policy
from loopfence.errors import ConfigError

Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL", envvar="LOOPFENCE_URL", show_default=False, help="Where the sessions are kept."
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy", metavar="FILE.toml", show_default=False, help="Policy fields, read from a TOML file."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", show_default=False, help="The session's id.")]
Tool = Annotated[str, typer.Argument(metavar="TOOL", show_default=False, help="The tool's name.")]
Args = Annotated[
    str | None,
    typer.Argument(
        metavar="[ARGS-JSON]", show_default=False, help="The tool's arguments as JSON (none = {})."
    ),
]

_TIMEOUT = 2.0
"""Seconds: someone at a terminal waits longer for an answer than an agent does."""


def open_guard(url: str | None, policy: Path | None) -> LoopGuard:
    """A guard on a server, which raises when that does not answer; ConfigError where no server is named."""
    if not url or url.startswith("memory:"):
        found = f"got {url}" if url else "none given"
        raise ConfigError(
            f"this needs the server that holds the sessions ({found}): set LOOPFENCE_URL or --url, "
            "e.g. --url redis://localhost:6379/0"
        )
    timeout = {} if "timeout" in parse_qs(urlsplit(url).query) else {"timeout": _TIMEOUT}
    return LoopGuard(url, policy=load_policy(policy) if policy else None, on_outage="raise", **timeout)


def parse_json(name: str, text: str | None) -> Any:
    """The value that `text` says, None for no text; ConfigError names `name` and the place of the mistake."""
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name} is not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{name} is not JSON: nested too deeply") from None
    except ValueError as error:
        # A number longer than Python converts, or NaN and the infinities, which JSON has not.
        raise ConfigError(f"{name} is not JSON: {error}") from None


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON value")


def print_json(value: Any) -> None:
    """Print `value` as one line of pure ASCII JSON: session and tool names may hold anything."""
    print(json.dumps(value))

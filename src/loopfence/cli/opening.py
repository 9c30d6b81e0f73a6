"""What commands do before and after their work: open a guard on a server, read JSON, print JSON. Without typer."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Never
from urllib.parse import parse_qs

from loopfence import LoopGuard
from loopfence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

URL_VARIABLE = "LOOPFENCE_URL"

_TIMEOUT = 2.0
"""Seconds: someone at a terminal waits longer for an answer than an agent does."""


def raising_guard(url: str, **settings: Any) -> LoopGuard:
    """A guard that raises what goes wrong with its server, and does not log it: `main` prints the error, once.

    Its timeout is 2 s, where the URL does not say otherwise.
    """
    logging.getLogger("loopfence").addHandler(logging.NullHandler())
    if "timeout" not in parse_qs(url.partition("?")[2]):
        settings["timeout"] = _TIMEOUT
    return LoopGuard(url, on_outage="raise", **settings)


def open_guard(url: str | None, policy: Path | None) -> LoopGuard:
    """A raising guard on the server at `url`, with the policy of a file; ConfigError where no server is named."""
    url = server_url(url)
    if policy is None:
        return raising_guard(url)
    # Imported here: most calls have no file, and a TOML parser takes its time to load.
    from loopfence.cli.policy_file import load_policy

    return raising_guard(url, policy=load_policy(policy))


def server_url(url: str | None) -> str:
    """The URL of a server; ConfigError where none is named."""
    if url and not url.startswith("memory:"):
        return url
    found = f"got {url}" if url else "none given"
    raise ConfigError(
        f"this needs the server that holds the sessions ({found}): set {URL_VARIABLE} or --url, "
        "e.g. --url redis://localhost:6379/0"
    )


def parse_json(name: str, text: str | None) -> Any:
    """The value that `text` says, None for no text; ConfigError names `name` and the place of the mistake."""
    if text is None:
        return None
    try:
        # Not orjson, which turns an integer past 64 bits into a float: another value, another signature.
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ConfigError(f"{name} is not JSON: nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{name} is not JSON: {error}") from None


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON value")


def print_json(value: Any) -> None:
    """Print `value` as one line of pure ASCII JSON: session and tool names may hold anything."""
    print(json.dumps(value))

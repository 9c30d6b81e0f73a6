"""The `loopfence` command: finds what to run and turns every expected error into one line and exit code 2."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loopfence.errors import LoopfenceError

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS = {
    "demo": "loopfence.cli.demo:demo",
    "check": "loopfence.cli.calls:check",
    "report": "loopfence.cli.calls:report",
    "show": "loopfence.cli.show:show",
    "sessions": "loopfence.cli.show:sessions",
    "halt": "loopfence.cli.control:halt",
    "resume": "loopfence.cli.control:resume",
    "reset": "loopfence.cli.control:reset",
    "replay": "loopfence.cli.replay:replay",
    "tune": "loopfence.cli.replay:tune",
    "hook": "loopfence.cli.hook:hook",
    "doctor": "loopfence.cli.doctor:doctor",
}
"""Command -> the function that runs it and returns its exit code (None = 0), in the order of --help."""

LIGHT = frozenset({"check", "hook", "report"})
"""Commands that run once a tool call: functions of the words that follow, without typer, whose import takes
longer than the call itself. All others are typer commands."""

BAD_INPUT = 2
"""Exit code of bad input, a bad setting, or a server that does not answer."""

_INTERRUPTED = 130
_CUT_SHORT = 1
"""As typer has it, where its own code meets the closed pipe."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line (`argv` without the program's name, else that of the process) and exit.

    Exit codes: 0 done or allowed, 1 a call was refused (`check`) or a problem was found, 2 bad input.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding has not must not end the command: it is shown escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except LoopfenceError as error:
        code = fail(str(error))
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`loopfence sessions | head`); Python must not try to flush again at exit.
        sys.stdout = None
        code = _CUT_SHORT
    sys.exit(code)


def _run(words: list[str]) -> int:
    if words and words[0] in LIGHT:
        return load(words[0])(words[1:]) or 0
    if find_spec("typer") is None or find_spec("rich") is None:
        return fail("this needs the extra `cli`: pip install 'loopfence[cli]'")
    from loopfence.cli import app

    return app.run(words)


def load(command: str) -> Callable[..., Any]:
    """Import the function behind a command."""
    module, _, function = COMMANDS[command].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def fail(text: str) -> int:
    """Print one line on stderr and return the exit code that goes with it."""
    print(f"loopfence: {printable(text)}", file=sys.stderr)
    return BAD_INPUT


def printable(text: str) -> str:
    """`text` on one line and harmless in a terminal: what cannot be printed is escaped, as in `\\x1b`."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)

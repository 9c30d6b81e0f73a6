"""The `loopfence` command: picks what to run and turns every expected error into one line and exit code 2."""

from __future__ import annotations

import sys
from importlib.util import find_spec

BAD_INPUT = 2
"""Exit code of bad input, a bad setting, or a server that does not answer."""

_INTERRUPTED = 130


def main(argv: list[str] | None = None) -> None:
    """Run the command line (`argv` without the program's name, else that of the process) and exit.

    Exit codes: 0 done or allowed, 1 a call was refused (`check`) or a problem was found, 2 bad input.
    """
    args = sys.argv[1:] if argv is None else argv
    try:
        code = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`loopfence sessions | head`); Python must not try to flush again at exit.
        sys.stdout = None  # type: ignore[assignment]
        code = 0
    sys.exit(code)


def _run(args: list[str]) -> int:
    if args[:1] == ["hook"]:
        # A hook runs before every tool call of an agent: it does without the imports of the other commands.
        from loopfence.cli import hook

        return hook.main(args[1:])
    if find_spec("typer") is None or find_spec("rich") is None:
        return fail("the command line needs the extra `cli`: pip install 'loopfence[cli]'")
    from loopfence.cli import app

    return app.run(args)


def fail(text: str) -> int:
    """Print one line on stderr and return the exit code that goes with it."""
    print(f"loopfence: {printable(text)}", file=sys.stderr)
    return BAD_INPUT


def printable(text: str) -> str:
    """`text` on one line and harmless in a terminal: what cannot be printed is escaped, as in `\\x1b`."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)

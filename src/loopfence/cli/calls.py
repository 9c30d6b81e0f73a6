"""`loopfence check` and `loopfence report`: a call of a tool judged, and then reported, from a shell."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from loopfence.cli import printable
from loopfence.cli.opening import URL_VARIABLE, open_guard, parse_json, print_json
from loopfence.errors import ConfigError

if TYPE_CHECKING:
    from loopfence import Verdict

_REFUSED = 1
"""Exit code of `check` for a call that must not run."""


def check(words: list[str]) -> int:
    """Record a call and judge it: exit code 0 = may run, 1 = must not."""
    parser = _Parser("check", check.__doc__)
    parser.add_argument("--call-id", metavar="ID", help="an equal call with the same id is counted once")
    parser.add_argument("--json", action="store_true", help="print the whole verdict as JSON")
    given = parser.parse_args(words)
    args = parse_json("ARGS-JSON", given.args)
    with open_guard(given.url, given.policy) as guard:
        verdict = guard.session(given.session).check(given.tool, args, call_id=given.call_id)
    if given.json:
        print_json({**asdict(verdict), "level": verdict.level.name, "message": verdict.message})
    else:
        print(printable(_in_words(verdict)))
    return 0 if verdict.allowed else _REFUSED


def report(words: list[str]) -> None:
    """Say what came of a call that ran, so that progress counts."""
    parser = _Parser("report", report.__doc__)
    parser.add_argument("--call-id", metavar="ID", required=True, help="the call's id: `check --json` prints it")
    result = parser.add_mutually_exclusive_group()
    result.add_argument("--result", metavar="TEXT", help="the tool's result as text")
    result.add_argument("--result-json", metavar="JSON", help="the tool's result as JSON")
    parser.add_argument("--failed", action="store_true", help="the call failed")
    given = parser.parse_args(words)
    args = parse_json("ARGS-JSON", given.args)
    outcome: dict[str, Any] = {"ok": not given.failed}
    if given.result is not None:
        outcome["result"] = given.result
    if given.result_json is not None:
        outcome["result"] = parse_json("--result-json", given.result_json)
    with open_guard(given.url, given.policy) as guard:
        guard.session(given.session).report_call(given.tool, args, call_id=given.call_id, **outcome)


class _Parser(argparse.ArgumentParser):
    """The words that both commands take; a mistake in them is a ConfigError."""

    def __init__(self, command: str, description: str | None) -> None:
        super().__init__(prog=f"loopfence {command}", description=description, allow_abbrev=False)
        self.add_argument("session", metavar="SESSION", help="the session's id")
        self.add_argument("tool", metavar="TOOL", help="the tool's name")
        self.add_argument("args", metavar="ARGS-JSON", nargs="?", help="the tool's arguments (none = {})")
        self.add_argument(
            "--url",
            default=os.environ.get(URL_VARIABLE),
            help=f"where the sessions are kept (else ${URL_VARIABLE})",
        )
        self.add_argument("--policy", type=Path, metavar="FILE.toml", help="a policy, read from a TOML file")

    def error(self, message: str) -> Never:
        raise ConfigError(f"{message} (see {self.prog} --help)")


def _in_words(verdict: Verdict) -> str:
    """One line: the level, the tool, how often of how many, and what the model is to be told."""
    line = f"{verdict.level.name} {verdict.tool}: {verdict.count} of {verdict.threshold} repeats"
    return f"{line}. {verdict.message}" if verdict.message else line

"""`loopfence check` and `loopfence report`: a call of a tool judged, and then reported, from a shell."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from loopfence.cli import options, printable
from loopfence.errors import ConfigError
from loopfence.verdict import Verdict

_REFUSED = 1
"""Exit code of `check` for a call that must not run."""


def check(
    session: options.Session,
    tool: options.Tool,
    args: options.Args = None,
    *,
    call_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", show_default=False, help="An equal call with the same id is counted once."
        ),
    ] = None,
    url: options.Url = None,
    policy: options.PolicyFile = None,
    as_json: options.AsJson = False,
) -> int:
    """Record a call and judge it: exit code 0 = may run, 1 = must not run, 2 = bad input."""
    value = options.parse_json("ARGS-JSON", args)
    with options.open_guard(url, policy) as guard:
        verdict = guard.session(session).check(tool, value, call_id=call_id)
    if as_json:
        options.print_json(_fields(verdict))
    else:
        print(printable(_in_words(verdict)))
    return 0 if verdict.allowed else _REFUSED


def report(
    session: options.Session,
    tool: options.Tool,
    args: options.Args = None,
    *,
    call_id: Annotated[
        str,
        typer.Option(
            metavar="ID", show_default=False, help="The call's id, as `check` printed it with --json."
        ),
    ],
    result: Annotated[
        str | None,
        typer.Option(metavar="TEXT", show_default=False, help="The tool's result as text."),
    ] = None,
    result_json: Annotated[
        str | None,
        typer.Option(metavar="JSON", show_default=False, help="The tool's result as JSON."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The call failed.")] = False,
    url: options.Url = None,
    policy: options.PolicyFile = None,
) -> None:
    """Say what came of a call that ran: a changed result, or a success that is progress, ends a loop."""
    if result is not None and result_json is not None:
        raise ConfigError("--result and --result-json exclude each other")
    value = options.parse_json("ARGS-JSON", args)
    known: dict[str, Any] = {} if result is None else {"result": result}
    if result_json is not None:
        known["result"] = options.parse_json("--result-json", result_json)
    with options.open_guard(url, policy) as guard:
        guard.session(session).report_call(tool, value, call_id=call_id, ok=not failed, **known)


def _fields(verdict: Verdict) -> dict[str, Any]:
    return {**asdict(verdict), "level": verdict.level.name, "message": verdict.message}


def _in_words(verdict: Verdict) -> str:
    """One line: the level, the tool, how often of how many, and what the model is to be told."""
    line = f"{verdict.level.name} {verdict.tool}: {verdict.count} of {verdict.threshold} repeats"
    return f"{line}. {verdict.message}" if verdict.message else line

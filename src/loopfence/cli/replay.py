"""`loopfence replay` and `loopfence tune`: try a policy on recorded transcripts, and find the one that fits."""

import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from loopfence import Policy
from loopfence.cli import options
from loopfence.cli import replay_tables as tables
from loopfence.cli.policy_file import load_policy
from loopfence.errors import ConfigError
from loopfence.replay.backtest import Backtest
from loopfence.replay.calls import SESSION_FIELDS, Problems
from loopfence.replay.files import read_calls, transcript_files
from loopfence.replay.guesses import Guesses
from loopfence.replay.history import History
from loopfence.replay.page import page
from loopfence.replay.policy_toml import policy_toml
from loopfence.replay.readers import FORMATS
from loopfence.replay.sessions import Follower, follow
from loopfence.replay.summary import Totals, Worst, session_as_dict
from loopfence.replay.tuning import SWEPT, Tuner, combinations, propose

Number = TypeVar("Number", int, float)

Files = Annotated[
    list[str], typer.Argument(metavar="FILES...", show_default=False, help="Transcripts: files, folders, globs.")
]
Format = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default=False, help=f"Their format: {', '.join(FORMATS)} (default: found out)."),
]
SessionKey = Annotated[str, typer.Option(metavar="FIELDS", help="What makes up a session, of: session, run, agent.")]

_LONG = 20_000_000
"""Bytes from which on a progress bar is worth its place."""

_PAGE_SESSIONS = 200


_KEY = ",".join(SESSION_FIELDS)
_WINDOWS, _THRESHOLDS = (",".join(str(value) for value in SWEPT[name]) for name in ("window", "threshold"))


def replay(
    files: Files,
    policy: options.PolicyFile = None,
    format: Format = None,  # noqa: A002
    session_key: SessionKey = _KEY,
    as_json: options.AsJson = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Write a page with a timeline of each session."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="Sessions in the table.")] = 20,
) -> int | None:
    """Show what the guard would have done in recorded sessions, and whether rightly."""
    fields = _session_fields(session_key)
    chosen = load_policy(policy) if policy else Policy()
    totals, problems = Totals(), Problems()
    worst = Worst(max(top, _PAGE_SESSIONS if html else 0))
    written = _JsonSessions() if as_json else None

    def done(history: History) -> None:
        totals.add(history)
        worst.add(history)
        if written is not None:
            written.add(history)

    duplicates = _read(files, format, fields, Backtest(chosen, done, problems, timelines=html is not None), problems)
    if html is not None:
        _write(html, page(totals, worst.sessions(), worst.left_out, chosen))
    if written is not None:
        written.finish(totals, problems, duplicates)
        return None
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    tables.print_problems(errors, problems)
    if not totals.calls:
        raise ConfigError("no tool calls found in these files")
    shown = worst.sessions()[:top]
    hidden = totals.sessions_flagged - sum(history.saved > 0 for history in shown)
    tables.print_replay(console, totals, shown, left_out=hidden)
    if duplicates:
        console.print(f"{duplicates} calls were recorded more than once and counted once")
    return None


def tune(
    files: Files,
    policy: options.PolicyFile = None,
    format: Format = None,  # noqa: A002
    session_key: SessionKey = _KEY,
    window: Annotated[str, typer.Option(metavar="N,N...", help="Windows to try.")] = _WINDOWS,
    threshold: Annotated[str, typer.Option(metavar="N,N...", help="Thresholds to try.")] = _THRESHOLDS,
    ceiling: Annotated[str | None, typer.Option(metavar="N,N...", help="Ceilings to try.")] = None,
    failures: Annotated[str | None, typer.Option(metavar="N,N...", help="Failure limits to try.")] = None,
    max_age: Annotated[str | None, typer.Option(metavar="S,S...", help="Ages to try, in seconds.")] = None,
    precision: Annotated[float, typer.Option(min=0, max=1, help="Precision that is wanted.")] = 0.99,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", show_default=False, help="Write the proposed policy.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Try many policies on recorded sessions and propose the one that catches most without crying wolf."""
    given = {"window": window, "threshold": threshold, "ceiling": ceiling, "failures": failures}
    swept: dict[str, Sequence[Any]] = {
        name: _numbers(name, listed, int) for name, listed in given.items() if listed is not None
    }
    if max_age is not None:
        swept["max_age"] = _numbers("max-age", max_age, float)
    problems, guesses = Problems(), Guesses()
    policies = combinations(load_policy(policy) if policy else Policy(), swept)
    tuner = Tuner(policies, problems, guesses.watch)
    _read(files, format, _session_fields(session_key), tuner, problems)
    chosen = propose(tuner.trials, precision)
    remark = _remark(chosen.totals, precision)
    found = policy_toml(chosen.policy, guesses.all(), [remark])
    if as_json:
        rows = [{name: getattr(t.policy, name) for name in swept} | t.totals.as_dict() for t in tuner.trials]
        proposed = {name: getattr(chosen.policy, name) for name in swept}
        told = [{"tool": guess.tool, "rule": guess.rule, "why": guess.why} for guess in guesses.all()]
        print(json.dumps({"trials": rows, "proposed": proposed, "toml": found, "guesses": told}))
    else:
        tables.print_problems(Console(stderr=True, highlight=False), problems)
        if not chosen.totals.calls:
            raise ConfigError("no tool calls found in these files")
        tables.print_trials(Console(highlight=False), tuner.trials, list(swept), chosen)
        print(found, end="")
    if write is not None:
        _write(write, found)


def _read(
    files: list[str],
    format: str | None,  # noqa: A002
    fields: Sequence[str],
    follower: Follower[Any],
    problems: Problems,
) -> int:
    """Feeds all calls of the files to `follower`; returns how many were recorded more than once."""
    if format is not None and format not in FORMATS:
        raise ConfigError(f"--format must be one of {', '.join(FORMATS)} (got {format!r})")
    try:
        found = transcript_files(files)
    except FileNotFoundError as error:
        raise ConfigError(str(error)) from None
    # Millions of small objects live shortly and in no cycles: looking for cycles is a fifth of the work.
    gc.disable()
    with _progress(found) as advance:
        return follow(read_calls(found, problems, format=format, advance=advance), follower, fields)


@contextmanager
def _progress(files: Sequence[Path]) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes read, on a terminal and for long files; what it yields is told of them."""
    size = sum(file.stat().st_size for file in files)
    if size < _LONG or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = ("reading", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=size)
        yield lambda read: bar.advance(task, read)


class _JsonSessions:
    """Prints one JSON object, session by session as they end: nothing of it is held."""

    def __init__(self) -> None:
        self._before = '{"sessions": [\n'

    def add(self, history: History) -> None:
        print(self._before + json.dumps(session_as_dict(history)), end="")
        self._before = ",\n"

    def finish(self, totals: Totals, problems: Problems, duplicates: int) -> None:
        if self._before != ",\n":
            print(self._before, end="")
        unread = {"total": problems.total(), "kinds": dict(problems.counts), "first": problems.examples}
        rest = {"totals": totals.as_dict(), "duplicates": duplicates, "problems": unread}
        print("],\n" + json.dumps(rest)[1:])


def _session_fields(listed: str) -> list[str]:
    fields = [name.strip() for name in listed.split(",")]
    if not set(fields) <= set(SESSION_FIELDS) or len(set(fields)) < len(fields):
        raise ConfigError(f"--session-key must name some of {', '.join(SESSION_FIELDS)}, each once (got {listed!r})")
    return fields


def _numbers(name: str, listed: str, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in listed.split(",")]
    except ValueError:
        raise ConfigError(f"--{name} must be numbers with commas between them (got {listed!r})") from None


def _remark(totals: Totals, wanted: float) -> str:
    """What the proposed policy reaches, in one sentence."""
    if totals.precision is None:
        return f"flags none of the {totals.calls} recorded calls"
    short = "" if totals.precision >= wanted else f", which is less than the {wanted:.1%} wanted"
    recall = "" if totals.recall is None else f", recall {totals.recall:.1%}"
    return f"on {totals.calls} recorded calls: precision {totals.precision:.1%}{short}{recall}"


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None

"""The tables and sentences that `replay` and `tune` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from loopfence.cli import printable
from loopfence.replay.loops import worst_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from loopfence.replay.calls import Problems
    from loopfence.replay.history import History
    from loopfence.replay.summary import Totals
    from loopfence.replay.tuning import Trial


def print_replay(console: Console, totals: Totals, worst: Sequence[History], *, left_out: int) -> None:
    """The worst sessions, a row each, then the totals."""
    flagged = [history for history in worst if history.saved]
    if flagged:
        table = _table("session", "calls", "first flag", "not run", "redundant", "loop")
        for history in flagged:
            first = history.flags[0]
            table.add_row(
                Text(printable(history.label)),
                str(history.calls),
                f"call {first.call}: {first.rule}",
                str(history.saved),
                _part(history.redundant, history.redundant + history.wrong),
                Text(printable(loop.text) if (loop := worst_loop(history)) else ""),
            )
        console.print(table)
    if left_out:
        console.print(f"... and {left_out} more flagged sessions")
    for line in totals_lines(totals):
        console.print(line, soft_wrap=True)


def totals_lines(totals: Totals) -> list[str]:
    """The totals in sentences."""
    lines = [
        f"{totals.saved} of {totals.calls} calls would not have run,"
        f" in {totals.sessions_flagged} of {totals.sessions} sessions"
        + (f" ({totals.halted} of them after a halt)" if totals.halted else "")
    ]
    if totals.precision is not None:
        known = totals.redundant + totals.wrong
        lines.append(f"precision {totals.precision:.1%}: {totals.redundant} of {known} brought nothing new")
    if totals.unknown:
        lines.append(f"of {totals.unknown} the recording does not tell")
    if totals.recall is not None:
        lines.append(f"recall {totals.recall:.1%}: {totals.caught} of {totals.due} redundant third-or-later calls")
    if totals.resolved:
        lines.append(f"{totals.resolved_hit} of {totals.resolved} resolved sessions hit")
    return lines


def print_trials(console: Console, trials: Sequence[Trial], fields: Sequence[str], chosen: Trial) -> None:
    """A row a policy; the proposed one is marked."""
    table = _table("", *(name.replace("_", " ") for name in fields), *_MEASURES)
    for trial in trials:
        totals = trial.totals
        table.add_row(
            "→" if trial is chosen else "",
            *(str(getattr(trial.policy, name)) for name in fields),
            percent(totals.precision),
            percent(totals.recall),
            str(totals.sessions_flagged),
            f"{totals.resolved_hit} of {totals.resolved}",
            str(totals.saved),
            style="bold" if trial is chosen else "",
        )
    console.print(table)


def print_problems(console: Console, problems: Problems, *, most: int = 10) -> None:
    """The first problems by file and line, and how many there are of each kind."""
    if not problems.total():
        return
    for example in problems.examples[:most]:
        console.print(Text(printable(example)), style="yellow", soft_wrap=True)
    kinds = ", ".join(f"{count} {why}" for why, count in problems.counts.most_common(5))
    console.print(Text(printable(f"{problems.total()} records were not used ({kinds})")), soft_wrap=True)


def percent(part: float | None) -> str:
    """A part of one as text; `-` for None."""
    return "-" if part is None else f"{part:.1%}"


_MEASURES = ("precision", "recall", "sessions flagged", "resolved hit", "calls saved")


def _part(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "-"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:
        left = column in ("", "session", "loop", "first flag")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    return table

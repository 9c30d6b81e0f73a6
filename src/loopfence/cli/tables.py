"""The tables that `show` and `sessions` print: in colour on a terminal, plain and 80 columns in a pipe."""

from datetime import UTC, datetime

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from loopfence import Occurrence, Policy, SessionSnapshot
from loopfence.cli import printable

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_STYLES = ("", "yellow", "bold red")
_NAMES = ("session", "tool", "args", "halted")
"""Columns that may be of any length, and are folded to fit."""
_NUMBERS = ("repeats", "total", "calls", "top repeat")


def print_window(snapshot: SessionSnapshot, policy: Policy) -> None:
    """One session: what is halted, and a row a call, oldest first."""
    console = Console(highlight=False)
    console.print(_headline(snapshot), soft_wrap=True)
    if not snapshot.calls:
        return
    console.print()
    keeps_args = any(call.text is not None for call in snapshot.calls)
    table = _table("when", "ago", "tool", "digest", "repeats", "total", *(["args"] if keeps_args else []))
    # How old a call is by the server's clock, whatever this machine's says.
    now = snapshot.calls[-1].at + (snapshot.idle or 0.0)
    for call in snapshot.calls:
        table.add_row(
            f"{datetime.fromtimestamp(call.at, UTC).astimezone():%H:%M:%S}",
            duration(now - call.at),
            Text(printable(call.tool)),
            call.digest,
            str(snapshot.repeats.get(call.signature, 0)),
            str(snapshot.counts.get(call.signature, 0)),
            *([Text(printable(call.text or ""))] if keeps_args else []),
            style=_STYLES[_alarm(snapshot, call, policy)],
        )
    console.print(table)


def print_summaries(snapshots: list[SessionSnapshot], policy: Policy) -> None:
    """A row a session."""
    console = Console(highlight=False)
    if not snapshots:
        console.print("no sessions")
        return
    table = _table("session", "calls", "top repeat", "idle", "TTL", "halted")
    for snapshot in snapshots:
        table.add_row(
            Text(printable(snapshot.session)),
            str(len(snapshot.calls)),
            str(top_repeat(snapshot)),
            duration(snapshot.idle),
            duration(snapshot.ttl),
            Text(printable(snapshot.halted or "")),
            style=_STYLES[max((_alarm(snapshot, call, policy) for call in snapshot.calls), default=0)],
        )
    console.print(table)


def top_repeat(snapshot: SessionSnapshot) -> int:
    """The most repeats without progress of any call in the window."""
    return max(snapshot.repeats.values(), default=0)


def duration(seconds: float | None) -> str:
    """Seconds in the unit that fits a reader: `0.4 s`, `12 s`, `59 min`; `-` for None."""
    if seconds is None:
        return "-"
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def _headline(snapshot: SessionSnapshot) -> Text:
    size = len(snapshot.calls)
    facts = f"  {size} call{'' if size == 1 else 's'} in the window"
    if snapshot.ttl is not None:
        facts += f", idle {duration(snapshot.idle)}, TTL {duration(snapshot.ttl)}"
    text = Text.assemble((printable(snapshot.session), "bold"), facts)
    if snapshot.halted is not None:
        text.append(f"\nhalted: {printable(snapshot.halted)}", "bold red")
    return text


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for column in columns:
        justify: JustifyMethod = "right" if column in _NUMBERS else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=column not in _NAMES)
    return table


def _alarm(snapshot: SessionSnapshot, call: Occurrence, policy: Policy) -> int:
    """How alarming a call is: 0 made once, 1 repeated, 2 at its tool's threshold."""
    repeats = snapshot.repeats.get(call.signature, 0)
    return 2 if repeats >= policy.limits(call.tool).threshold else int(repeats > 1)

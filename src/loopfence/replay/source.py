"""What a reader knows of the file it reads, and values that several formats write alike."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from loopfence.replay.calls import Problems


_YEAR_5000: Final = 95_617_584_000


@dataclass(slots=True)
class Source:
    """One transcript file: where it lies and where its problems are counted."""

    path: Path
    problems: Problems

    @property
    def name(self) -> str:
        """The session's name where the file holds none: its path, as two folders may hold one file name."""
        return self.path.as_posix()

    def problem(self, line: int, why: str) -> None:
        """Counts what stands at this line (1-based) and could not be used."""
        self.problems.add(str(self.path), line, why)


def text_or_none(value: Any) -> str | None:
    """A name as text: numbers are written out; None for "" and for anything that is neither."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def seconds_of(value: Any) -> float | None:
    """A time stamp in seconds: a number, or ISO 8601 text (UTC unless it names a zone); None for anything else.

    A number that is no time in seconds before the year 5000 is taken for milli-, micro- or nanoseconds.
    """
    if type(value) is float or type(value) is int:
        if not -_YEAR_5000 < value < _YEAR_5000:
            scaled = (value / unit for unit in (1e3, 1e6, 1e9) if abs(value) < _YEAR_5000 * unit)
            return next(scaled, None)
        return float(value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return None


def outcome_of(record: dict[str, Any]) -> str | None:
    """How a run ended, where its record says so: `outcome` as it is, else a `reward` or `resolved` flag."""
    outcome = record.get("outcome")
    if isinstance(outcome, str):
        return outcome
    for field in ("reward", "resolved", "success"):
        score = record.get(field)
        if isinstance(score, bool | int | float):
            return "resolved" if score >= 1 else "unresolved"
    return None

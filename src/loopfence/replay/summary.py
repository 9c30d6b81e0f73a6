"""Totals over all sessions of a backtest, and the worst of them; what is kept does not grow with the sessions."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loopfence.replay.history import Flagged
from loopfence.replay.loops import worst_loop

if TYPE_CHECKING:
    from loopfence.replay.history import Flag, History


@dataclass
class Totals(Flagged):
    """Sums over sessions. Precision and recall are None where there is nothing to divide by."""

    sessions: int = 0
    calls: int = 0
    redundant: int = 0
    wrong: int = 0
    unknown: int = 0
    halted: int = 0
    due: int = 0
    caught: int = 0
    sessions_flagged: int = 0
    sessions_wrong: int = 0
    """Sessions with a flagged call that brought something new."""
    resolved: int = 0
    """Sessions with the outcome "resolved"."""
    resolved_hit: int = 0
    """Those of them with a flagged call."""

    def add(self, history: History) -> None:
        """Counts one session."""
        self.sessions += 1
        self.calls += history.calls
        self.redundant += history.redundant
        self.wrong += history.wrong
        self.unknown += history.unknown
        self.halted += history.halted
        self.due += history.due
        self.caught += history.caught
        self.sessions_flagged += history.flagged > 0
        self.sessions_wrong += history.wrong > 0
        resolved = history.outcome == "resolved"
        self.resolved += resolved
        self.resolved_hit += resolved and history.flagged > 0

    @property
    def recall(self) -> float | None:
        """The part of the redundant third-or-later equal calls that was flagged."""
        return self.caught / self.due if self.due else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        derived = ("flagged", "saved", "precision", "recall")
        return {**vars(self), **{name: getattr(self, name) for name in derived}}


@dataclass
class Worst:
    """The `most` sessions that would have saved most calls, longest first among equals."""

    most: int
    left_out: int = 0
    _heap: list[tuple[int, int, int, History]] = field(default_factory=list)

    def add(self, history: History) -> None:
        """Takes one session; the least of them goes when there are too many."""
        # the number makes every entry different, so that sessions themselves are never compared
        entry = (history.saved, history.calls, -len(self._heap) - self.left_out, history)
        if len(self._heap) < self.most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)
            self.left_out += 1

    def sessions(self) -> list[History]:
        """The sessions kept, worst first."""
        return [entry[3] for entry in sorted(self._heap, reverse=True)]


def session_as_dict(history: History) -> dict[str, Any]:
    """One session as plain data for JSON; at most its first 2,000 flagged calls are listed."""
    loop = worst_loop(history)
    return {
        **history.key,
        "calls": history.calls,
        "flagged": history.flagged,
        "redundant": history.redundant,
        "wrong": history.wrong,
        "unknown": history.unknown,
        "halted": history.halted,
        "saved": history.saved,
        "outcome": history.outcome,
        "loop": loop and {"text": loop.text, "laps": loop.laps, "first": loop.first},
        "flags": [_flag_as_dict(flag) for flag in history.flags],
    }


def _flag_as_dict(flag: Flag) -> dict[str, Any]:
    return {
        "call": flag.call,
        "tool": flag.signature.tool,
        "args": flag.signature.text,
        "rule": flag.rule,
        "count": flag.count,
        "redundant": flag.redundant,
    }

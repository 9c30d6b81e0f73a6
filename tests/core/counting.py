"""The shortest way to say what a test of the counting rule does: equal calls, their reports, their counts."""

from __future__ import annotations

from typing import Any

from loopfence import LoopGuard, Session, Verdict

SEARCH = ("search", {"q": "a"})
OTHER = ("search", {"q": "b"})
EDIT = ("edit", {"file": "x"})


def call(session: Session, named: tuple[str, Any] = SEARCH, **report: Any) -> Verdict:
    """One call and, where `result` or `ok` is given, the report on it."""
    verdict = session.check(*named)
    if report:
        session.report(verdict, **report)
    return verdict


def counts(session: Session, *calls: tuple[str, Any]) -> list[int]:
    """The counts of these calls, none of them reported."""
    return [session.check(*named).count for named in calls]


def counts_of_results(session: Session, *results: Any, named: tuple[str, Any] = SEARCH) -> list[int]:
    """The counts of equal calls with these results, each reported before the next call."""
    return [call(session, named, result=result).count for result in results]


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def clocked(**options: Any) -> tuple[LoopGuard, Clock]:
    """A guard in memory and its clock."""
    clock = Clock()
    return LoopGuard("memory://", clock=clock, **options), clock

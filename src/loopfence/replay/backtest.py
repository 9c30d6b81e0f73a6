"""One policy tried on recorded sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopfence.replay.calls import Call, Turn
from loopfence.replay.clockwork import Clockwork, SessionRun
from loopfence.replay.history import History
from loopfence.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence.policy import Policy
    from loopfence.replay.calls import Problems


class Backtest:
    """Follows sessions through the engine, and hands the history of each to `done` at its end."""

    def __init__(self, policy: Policy, done: Callable[[History], None], problems: Problems) -> None:
        self._clockwork = Clockwork(policy)
        self._done = done
        self._problems = problems

    def begin(self, key: dict[str, Any]) -> tuple[SessionRun, History]:
        """A session without calls."""
        return SessionRun(self._clockwork), History(key)

    def take(self, state: tuple[SessionRun, History], item: Call | Turn) -> None:
        """Judges a call, or notes that a turn moved things."""
        run, history = state
        counted = run.count(item, history.label, self._problems)
        if counted is not None and isinstance(item, Call):
            level, rule, _ = judge(self._clockwork.policy, counted.tally, counted.question.limits)
            history.add(item, counted, level, rule)
        elif isinstance(item, Turn):
            history.mark()

    def end(self, state: tuple[SessionRun, History]) -> None:
        """Ends a session."""
        state[0].end()
        self._done(state[1])

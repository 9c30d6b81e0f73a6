"""One policy tried on recorded sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopfence.errors import LoopfenceError
from loopfence.replay.calls import Call, Turn
from loopfence.replay.clockwork import Clockwork, SessionRun
from loopfence.replay.history import History
from loopfence.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence.policy import Policy
    from loopfence.replay.calls import Problems


def no_signature(error: LoopfenceError) -> str:
    """Why a call could not be judged, in few words: an error's text may hold a long path."""
    return f"no signature: {str(error)[-90:]}"


class Backtest:
    """Follows sessions through the engine, and hands the history of each to `done` at its end.

    A call without a signature is a problem of its session. Without `timelines`, sessions in which no rule could have
    applied have none: they are only counted, which is most of the work saved.
    """

    def __init__(
        self, policy: Policy, done: Callable[[History], None], problems: Problems, *, timelines: bool = True
    ) -> None:
        self._clockwork = Clockwork(policy)
        self._policy = self._clockwork.policy
        self._done = done
        self._problems = problems
        self._timelines = timelines

    def begin(self, key: dict[str, Any]) -> tuple[SessionRun, History]:
        """A session without calls."""
        return SessionRun(self._clockwork), History(key)

    def take(self, state: tuple[SessionRun, History], item: Call | Turn) -> None:
        """Judges a call, or notes that a turn moved things."""
        run, history = state
        try:
            taken = run.take(item)
        except LoopfenceError as error:
            self._problems.add(history.label, 0, no_signature(error))
            return
        for one, counted in taken:
            if counted is None:
                history.mark()
            elif isinstance(one, Call):
                level, rule, _ = judge(self._policy, counted[1], counted[0].tool.limits)
                history.add(one, counted, level, rule)

    def end(self, state: tuple[SessionRun, History]) -> None:
        """Ends a session."""
        run, history = state
        history.add_uncounted(run.end(), timeline=self._timelines)
        self._done(history)

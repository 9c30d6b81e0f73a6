"""Recorded calls run through the engine: each call is judged from what was reported before it.

The recording is what an agent did in shadow mode. Every call of it ran, also one that would have been blocked, so
the result of each is reported; a blocked call that brought something new thereby shows as wrongly flagged once,
and not as the first of a series. Calls of one model turn are all judged before the first of them is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loopfence.call_ids import new_id
from loopfence.engine import Engine
from loopfence.errors import LoopfenceError
from loopfence.replay.calls import UNKNOWN, Call, Turn
from loopfence.replay.history import History
from loopfence.settings import UNSET, resolve
from loopfence.store.memory import MemoryStore
from loopfence.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence.engine import Named, Question
    from loopfence.policy import Policy
    from loopfence.replay.calls import Problems
    from loopfence.store.tally import Report

_EPOCH: Final = 1e9
"""Where virtual time begins, in seconds: recordings may count theirs from 0, which no clock shows."""


class Clockwork:
    """The engine on a memory store whose clock is that of the recording; policies only shadow."""

    def __init__(self, policy: Policy) -> None:
        settings = resolve("memory://", policy=policy.override(enforce=False), given={}, keep_args=True)
        self.policy = settings.policy
        self.engine = Engine(settings)
        self._now = _EPOCH
        self.store = MemoryStore(namespace=settings.namespace, ttl=settings.ttl_ms, clock=lambda: self._now)

    def ask(self, named: Named, call: Call, number: int) -> Question:
        """The engine's request for a call; the model turn is the call's id, else it is unique in its session."""
        return self.engine.ask(named, call.tool, call.args, call.batch or f".{number}")

    def outcome(self, question: Question, call: Call) -> Report:
        """The engine's report on a recorded call."""
        result = UNSET if call.result is UNKNOWN else call.result
        return self.engine.outcome(question, result, call.ok)

    def turn_to(self, seconds: float) -> None:
        """Sets the clock; each session has its own time."""
        self._now = _EPOCH + seconds

    def report(self, question: Question, report: Report) -> None:
        """Reports a call; of an exempt one the store takes only its progress."""
        if not question.limits.rule.exempt:
            self.store.report(report)
        elif report.progress and report.ok:
            self.store.progress(report.session, report.signature, report.call_id)


class _Running:
    """A session that is being run."""

    __slots__ = ("asked", "batch", "history", "named", "now", "pending")

    def __init__(self, named: Named, history: History) -> None:
        self.named = named
        self.history = history
        self.now = 0.0
        self.asked = 0
        self.batch: str | None = None
        self.pending: list[tuple[Question, Report]] = []


class Backtest:
    """Follows sessions through the engine under one policy, and hands the history of each to `done` at its end.

    A call that has no signature (a name too long, arguments nested too deeply) is a problem and not judged.
    """

    def __init__(self, policy: Policy, done: Callable[[History], None], problems: Problems) -> None:
        self._clockwork = Clockwork(policy)
        self._done = done
        self._problems = problems
        self._begun = 0

    def begin(self, key: dict[str, Any]) -> _Running:
        """A session without calls. The store knows it by a number: its name may be too long for one."""
        self._begun += 1
        return _Running(self._clockwork.engine.name(str(self._begun)), History(key))

    def take(self, running: _Running, item: Call | Turn) -> None:
        """Judges a call and reports it, or notes that a turn moved things."""
        clockwork, pending = self._clockwork, running.pending
        if item.ts is not None:
            running.now = item.ts
        clockwork.turn_to(running.now)
        if pending and (isinstance(item, Turn) or item.batch != running.batch):
            self._report(pending)
        if isinstance(item, Turn):
            clockwork.store.progress(running.named.key, "", new_id())
            running.history.mark()
            return
        running.asked += 1
        try:
            question = clockwork.ask(running.named, item, running.asked)
        except LoopfenceError as error:
            self._problems.add(running.history.label, running.asked, str(error))
            return
        tally = clockwork.store.record(question.call)
        level, rule, _ = judge(clockwork.policy, tally, question.limits)
        report = clockwork.outcome(question, item)
        running.history.add(item, question, tally, report, level, rule)
        if item.batch is None:
            clockwork.report(question, report)
        else:
            running.batch = item.batch
            pending.append((question, report))

    def end(self, running: _Running) -> None:
        """Forgets the session."""
        self._clockwork.store.reset(running.named.key)
        self._done(running.history)

    def _report(self, pending: list[tuple[Question, Report]]) -> None:
        for question, report in pending:
            self._clockwork.report(question, report)
        pending.clear()

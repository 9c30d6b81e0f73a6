"""The engine as replay drives it: on a memory store, by the recording's clock, every recorded call reported.

The recording is what an agent did in shadow mode. Every call of it ran, also one that would have been blocked, so
the result of each is reported; a blocked call that brought something new thereby shows as wrongly flagged once,
and not as the first of a series. Calls of one model turn are all judged before the first of them is reported.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from loopfence.call_ids import new_id
from loopfence.engine import Engine
from loopfence.replay.calls import UNKNOWN, Call, Turn
from loopfence.settings import UNSET, resolve
from loopfence.store.memory import MemoryStore

if TYPE_CHECKING:
    from loopfence.engine import Question
    from loopfence.policy import Policy
    from loopfence.store.tally import Report, Tally

Counted = tuple["Question", "Tally", "Report"]
"""A recorded call as the engine took it, before any rule is applied; a plain tuple, as there are millions."""

Signed = tuple["Call | Turn", str, str]
"""An item and, of a call, its signature and the beginning of its arguments' text."""

Took = tuple["Call | Turn", "Counted | None"]
"""An item and, of a call, what the engine made of it."""

_LONGEST_BACKLOG: Final = 1_000
_KEPT_BYTES: Final = 1_000
"""Of a call's arguments; no report shows as many."""

_EPOCH: Final = 1e9
"""Where each session's time begins, in seconds: recordings may count theirs from 0, which no clock shows."""


class Clockwork:
    """One engine and its store; each session that runs on it has its own time."""

    def __init__(self, policy: Policy) -> None:
        settings = resolve("memory://", policy=policy.override(enforce=False), given={}, keep_args=True)
        self.policy = settings.policy
        self.engine = Engine(settings)
        self.now = _EPOCH
        self.store = MemoryStore(namespace=settings.namespace, ttl=settings.ttl_ms, clock=lambda: self.now)
        self.names = itertools.count()


class SessionRun:
    """One session on its way through the engine.

    Every rule needs an equal call, a failed one, or a streak of results. Until the session has one of these its
    calls are only signed and kept; most sessions end that way and never meet the store.
    """

    __slots__ = ("_backlog", "_batch", "_clockwork", "_named", "_now", "_pending", "_seen", "_start")

    def __init__(self, clockwork: Clockwork) -> None:
        self._clockwork = clockwork
        # a number, as what a recording calls the session may be too long for a name
        self._named = clockwork.engine.name(str(next(clockwork.names)))
        self._now = _EPOCH
        self._start: float | None = None
        self._batch: str | None = None
        self._pending: list[Counted] = []
        self._backlog: list[Signed] | None = [] if clockwork.policy.stagnation is None else None
        self._seen: set[str] = set()

    def take(self, item: Call | Turn) -> list[Took]:
        """Takes the next item; returns what was counted with it, oldest first: nothing, one, or all until now.

        LoopfenceError for a call without a signature: its tool's name is too long, its arguments are nested too
        deeply. Such a call leaves no trace.
        """
        backlog = self._backlog
        if backlog is None:
            return [self._count(item)]
        if not isinstance(item, Call):
            backlog.append((item, "", ""))
            return []
        _, signature, form = self._clockwork.engine.sign(item.tool, item.args)
        # Not the bytes: orjson leaves room behind them, 4 KB each.
        backlog.append((item, signature, form[:_KEPT_BYTES].decode("utf-8", "replace")))
        seen = self._seen
        if item.ok and signature not in seen and len(seen) < _LONGEST_BACKLOG:
            seen.add(signature)
            return []
        self._backlog = None
        return [self._count(earlier) for earlier, _, _ in backlog]

    def end(self) -> list[Signed]:
        """Forgets the session; returns what was never counted, as no rule could have applied."""
        if self._backlog is not None:
            return self._backlog
        self._clockwork.store.reset(self._named.key)
        return []

    def _count(self, item: Call | Turn) -> Took:
        """Records a call and reports it, or lets a turn move things."""
        clockwork, pending = self._clockwork, self._pending
        batch = item.batch if isinstance(item, Call) else None
        if pending and batch != self._batch:
            # When the turn ended, and not when the next item came: what is too old may lie between.
            clockwork.now = self._now
            self._report_batch()
        if item.ts is not None:
            if self._start is None:
                self._start = item.ts
            # never backwards, as the clock of a server
            self._now = max(self._now, _EPOCH + (item.ts - self._start))
        clockwork.now = self._now
        if isinstance(item, Turn):
            clockwork.store.progress(self._named.key, "", new_id())
            return item, None
        question = clockwork.engine.ask(self._named, item.tool, item.args, batch)
        tally = clockwork.store.record(question.call)
        result = UNSET if item.result is UNKNOWN else item.result
        counted = (question, tally, clockwork.engine.outcome(question, result, item.ok))
        if batch is None:
            self._report(counted)
        else:
            self._batch = batch
            pending.append(counted)
        return item, counted

    def _report_batch(self) -> None:
        for counted in self._pending:
            self._report(counted)
        self._pending.clear()

    def _report(self, counted: Counted) -> None:
        """Reports a call."""
        report = counted[2]
        if report.says_something:
            self._clockwork.store.report(report)

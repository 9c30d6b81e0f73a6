"""LoopGuard and Session: the synchronous face. No rule is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from loopfence.call_ids import new_id, new_session
from loopfence.closing import Closing
from loopfence.decorator import guarded
from loopfence.engine import Engine
from loopfence.options import Configured
from loopfence.session import SessionBase, ToolCall
from loopfence.settings import UNSET, Settings
from loopfence.store.open import open_store

if TYPE_CHECKING:
    from loopfence.aio import AsyncLoopGuard
    from loopfence.snapshot import SessionSnapshot
    from loopfence.store.memory import Space
    from loopfence.store.tally import Store
    from loopfence.verdict import Verdict

Function = TypeVar("Function", bound=Callable[..., Any])
SessionOf = str | Callable[..., str | None] | None
"""A session's id, or what gives it from a call's arguments; None = the current one."""


class Session(SessionBase):
    """One agent run's window. Cheap to make, safe to share between threads."""

    _store: Store

    def check(self, tool: str, args: Any = None, *, call_id: str | None = None) -> Verdict:
        """Record a call and judge it; never raises on a loop.

        Ask before the tool runs; run it only if `verdict.allowed`, then `report` what came of it. A blocked
        attempt is recorded as well. Calls with equal signature and equal `call_id` are one call: give the id of the
        job, or of the model's turn, and a redelivery counts once. Writes the session's `calls` and `counts`.

        Raises ArgsError (arguments without a canonical form), ConfigError (bad names) and, with
        on_outage="raise" only, StoreError.
        """
        question = self._engine.ask(self._named, tool, args, call_id)
        return self._engine.answer(question, self._store.record(question.call))

    def record(self, tool: str, args: Any = None, *, call_id: str | None = None) -> Verdict:
        """`check`, then LoopDetectedError where the call is not allowed."""
        return self._passed(self.check(tool, args, call_id=call_id), args)

    def peek(self, tool: str, args: Any = None) -> Verdict:
        """What the next `check` of this call would say; writes nothing."""
        question = self._engine.ask(self._named, tool, args, None)
        return self._engine.answer(question, self._store.peek(question.call))

    def would_raise(self, tool: str, args: Any = None) -> bool:
        """Whether the next `record` of this call would raise LoopDetectedError; writes nothing."""
        return not self.peek(tool, args).allowed

    def report(self, verdict: Verdict, *, result: Any = UNSET, ok: bool = True) -> None:
        """Say what came of a call that was allowed: its result where known, and whether it succeeded.

        Only a digest of the result goes to Redis. A result without a canonical form counts as unknown; nothing is
        raised for it. Does nothing for a verdict that was not allowed, a call that was reported before (but a
        success after a failure), or one that has left the window. Writes the session's `state`.
        """
        report = self._engine.report(verdict, result, ok)
        if report is not None and report.says_something:
            self._store.report(report)

    def report_call(self, tool: str, args: Any, *, call_id: str, result: Any = UNSET, ok: bool = True) -> None:
        """`report` where the verdict is not at hand: in another process than the one that checked."""
        report = self._engine.report_call(self._named, tool, args, call_id, result, ok)
        if report.says_something:
            self._store.report(report)

    def note_progress(self) -> None:
        """Say that something has moved: a new user turn, a compacted context, an outside event.

        Every earlier occurrence stops counting, and the streaks of all tools end.
        """
        self._store.progress(self._named.key, "", new_id())

    def is_looping(self) -> bool:
        """Whether any call in the window has reached its threshold without progress."""
        return self._loops(self.snapshot())

    def recent_keys(self) -> list[tuple[str, str]]:
        """The window, oldest first: tool and canonical arguments, or their digest where none are kept."""
        return [(call.tool, call.digest if call.text is None else call.text) for call in self.snapshot().calls]

    def halt(self, reason: str) -> None:
        """Stop the session for every worker until `resume`, `reset` or 24 h without a call."""
        self._store.halt(self._named.key, self._engine.halt_reason(reason))

    def resume(self) -> None:
        """Lift a halt. What is in the window still counts: add `note_progress()` for a fresh start."""
        self._store.resume(self._named.key)

    def reset(self) -> None:
        """Forget the session: its window, its progress, its halt."""
        self._store.reset(self._named.key)

    def snapshot(self) -> SessionSnapshot:
        """All that is held of the session, read in one step."""
        return self._seen(self._store.contents(self._named.key))

    def __len__(self) -> int:
        return len(self.snapshot().calls)

    @property
    def is_empty(self) -> bool:
        """Whether no call is in the window."""
        return len(self) == 0

    @contextmanager
    def call(self, tool: str, args: Any = None, call_id: str | None = None) -> Iterator[ToolCall]:
        """Record a call, run the `with` block, report: `call.result` if it was set; an exception = failed.

        Raises LoopDetectedError, without running the block, where the call is not allowed.
        """
        running = ToolCall(self.record(tool, args, call_id=call_id))
        try:
            yield running
        except Exception:
            self.report(running.verdict, ok=False)
            raise
        self.report(running.verdict, result=running.result)


class LoopGuard(Configured, Session, Closing):
    """The loop guard: sessions over one store. It is itself a session, for programs that run one agent."""

    def _configure(self, settings: Settings, space: Space | None, session: str | None) -> None:
        self._settings, self._space = settings, space
        engine, store = Engine(settings), open_store(settings, space)
        Session.__init__(self, engine, store, engine.name(new_session() if session is None else session))

    def session(self, session_id: str) -> Session:
        """The session of one agent run. No I/O; ConfigError for an empty id or one of more than 512 bytes."""
        return Session(self._engine, self._store, self._engine.name(session_id))

    def record_many(self, calls: Iterable[tuple[str, str, Any]]) -> list[Verdict]:
        """Record many (session id, tool, args), 100 in one round trip; verdicts in the same order.

        Each is one atomic step, the batch is none. As `check`, it never raises on a loop; bad input in any of them
        raises before anything is sent.
        """
        questions = self._engine.ask_many(calls)
        tallies = self._store.run([question.call for question in questions])
        return [self._engine.answer(*pair) for pair in zip(questions, tallies, strict=True)]

    def sessions(self) -> Iterator[str]:
        """The ids of all sessions that the store holds, in no order (SCAN on Redis)."""
        return self._store.sessions()

    def tracked_sessions(self) -> int:
        """How many sessions the store holds."""
        return sum(1 for _ in self.sessions())

    @overload
    def tool(self, fn: Function, *, session: SessionOf = None, name: str | None = None) -> Function: ...
    @overload
    def tool(
        self, fn: None = None, *, session: SessionOf = None, name: str | None = None
    ) -> Callable[[Function], Function]: ...
    def tool(self, fn: Function | None = None, *, session: SessionOf = None, name: str | None = None) -> Any:
        """Guard a tool function, sync or async: `@guard.tool` or `@guard.tool(session=…)`.

        session -- an id, or a callable of the call's arguments giving one; else `with loopfence.session(id)`, else
        the guard's own session. name -- the tool's name, else the function's. The arguments are those of the call,
        by name, without `self`. Raises LoopDetectedError in place of running the function; a generator is passed
        through unread.
        """
        return guarded(self, self.as_async, fn, session, name)

    def as_async(self) -> AsyncLoopGuard:
        """An AsyncLoopGuard with the same settings; over memory:// both share one store. No I/O."""
        from loopfence.aio import AsyncLoopGuard

        return AsyncLoopGuard.like(self._settings, self._space, self._named.id)

    def close(self) -> None:
        self._store.close()

"""AsyncLoopGuard and AsyncSession: the asyncio face, the same logic called. No rule is decided here."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, overload

from loopfence.call_ids import new_id, new_session
from loopfence.closing import AsyncClosing
from loopfence.decorator import guarded
from loopfence.engine import Engine
from loopfence.guard import Function, LoopGuard, Session, SessionOf
from loopfence.options import Configured
from loopfence.session import SessionBase, ToolCall
from loopfence.settings import UNSET, Settings
from loopfence.store.open import open_async_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from loopfence.snapshot import SessionSnapshot
    from loopfence.store.memory import Space
    from loopfence.store.tally import AsyncStore
    from loopfence.verdict import Verdict


class AsyncSession(SessionBase):
    """One agent run's window, awaitable; each method says what `Session`'s says."""

    _store: AsyncStore

    async def check(self, tool: str, args: Any = None, *, call_id: str | None = None) -> Verdict:
        question = self._engine.ask(self._named, tool, args, call_id)
        return self._engine.answer(question, await self._store.record(question.call))

    async def record(self, tool: str, args: Any = None, *, call_id: str | None = None) -> Verdict:
        return self._passed(await self.check(tool, args, call_id=call_id), args)

    async def peek(self, tool: str, args: Any = None) -> Verdict:
        question = self._engine.ask(self._named, tool, args, None)
        return self._engine.answer(question, await self._store.peek(question.call))

    async def would_raise(self, tool: str, args: Any = None) -> bool:
        return not (await self.peek(tool, args)).allowed

    async def report(self, verdict: Verdict, *, result: Any = UNSET, ok: bool = True) -> None:
        report = self._engine.report(verdict, result, ok)
        if report is not None and report.says_something:
            await self._store.report(report)

    async def report_call(self, tool: str, args: Any, *, call_id: str, result: Any = UNSET, ok: bool = True) -> None:
        report = self._engine.report_call(self._named, tool, args, call_id, result, ok)
        if report.says_something:
            await self._store.report(report)

    async def note_progress(self) -> None:
        await self._store.progress(self._named.key, "", new_id())

    async def is_looping(self) -> bool:
        return self._loops(await self.snapshot())

    async def recent_keys(self) -> list[tuple[str, str]]:
        calls = (await self.snapshot()).calls
        return [(call.tool, call.digest if call.text is None else call.text) for call in calls]

    async def halt(self, reason: str) -> None:
        await self._store.halt(self._named.key, self._engine.halt_reason(reason))

    async def resume(self) -> None:
        await self._store.resume(self._named.key)

    async def reset(self) -> None:
        await self._store.reset(self._named.key)

    async def snapshot(self) -> SessionSnapshot:
        return self._seen(await self._store.contents(self._named.key))

    async def size(self) -> int:
        """How many calls are in the window (`len` of a Session)."""
        return len((await self.snapshot()).calls)

    async def is_empty(self) -> bool:
        return await self.size() == 0

    @asynccontextmanager
    async def call(self, tool: str, args: Any = None, call_id: str | None = None) -> AsyncIterator[ToolCall]:
        running = ToolCall(await self.record(tool, args, call_id=call_id))
        try:
            yield running
        except Exception:
            await self.report(running.verdict, ok=False)
            raise
        await self.report(running.verdict, result=running.result)


class AsyncLoopGuard(Configured, AsyncSession, AsyncClosing):
    """The loop guard for asyncio; it is itself a session, for programs that run one agent."""

    def _configure(self, settings: Settings, space: Space | None, session: str | None) -> None:
        self._settings, self._space = settings, space
        engine, store = Engine(settings), open_async_store(settings, space)
        AsyncSession.__init__(self, engine, store, engine.name(new_session() if session is None else session))

    def session(self, session_id: str) -> AsyncSession:
        return AsyncSession(self._engine, self._store, self._engine.name(session_id))

    async def record_many(self, calls: Iterable[tuple[str, str, Any]]) -> list[Verdict]:
        questions = self._engine.ask_many(calls)
        tallies = await self._store.run([question.call for question in questions])
        return [self._engine.answer(*pair) for pair in zip(questions, tallies, strict=True)]

    def sessions(self) -> AsyncIterator[str]:
        return self._store.sessions()

    async def tracked_sessions(self) -> int:
        return sum([1 async for _ in self.sessions()])

    @overload
    def tool(self, fn: Function, *, session: SessionOf = None, name: str | None = None) -> Function: ...
    @overload
    def tool(
        self, fn: None = None, *, session: SessionOf = None, name: str | None = None
    ) -> Callable[[Function], Function]: ...
    def tool(self, fn: Function | None = None, *, session: SessionOf = None, name: str | None = None) -> Any:
        return guarded(self, self.as_sync, fn, session, name)

    def as_sync(self) -> LoopGuard:
        """A LoopGuard with the same settings; over memory:// both share one store. No I/O."""
        return LoopGuard.like(self._settings, self._space, self._named.id)

    async def close(self) -> None:
        await self._store.close()


for _name in ("check", "record", "peek", "would_raise", "report", "report_call", "note_progress", "is_looping",
              "recent_keys", "halt", "resume", "reset", "snapshot", "is_empty", "call"):  # fmt: skip
    # One text a method: the awaitable twin says what the synchronous one says.
    getattr(AsyncSession, _name).__doc__ = getattr(Session, _name).__doc__
for _name in ("session", "record_many", "sessions", "tracked_sessions", "tool"):
    getattr(AsyncLoopGuard, _name).__doc__ = getattr(LoopGuard, _name).__doc__

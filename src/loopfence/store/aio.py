"""The asyncio Redis shell: sends the steps; no rule is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from loopfence.errors import StoreError
from loopfence.store.faults import FAILURES, translate
from loopfence.store.keys import session_pattern
from loopfence.store.scripts import Command, Commands, batched
from loopfence.store.shell import Found, RedisShell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from loopfence.store.aio_links import AsyncLink
    from loopfence.store.outage import Outage
    from loopfence.store.tally import Call, Contents, Report, Step, Tally

    Coro = Coroutine[Any, Any, "T"]

T = TypeVar("T")


class AsyncRedisStore(RedisShell):
    """Windows in Redis, through an AsyncLink."""

    def __init__(self, link: AsyncLink, commands: Commands, outage: Outage) -> None:
        super().__init__(commands, outage)
        self._link = link

    async def _ask(self, command: Command[T], instead: Callable[..., T], *arguments: Any) -> T:
        """The answer to one step; `instead(*arguments)` where Redis has none."""
        admitted = self._outage.admit()
        if not admitted:
            self._outage.skipped()
            return instead(*arguments)
        try:
            reply = await self._link.send(command)
        except FAILURES as error:
            reply = error
        return self._made_of(command, reply, admitted, instead, arguments)

    async def _ask_many(self, steps: Sequence[Step]) -> list[Any]:
        admitted = self._outage.admit()
        if not admitted:
            self._outage.skipped()
            return [self._outage.step(step) for step in steps]
        commands = [self._commands.step(step) for step in steps]
        try:
            replies = await self._link.send_many(commands)
        except FAILURES as error:
            replies = [error] * len(commands)
        asked = zip(steps, commands, replies, strict=True)
        return [self._made_of(command, reply, admitted, self._outage.step, (step,)) for step, command, reply in asked]

    async def run(self, steps: Sequence[Step]) -> list[Any]:
        answers: list[Any] = []
        for batch in batched(steps):
            answers += await self._ask_many(batch)
        return answers

    def record(self, call: Call) -> Coro[Tally]:
        return self._ask(self._commands.record(call), self._outage.record, call)

    def peek(self, call: Call) -> Coro[Tally]:
        return self._ask(self._commands.peek(call), self._outage.peek, call)

    def report(self, report: Report) -> Coro[None]:
        return self._ask(self._commands.report(report), self._outage.local.report, report)

    def progress(self, session: str, owner: str, token: str) -> Coro[None]:
        return self._ask(
            self._commands.progress(session, owner, token), self._outage.local.progress, session, owner, token
        )

    def halt(self, session: str, reason: str) -> Coro[None]:
        return self._ask(self._commands.halt(session, reason), self._outage.local.halt, session, reason)

    def resume(self, session: str) -> Coro[None]:
        return self._ask(self._commands.resume(session), self._outage.local.resume, session)

    def reset(self, session: str) -> Coro[None]:
        return self._ask(self._commands.reset(session), self._outage.local.reset, session)

    def contents(self, session: str) -> Coro[Contents]:
        return self._ask(self._commands.contents(session), self._outage.local.contents, session)

    async def sessions(self) -> AsyncIterator[str]:
        namespace = self._commands.namespace
        found = Found(namespace)
        try:
            async for key in self._link.scan(session_pattern(namespace)):
                if (session := found.new(key)) is not None:
                    yield session
        except FAILURES as error:
            raise translate(error, namespace) from None
        except ValueError as error:
            raise StoreError(str(error)) from None

    async def close(self) -> None:
        await self._link.close()

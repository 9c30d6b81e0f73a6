"""The asyncio Redis shell: sends the steps; no rule is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from loopfence.errors import StoreError
from loopfence.store.faults import FAILURES, translate
from loopfence.store.keys import session_pattern
from loopfence.store.scripts import Command, Commands, batched
from loopfence.store.shell import Found, RedisShell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from loopfence.store.aio_links import AsyncLink
    from loopfence.store.outage import Outage
    from loopfence.store.tally import Call, Contents, Report, Step, Tally

T = TypeVar("T")


class AsyncRedisStore(RedisShell):
    """Windows in Redis, through an AsyncLink."""

    def __init__(self, link: AsyncLink, commands: Commands, outage: Outage) -> None:
        super().__init__(commands, outage)
        self._link = link

    async def _ask(self, command: Command[T], instead: Callable[[], T]) -> T:
        admitted = self._outage.admit()
        if not admitted:
            self._outage.skipped()
            return instead()
        try:
            reply = await self._link.send(command)
        except FAILURES as error:
            reply = error
        return self._made_of(command, reply, admitted, instead)

    async def _ask_many(self, commands: list[Command[T]], insteads: list[Callable[[], T]]) -> list[T]:
        admitted = self._outage.admit()
        if not admitted:
            self._outage.skipped()
            return [instead() for instead in insteads]
        try:
            replies = await self._link.send_many(commands)
        except FAILURES as error:
            replies = [error] * len(commands)
        asked = zip(commands, replies, insteads, strict=True)
        return [self._made_of(command, reply, admitted, instead) for command, reply, instead in asked]

    async def record(self, call: Call) -> Tally:
        return await self._ask(*self._recording(call))

    async def run(self, steps: Sequence[Step]) -> list[Any]:
        answers: list[Any] = []
        for batch in batched(steps):
            answers += await self._ask_many(*self._running(batch))
        return answers

    async def peek(self, call: Call) -> Tally:
        return await self._ask(*self._peeking(call))

    async def report(self, report: Report) -> None:
        await self._ask(*self._reporting(report))

    async def progress(self, session: str, owner: str, token: str) -> None:
        await self._ask(*self._progressing(session, owner, token))

    async def halt(self, session: str, reason: str) -> None:
        await self._ask(*self._halting(session, reason))

    async def resume(self, session: str) -> None:
        await self._ask(*self._resuming(session))

    async def reset(self, session: str) -> None:
        await self._ask(*self._resetting(session))

    async def contents(self, session: str) -> Contents:
        return await self._ask(*self._reading(session))

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

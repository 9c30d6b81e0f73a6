"""The asyncio Redis shell: sends the steps, keeps to the outage policy; no rule is decided here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from loopfence.errors import StoreError
from loopfence.store.faults import FAILURES, corrupt, raised, translate
from loopfence.store.keys import session_of, session_pattern
from loopfence.store.scripts import Command, Commands, batched, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from loopfence.store.aio_links import AsyncLink
    from loopfence.store.outage import Outage
    from loopfence.store.tally import Call, Contents, Report, Tally

T = TypeVar("T")


class AsyncRedisStore:
    """Windows in Redis, through a redis.asyncio client."""

    def __init__(self, link: AsyncLink, commands: Commands, outage: Outage) -> None:
        self._link = link
        self._commands = commands
        self._outage = outage

    async def _ask(self, command: Command[T], instead: Callable[[], T]) -> T:
        if admitted := self._outage.admit():
            try:
                reply = command.parse(await self._link.send(command))
            except FAILURES as error:
                self._outage.failed(translate(error, command.keys[0]), admitted)
            except ValueError as error:
                self._outage.failed(corrupt(str(error), command.keys[0]), admitted)
            else:
                self._outage.succeeded()
                return reply
        else:
            self._outage.skipped()
        return instead()

    async def _ask_many(self, commands: list[Command[T]], instead: Callable[[int], T]) -> list[T]:
        admitted = self._outage.admit()
        if not admitted:
            self._outage.skipped()
            return [instead(index) for index in range(len(commands))]
        try:
            replies = await self._link.send_many(commands)
        except FAILURES as error:
            self._outage.failed(translate(error, commands[0].keys[0]), admitted)
            return [instead(index) for index in range(len(commands))]
        answers = []
        for index, (command, reply) in enumerate(zip(commands, replies, strict=True)):
            try:
                answers.append(command.parse(raised(reply)))
            except FAILURES as error:
                self._outage.failed(translate(error, command.keys[0]), admitted)
                answers.append(instead(index))
            except ValueError as error:
                self._outage.failed(corrupt(str(error), command.keys[0]), admitted)
                answers.append(instead(index))
            else:
                self._outage.succeeded()
        return answers

    async def record(self, call: Call) -> Tally:
        local = self._outage.local.record
        return await self._ask(self._commands.record(call), lambda: self._outage.tally(call, local))

    async def record_many(self, calls: list[Call]) -> list[Tally]:
        if len(calls) < 2 or any(call.bounds.exempt for call in calls):
            return [await self.record(call) for call in calls]
        tallies: list[Tally] = []
        for batch in batched(calls):
            commands = [self._commands.record(call) for call in batch]
            instead = partial(self._outage.tally_of, batch)
            tallies += await self._ask_many(commands, instead)
        return tallies

    async def peek(self, call: Call) -> Tally:
        local = self._outage.local.peek
        return await self._ask(self._commands.peek(call), lambda: self._outage.tally(call, local))

    async def report(self, report: Report) -> None:
        await self._ask(self._commands.report(report), lambda: self._outage.local.report(report))

    async def progress(self, session: str, owner: str, token: str) -> None:
        local = self._outage.local
        await self._ask(self._commands.progress(session, owner, token), lambda: local.progress(session, owner, token))

    async def halt(self, session: str, reason: str) -> None:
        await self._ask(self._commands.halt(session, reason), lambda: self._outage.local.halt(session, reason))

    async def resume(self, session: str) -> None:
        await self._ask(self._commands.resume(session), lambda: self._outage.local.resume(session))

    async def reset(self, session: str) -> None:
        await self._ask(self._commands.reset(session), lambda: self._outage.local.reset(session))

    async def contents(self, session: str) -> Contents:
        return await self._ask(self._commands.contents(session), lambda: self._outage.local.contents(session))

    async def sessions(self) -> AsyncIterator[str]:
        namespace = self._commands.namespace
        seen: set[str] = set()
        try:
            async for key in self._link.scan(session_pattern(namespace)):
                session = session_of(namespace, text_of(key))
                # SCAN may return a key twice, and a session has two keys that match.
                if session is not None and session not in seen:
                    seen.add(session)
                    yield session
        except FAILURES as error:
            raise translate(error, namespace) from None
        except ValueError as error:
            raise StoreError(str(error)) from None

    async def close(self) -> None:
        await self._link.close()

"""The asyncio Redis shell: sends the steps, keeps to the outage policy; no rule is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import redis.exceptions

from loopfence.errors import StoreError
from loopfence.store.connect import UNAVAILABLE, translate
from loopfence.store.keys import session_of, session_pattern
from loopfence.store.scripts import Command, Commands, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from loopfence.store.outage import Outage
    from loopfence.store.tally import Call, Contents, Report, Tally

T = TypeVar("T")


class AsyncRedisStore:
    """Windows in Redis, through a redis.asyncio client."""

    def __init__(self, client: Any, commands: Commands, outage: Outage, *, owned: bool) -> None:
        self._client = client
        self._commands = commands
        self._outage = outage
        self._owned = owned

    async def _send(self, command: Command[T]) -> T:
        arguments = (len(command.keys), *command.keys, *command.argv)
        try:
            try:
                reply = await self._client.execute_command("EVALSHA", command.script.sha, *arguments)
            except redis.exceptions.NoScriptError:
                reply = await self._client.execute_command("EVAL", command.script.text, *arguments)
        except (*UNAVAILABLE, redis.exceptions.RedisError) as error:
            raise translate(error) from None
        return command.parse(reply)

    async def _ask(self, command: Command[T], instead: Callable[[], T]) -> T:
        if self._outage.admit():
            try:
                reply = await self._send(command)
            except StoreError as error:
                self._outage.failed(error)
            else:
                self._outage.succeeded()
                return reply
        else:
            self._outage.skipped()
        return instead()

    async def record(self, call: Call) -> Tally:
        local = self._outage.local.record
        return await self._ask(self._commands.record(call), lambda: self._outage.tally(call, local))

    async def record_many(self, calls: list[Call]) -> list[Tally]:
        return [await self.record(call) for call in calls]

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
            async for key in self._client.scan_iter(match=session_pattern(namespace), count=1000):
                session = session_of(namespace, text_of(key))
                # SCAN may return a key twice, and a session has two keys that match.
                if session is not None and session not in seen:
                    seen.add(session)
                    yield session
        except (*UNAVAILABLE, redis.exceptions.RedisError) as error:
            raise translate(error) from None

    async def close(self) -> None:
        if self._owned:
            await self._client.aclose()

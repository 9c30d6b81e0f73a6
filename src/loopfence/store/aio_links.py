"""How a step reaches Redis on asyncio: one multiplexed connection an event loop, or a whole redis-py client."""

from __future__ import annotations

import asyncio
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import redis.exceptions

from loopfence.store.aio_wire import Wire
from loopfence.store.faults import FAILURES, as_failure
from loopfence.store.links import sentinel_pools
from loopfence.store.scripts import pack_in_order, pack_scan, pack_texts, scan_reply
from loopfence.store.tries import Tries

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from loopfence.store.scripts import Command, Packing


MAX_IN_FLIGHT = 50
"""Steps that share a redis-py pool at a time: its default of 100 connections raises when they run out."""


class AsyncLink(Protocol):
    """Sends steps and returns raw replies or, as values, the server's errors; raises redis-py's errors."""

    async def send(self, command: Command[Any]) -> Any: ...
    async def send_many(self, commands: list[Command[Any]]) -> list[Any]: ...
    def scan(self, pattern: str) -> AsyncIterator[Any]: ...
    async def close(self) -> None: ...


class AsyncClientLink:
    """Through a client's `execute_command`: the user's own client as it is, or a cluster's within the timeout.

    timeout -- seconds after which a step is not sent again, and after which a client of our own gives up.
    """

    def __init__(self, make: Callable[[], Any], timeout: float, *, owned: bool) -> None:
        self._make = make
        self._timeout = timeout
        self._owned = owned
        self._open: dict[asyncio.AbstractEventLoop, _OpenClient] = {}

    async def _client(self) -> _OpenClient:
        # A client of our own serves one loop only: its connections cannot move to another.
        loop = asyncio.get_running_loop()
        found = self._open.get(loop)
        if found is None:
            for closed in [other for other in self._open if other.is_closed()]:
                del self._open[closed]
            found = self._open[loop] = _OpenClient(self._make())
            if self._owned:
                await anext(found.life)
        return found

    async def send(self, command: Command[Any]) -> Any:
        found = await self._client()
        tries = Tries(time.monotonic() + self._timeout)
        async with asyncio.timeout(self._timeout if self._owned else None), found.places:
            while True:
                try:
                    return await self._attempt(found.client, command)
                except FAILURES as error:
                    await asyncio.sleep(tries.pause(error))

    @staticmethod
    async def _attempt(client: Any, command: Command[Any]) -> Any:
        try:
            return await client.execute_command(*command.arguments(by_sha=True))
        except redis.exceptions.NoScriptError:
            return await client.execute_command(*command.arguments(by_sha=False))
        except Exception as error:  # noqa: BLE001 - whatever the user's client raises, the agent goes on
            raise as_failure(error) from None

    async def send_many(self, commands: list[Command[Any]]) -> list[Any]:
        # A client may be a cluster, whose pipelines refuse scripts: one by one.
        return [await self.send(command) for command in commands]

    async def scan(self, pattern: str) -> AsyncIterator[Any]:
        found = await self._client()
        async for key in found.client.scan_iter(match=pattern, count=1000):
            yield key

    async def close(self) -> None:
        found = self._open.pop(asyncio.get_running_loop(), None)
        if found is not None and self._owned:
            await found.life.aclose()


class _OpenClient:
    """A client on its event loop."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.places = asyncio.Semaphore(MAX_IN_FLIGHT)
        self.life = self._live()
        """Started on the loop, it is ended by the loop's own shutdown: `asyncio.run` leaves no open connection."""

    async def _live(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self.client.aclose()


class AsyncWireLink:
    """One multiplexed connection an event loop: opened when needed, given up when it is lost."""

    def __init__(self, make_pool: Callable[[], Any], timeout: float) -> None:
        self._make_pool = make_pool
        self._timeout = timeout
        self._wires: dict[asyncio.AbstractEventLoop, asyncio.Task[Wire]] = {}
        self.users: weakref.WeakSet[SharedLink] = weakref.WeakSet()
        self._latest: Wire | None = None
        """The wire of the loop that asked last: most programs have one loop."""

    async def send(self, command: Command[Any]) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        (reply,) = await self._exchange(command.pack, 1, loop, deadline)
        if isinstance(reply, redis.exceptions.NoScriptError):
            (reply,) = await self._exchange(command.pack_text, 1, loop, deadline)
        return reply

    async def send_many(self, commands: list[Command[Any]]) -> list[Any]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        replies = await self._exchange(partial(pack_in_order, commands), len(commands), loop, deadline)
        late = [index for index, reply in enumerate(replies) if isinstance(reply, redis.exceptions.NoScriptError)]
        if late:
            pack = partial(pack_texts, [commands[index] for index in late])
            for index, reply in zip(late, await self._exchange(pack, len(late), loop, deadline), strict=True):
                replies[index] = reply
        return replies

    async def _exchange(self, pack: Packing, count: int, loop: asyncio.AbstractEventLoop, deadline: float) -> list[Any]:
        """A reply, or the server's error, for each of the `count` steps."""
        tries = None
        while True:
            try:
                wire = self._latest
                if wire is None or wire.loop is not loop or not wire.open:
                    wire = await self._opened(loop, deadline)
                return await wire.post(pack, count, deadline)
            except FAILURES as error:
                tries = tries or Tries(deadline)
                await asyncio.sleep(tries.pause(error))

    async def _opened(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Wire:
        """This loop's open wire, from now on the latest."""
        opening = self._wires.get(loop)
        if opening is None or (opening.done() and not _is_open(opening)):
            for ended in [other for other in list(self._wires) if other.is_closed()]:
                self._wires.pop(ended, None)
            opening = self._wires[loop] = loop.create_task(self._open())
            # Whoever waits sees the error; nobody may be left by then.
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        async with asyncio.timeout_at(deadline):
            wire = self._latest = await asyncio.shield(opening)
        return wire

    async def _open(self) -> Wire:
        # A pool for this connection alone: what sentinels it asks on the way must not outlive the event loop.
        pool = self._make_pool()
        connection = pool.connection_class(**{**pool.connection_kwargs, "socket_timeout": None})
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            for sentinels in sentinel_pools(pool):
                await sentinels.disconnect()
        return Wire(connection, self._timeout)

    async def scan(self, pattern: str) -> AsyncIterator[Any]:
        cursor = 0
        while True:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._timeout
            (reply,) = await self._exchange(partial(pack_scan, cursor, pattern), 1, loop, deadline)
            cursor, keys = scan_reply(reply)
            for key in keys:
                yield key
            if cursor == 0:
                return

    async def close(self) -> None:
        opening = self._wires.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                wire = opening.result()
                wire.fail(redis.exceptions.ConnectionError("the guard was closed"))
                await asyncio.wait([wire.life])


class SharedLink:
    """One guard's part in a link that all guards with the same URL share; its connection is closed with the last."""

    def __init__(self, link: AsyncWireLink) -> None:
        self._link = link
        link.users.add(self)
        self.send, self.send_many, self.scan = link.send, link.send_many, link.scan

    async def close(self) -> None:
        self._link.users.discard(self)
        if not self._link.users:
            await self._link.close()


def _is_open(opening: asyncio.Task[Wire]) -> bool:
    return not opening.cancelled() and opening.exception() is None and opening.result().open

"""How a step reaches Redis on asyncio: one multiplexed connection an event loop, or a whole redis-py client."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import redis.exceptions

from loopfence.store.faults import FAILURES, as_failure, too_many
from loopfence.store.links import sentinel_pools
from loopfence.store.replies import Replies
from loopfence.store.scripts import pack_in_order, pack_scan, pack_texts, scan_reply
from loopfence.store.tries import Tries

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
    from contextvars import Context

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


class _Exchange:
    """Steps that were sent together, and the one task that waits for all their replies.

    It is awaited like a Future, whose protocol it follows. But where it is the only one to be settled, its task goes on
    inside the callback that has read the replies. A Future would make it wait for the loop's next turn, which was
    measured at 9 of a record's 240 µs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, deadline: float) -> None:
        self.deadline = deadline
        self.missing = count
        self.replies: list[Any] = []
        self._error: BaseException | None = None
        self._loop = loop
        self._done = False
        self._wake: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._asyncio_future_blocking = False

    def settle(self, error: BaseException | None = None, *, at_once: bool = False) -> None:
        """Let the task go on, with the replies or with the error; does nothing where that was done before.

        at_once -- before this returns. The caller must not be a task itself.
        """
        if self._done:
            return
        self._done, self._error = True, error
        if self._wake is None or self._context is None:
            return
        if at_once:
            self._context.run(self._wake, self)
        else:
            self._loop.call_soon(self._wake, self, context=self._context)

    # What a task calls.

    def __await__(self) -> Generator[_Exchange, None, list[Any]]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context) -> None:
        self._wake, self._context = wake, context

    def result(self) -> list[Any]:
        if self._error is not None:
            raise self._error
        return self.replies

    def cancel(self, msg: Any = None) -> bool:
        if self._done:
            return False
        self.settle(asyncio.CancelledError(*[] if msg is None else [msg]))
        return True


class _Wire(asyncio.Protocol):
    """One open connection of one event loop. Steps go out whole; replies come back in the same order.

    An exchange that is cancelled leaves its place in the order to replies that nobody waits for.
    """

    def __init__(self, connection: Any, patience: float) -> None:
        self._connection = connection
        self._patience = patience
        """Seconds without any reply, while some are due, after which the connection is given up."""
        self.loop = asyncio.get_running_loop()
        self.known: set[str] = set()
        """The scripts that its server was sent."""
        self._replies = Replies()
        self._waiting: deque[_Exchange] = deque()
        self._due = 0
        """Replies that are still to come."""
        self._outbox: list[bytes] = []
        self._watch: asyncio.Handle | None = None
        self._watched = 0.0
        """When the watch goes off; uvloop's handle of a time that is (nearly) now does not know it."""
        self._heard = self.loop.time()
        self.open = True
        # redis-py's own connection has connected, secured and logged in; from then on what comes in comes here,
        # without the stream's buffer and the two tasks that wait for it.
        self._transport: asyncio.Transport = connection._writer.transport  # noqa: SLF001
        self._transport.set_protocol(self)
        self._closed: asyncio.Future[None] = self.loop.create_future()
        self.life = self.loop.create_task(self._live())
        """Started on the loop, it is ended by the loop's own shutdown: `asyncio.run` leaves no open connection."""

    def post(self, pack: Packing, count: int, deadline: float) -> _Exchange:
        """Send the `count` steps that `pack` packs; await what comes back for a reply, or the server's error, each."""
        data = pack(self.known)
        if self._waiting:
            # What is posted while others wait, in one turn of the loop, shares one write.
            if not self._outbox:
                self.loop.call_soon(self._flush)
            self._outbox.append(data)
        else:
            self._heard = self.loop.time()
            self._transport.write(data)
        exchange = _Exchange(self.loop, count, deadline)
        self._waiting.append(exchange)
        self._due += count
        if self._watch is None or deadline < self._watched:
            self._arm(deadline)
        return exchange

    def _flush(self) -> None:
        data = b"".join(self._outbox)
        self._outbox.clear()
        if self.open:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """What the transport calls: hand out the replies in `data`."""
        try:
            replies = self._replies.feed(data)
            if len(replies) > self._due:
                raise too_many()  # noqa: TRY301 - told as all else that may be wrong with an answer
        except Exception as error:  # noqa: BLE001 - what answers may be anything
            self.fail(as_failure(error))
            return
        self._due -= len(replies)
        whole = []
        for reply in replies:
            exchange = self._waiting[0]
            exchange.replies.append(reply)
            exchange.missing -= 1
            if not exchange.missing:
                whole.append(self._waiting.popleft())
        if self._waiting:
            self._heard = self.loop.time()
        for exchange in whole:
            exchange.settle(at_once=len(whole) == 1)

    def connection_lost(self, error: Exception | None) -> None:
        """What the transport calls at its end."""
        self.fail(redis.exceptions.ConnectionError(str(error or "the server closed the connection")))

    async def _live(self) -> None:
        try:
            await self._closed
        finally:
            self.fail(redis.exceptions.ConnectionError("the connection was closed"))
            await self._connection.disconnect(nowait=True)

    def _arm(self, deadline: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch, self._watched = self.loop.call_at(deadline, self._expire), deadline

    def _expire(self) -> None:
        self._watch = None
        if not self._waiting:
            return
        now = self.loop.time()
        if now - self._heard >= self._patience:
            self.fail(redis.exceptions.ConnectionError("no reply in time"))
            return
        # Replies do come, only not fast enough for all: whoever ran out of time goes, the connection stays.
        for exchange in self._waiting:
            if exchange.deadline <= now:
                exchange.settle(redis.exceptions.TimeoutError("no reply in time"))
        self._arm(min((each.deadline for each in self._waiting if each.deadline > now), default=now + self._patience))

    def fail(self, error: BaseException) -> None:
        """Give the connection up: who ran out of time gets a timeout, the others the error, and may try again."""
        self.open = False
        waiting, self._waiting, self._due = self._waiting, deque(), 0
        now = self.loop.time()
        for exchange in waiting:
            late = exchange.deadline <= now
            exchange.settle(redis.exceptions.TimeoutError("no reply in time") if late else error)
        if self._watch is not None:
            self._watch.cancel()
        if not self._closed.done():
            self._closed.set_result(None)


class AsyncWireLink:
    """One multiplexed connection an event loop: opened when needed, given up when it is lost."""

    def __init__(self, make_pool: Callable[[], Any], timeout: float) -> None:
        self._make_pool = make_pool
        self._timeout = timeout
        self._wires: dict[asyncio.AbstractEventLoop, asyncio.Task[_Wire]] = {}
        self.users: weakref.WeakSet[SharedLink] = weakref.WeakSet()
        self._latest: _Wire | None = None
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

    async def _opened(self, loop: asyncio.AbstractEventLoop, deadline: float) -> _Wire:
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

    async def _open(self) -> _Wire:
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
        return _Wire(connection, self._timeout)

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


def _is_open(opening: asyncio.Task[_Wire]) -> bool:
    return not opening.cancelled() and opening.exception() is None and opening.result().open

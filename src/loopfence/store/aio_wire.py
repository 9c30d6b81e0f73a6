"""One asyncio connection: steps go out, replies come back to the tasks that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import redis.exceptions

from loopfence.store.faults import as_failure, too_many
from loopfence.store.replies import Replies

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context

    from loopfence.store.scripts import Packing


class Exchange:
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
        self._task: tuple[Callable[[Any], object], Context] | None = None
        """How to wake the task that waits, and its context."""
        self._asyncio_future_blocking = False

    def settle(self, error: BaseException | None = None, *, at_once: bool = False) -> None:
        """Let the task go on, with the replies or with the error; does nothing where that was done before.

        at_once -- before this returns. The caller must not be a task itself.
        """
        if self._done:
            return
        self._done, self._error = True, error
        if self._task is None:
            return
        wake, context = self._task
        if at_once:
            context.run(wake, self)
        else:
            self._loop.call_soon(wake, self, context=context)

    # What a task calls.

    def __await__(self) -> Generator[Exchange, None, list[Any]]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context) -> None:
        self._task = wake, context

    def result(self) -> list[Any]:
        if self._error is not None:
            raise self._error
        return self.replies

    def cancel(self, msg: Any = None) -> bool:
        if self._done:
            return False
        self.settle(asyncio.CancelledError(*[] if msg is None else [msg]))
        return True


class Wire(asyncio.Protocol):
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
        self._waiting: deque[Exchange] = deque()
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

    def post(self, pack: Packing, count: int, deadline: float) -> Exchange:
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
        exchange = Exchange(self.loop, count, deadline)
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

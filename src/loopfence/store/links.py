"""How a step reaches Redis synchronously: a connection held by each thread, or a whole redis-py client."""

from __future__ import annotations

import os
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import redis.exceptions

from loopfence.store.bounded import keeping
from loopfence.store.faults import FAILURES, as_failure, too_many
from loopfence.store.replies import Replies
from loopfence.store.scripts import pack_in_order, pack_scan, pack_texts, scan_reply
from loopfence.store.tries import Tries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopfence.store.bounded import BoundedSocket
    from loopfence.store.scripts import Command, Packing


_READ = 65_536
"""Bytes that are taken from a socket at once."""


class Link(Protocol):
    """Sends steps and returns raw replies or, as values, the server's errors; raises redis-py's errors."""

    def send(self, command: Command[Any]) -> Any: ...
    def send_many(self, commands: list[Command[Any]]) -> list[Any]: ...
    def scan(self, pattern: str) -> Iterator[Any]: ...
    def close(self) -> None: ...


def sentinel_pools(pool: Any) -> list[Any]:
    """The connection pools of the sentinels that a pool asks for its master; none for other pools."""
    manager = getattr(pool, "sentinel_manager", None)
    return [] if manager is None else [sentinel.connection_pool for sentinel in manager.sentinels]


class ClientLink:
    """Through a client's `execute_command`, as it is: the user's own client, or a cluster's.

    timeout -- seconds after which a step is not sent again. What bounds a single try is the client's business: the
    user's own client has its own timeouts and retries, ours keeps to the deadline.
    """

    def __init__(self, client: Any, timeout: float, *, owned: bool) -> None:
        self._client = client
        self._timeout = timeout
        self._owned = owned

    def send(self, command: Command[Any]) -> Any:
        until = time.monotonic() + self._timeout
        tries = Tries(until)
        with keeping(until):
            while True:
                try:
                    return self._attempt(command)
                except FAILURES as error:
                    time.sleep(tries.pause(error))

    def _attempt(self, command: Command[Any]) -> Any:
        try:
            return self._client.execute_command(*command.arguments(by_sha=True))
        except redis.exceptions.NoScriptError:
            return self._client.execute_command(*command.arguments(by_sha=False))
        except Exception as error:  # noqa: BLE001 - whatever the user's client raises, the agent goes on
            raise as_failure(error) from None

    def send_many(self, commands: list[Command[Any]]) -> list[Any]:
        # A client may be a cluster, whose pipelines refuse scripts: one by one.
        return [self.send(command) for command in commands]

    def scan(self, pattern: str) -> Iterator[Any]:
        found: Iterator[Any] = self._client.scan_iter(match=pattern, count=1000)
        return found

    def close(self) -> None:
        if self._owned:
            self._client.close()


class _Wire:
    """One thread's connection: packed steps out, replies in."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.known: set[str] = set()
        """The scripts that its server was sent."""
        self._replies = Replies()
        self._sock: BoundedSocket | None = None
        """What redis-py's own connection has connected, secured and logged in; from then on it is ours."""

    def exchange(self, pack: Packing, count: int, until: float) -> list[Any]:
        """The replies, or the server's errors, to the `count` steps that `pack` packs."""
        try:
            sock = self._sock or self._connected(until)
            data = pack(self.known)
            sock.hurry(until - time.monotonic())
            sock.plain.sendall(data)
            sock.hurry(until - time.monotonic())
            replies = self._replies.feed(sock.plain.recv(_READ))
            while len(replies) < count:
                sock.hurry(until - time.monotonic())
                replies += self._replies.feed(sock.plain.recv(_READ))
            if len(replies) > count:
                raise too_many()  # noqa: TRY301 - told as all else that may be wrong with an answer
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self.close()
            raise as_failure(error) from None
        return replies

    def _connected(self, until: float) -> BoundedSocket:
        with keeping(until):
            self.connection.connect()
        sock: BoundedSocket = self.connection._sock  # noqa: SLF001 - redis-py has no other way to it
        self._sock = sock
        return sock

    def close(self) -> None:
        """Let go of the connection: a reply that comes late must never be taken for the next step's."""
        self.connection.disconnect()
        self._sock = None
        self._replies = Replies()
        self.known.clear()


_links: weakref.WeakSet[WireLink] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for link in _links:
        link.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)


class WireLink:
    """One connection a thread, held: each step is done within one deadline."""

    def __init__(self, pool: Any, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._mine = threading.local()
        self._all: weakref.WeakSet[_Wire] = weakref.WeakSet()
        _links.add(self)

    def leave_to_parent(self) -> None:
        """What a forked child does: the connections are its parent's."""
        self._mine = threading.local()

    def send(self, command: Command[Any]) -> Any:
        until = time.monotonic() + self._timeout
        (reply,) = self._exchange(command.pack, 1, until)
        if isinstance(reply, redis.exceptions.NoScriptError):
            (reply,) = self._exchange(command.pack_text, 1, until)
        return reply

    def send_many(self, commands: list[Command[Any]]) -> list[Any]:
        until = time.monotonic() + self._timeout
        replies = self._exchange(partial(pack_in_order, commands), len(commands), until)
        late = [index for index, reply in enumerate(replies) if isinstance(reply, redis.exceptions.NoScriptError)]
        if late:
            again = self._exchange(partial(pack_texts, [commands[index] for index in late]), len(late), until)
            for index, reply in zip(late, again, strict=True):
                replies[index] = reply
        return replies

    def _exchange(self, pack: Packing, count: int, until: float) -> list[Any]:
        """A reply, or the server's error, for each of the `count` steps."""
        try:
            wire: _Wire = self._mine.wire
        except AttributeError:
            # Made from the pool's settings, and not of the pool: those run out.
            wire = self._mine.wire = _Wire(self._pool.connection_class(**self._pool.connection_kwargs))
            self._all.add(wire)
        tries = None
        while True:
            try:
                return wire.exchange(pack, count, until)
            except FAILURES as error:
                tries = tries or Tries(until)
                time.sleep(tries.pause(error))

    def scan(self, pattern: str) -> Iterator[Any]:
        cursor = 0
        while True:
            until = time.monotonic() + self._timeout
            (reply,) = self._exchange(partial(pack_scan, cursor, pattern), 1, until)
            cursor, keys = scan_reply(reply)
            yield from keys
            if cursor == 0:
                return

    def close(self) -> None:
        for wire in list(self._all):
            wire.close()
        for sentinels in sentinel_pools(self._pool):
            sentinels.disconnect()

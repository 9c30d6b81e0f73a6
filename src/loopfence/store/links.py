"""How a step reaches Redis synchronously: a connection held by each thread, or a whole redis-py client."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

import redis.exceptions

from loopfence.store.bounded import clear_deadline, set_deadline
from loopfence.store.scripts import scan_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loopfence.store.scripts import Command

LOST = (redis.exceptions.ConnectionError, OSError)


class Link(Protocol):
    """Sends steps and returns raw replies; raises redis-py's errors."""

    def send(self, command: Command[Any]) -> Any: ...
    def send_many(self, commands: list[Command[Any]]) -> list[Any]: ...
    def scan(self, pattern: str) -> Iterator[Any]: ...
    def close(self) -> None: ...


class ClientLink:
    """Through a client's `execute_command`, as it is: the user's own client, or a cluster."""

    def __init__(self, make: Callable[[], Any], *, timeout: float | None, owned: bool) -> None:
        self._make = make
        self._made: Any = None
        self._lock = threading.Lock()
        self._timeout = timeout
        """Seconds for one step; None = the client is the user's, and so are its timeouts."""
        self._owned = owned

    def _client(self) -> Any:
        if self._made is None:
            with self._lock:
                # A cluster client connects when it is made: late, so that making a guard does no I/O.
                self._made = self._made or self._make()
        return self._made

    def send(self, command: Command[Any]) -> Any:
        if self._timeout is not None:
            set_deadline(self._timeout)
        try:
            client = self._client()
            try:
                return client.execute_command(*command.arguments(by_sha=True))
            except redis.exceptions.NoScriptError:
                return client.execute_command(*command.arguments(by_sha=False))
        finally:
            clear_deadline()

    def send_many(self, commands: list[Command[Any]]) -> list[Any]:
        # A client may be a cluster, whose pipelines refuse scripts: one by one.
        return [self.send(command) for command in commands]

    def scan(self, pattern: str) -> Iterator[Any]:
        found: Iterator[Any] = self._client().scan_iter(match=pattern, count=1000)
        return found

    def close(self) -> None:
        if self._owned and self._made is not None:
            self._made.close()


class WireLink:
    """One connection a thread, held: packed bytes out, the reply in, all within one deadline a step."""

    def __init__(self, pool: Any, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._mine = threading.local()
        self._all: weakref.WeakSet[Any] = weakref.WeakSet()

    def _connection(self) -> Any:
        mine = self._mine
        pid = os.getpid()
        if getattr(mine, "pid", None) != pid:
            # Also after a fork: the parent's connection is the parent's.
            # Made from the pool's settings, and not of the pool: those run out.
            mine.pid, mine.connection = pid, self._pool.connection_class(**self._pool.connection_kwargs)
            self._all.add(mine.connection)
        return mine.connection

    def send(self, command: Command[Any]) -> Any:
        set_deadline(self._timeout)
        try:
            (reply,) = self._exchange([command.pack()])
            if isinstance(reply, redis.exceptions.NoScriptError):
                (reply,) = self._exchange([command.pack_text()])
        finally:
            clear_deadline()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def send_many(self, commands: list[Command[Any]]) -> list[Any]:
        set_deadline(self._timeout)
        try:
            replies = self._exchange([command.pack() for command in commands])
            for index, reply in enumerate(replies):
                if isinstance(reply, redis.exceptions.NoScriptError):
                    (replies[index],) = self._exchange([commands[index].pack_text()])
        finally:
            clear_deadline()
        return replies

    def _exchange(self, packed: list[bytes]) -> list[Any]:
        """A reply (or the server's error) for each; a lost connection is tried once more.

        Sending again is safe: every step carries the id that makes it count once.
        """
        connection = self._connection()
        data = packed[0] if len(packed) == 1 else b"".join(packed)
        try:
            return self._attempt(connection, data, len(packed))
        except redis.exceptions.TimeoutError:
            raise
        except LOST:
            return self._attempt(connection, data, len(packed))

    @staticmethod
    def _attempt(connection: Any, data: bytes, count: int) -> list[Any]:
        replies: list[Any] = []
        try:
            connection.connect()
            connection.send_packed_command((data,), check_health=False)
            while len(replies) < count:
                try:
                    replies.append(connection.read_response())
                except redis.exceptions.ResponseError as error:
                    replies.append(error)
        except BaseException:
            # A reply that comes late must never be taken for the next step's.
            connection.disconnect()
            raise
        return replies

    def scan(self, pattern: str) -> Iterator[Any]:
        cursor: Any = b"0"
        while True:
            set_deadline(self._timeout)
            try:
                (reply,) = self._exchange([scan_step(cursor, pattern)])
            finally:
                clear_deadline()
            if isinstance(reply, Exception):
                raise reply
            cursor, keys = reply
            yield from keys
            if int(cursor) == 0:
                return

    def close(self) -> None:
        for connection in list(self._all):
            connection.disconnect()

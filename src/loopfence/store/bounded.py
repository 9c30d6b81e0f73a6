"""redis-py connections that keep to one deadline: whatever a step does on the wire ends by then."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ssl import SSLContext

_NO_DEADLINE = float("inf")


class _Deadline(threading.local):
    """When the step that this thread is in must be over, by the monotonic clock."""

    at = _NO_DEADLINE
    share = 1.0


_deadline = _Deadline()


@contextmanager
def keeping(until: float) -> Iterator[None]:
    """This thread's bounded connections give up at `until`, by the monotonic clock, whatever they are about."""
    _deadline.at = until
    try:
        yield
    finally:
        _deadline.at = _NO_DEADLINE


def _some(left: float) -> float:
    """Seconds that are left; TimeoutError where none are: redis-py closes the socket on it and raises its own."""
    if left <= 0:
        raise TimeoutError("the step's time is up")
    return left


def _remaining(most: float | None) -> float | None:
    at = _deadline.at
    if at == _NO_DEADLINE:
        return most
    left = _some((at - time.monotonic()) * _deadline.share)
    return left if most is None else min(left, most)


@contextmanager
def hurrying() -> Iterator[None]:
    """Wait for half of the time that is left, each time: there may be somebody else to ask."""
    _deadline.share = 0.5
    try:
        yield
    finally:
        _deadline.share = 1.0


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold the lock; TimeoutError where the deadline comes first."""
    left = _remaining(None)
    if not lock.acquire(timeout=-1 if left is None else left):
        raise TimeoutError("the step's time is up")
    try:
        yield
    finally:
        lock.release()


class BoundedSocket:
    """A socket whose every read and write ends by the deadline, however slowly the bytes come."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        """The socket itself: who calls `hurry` before each read and write may use it."""
        self._timeout = self._set = plain.gettimeout()

    def hurry(self, left: float | None) -> None:
        """The next read or write gives up after `left` seconds; TimeoutError where none are left."""
        # Setting a timeout costs more than 10 ms are worth.
        if left is None or self._set is None or not 0 <= self._set - left < 0.01:
            self.plain.settimeout(left if left is None else _some(left))
            self._set = left

    def recv(self, size: int) -> Any:
        self.hurry(_remaining(self._timeout))
        return self.plain.recv(size)

    def recv_into(self, buffer: Any) -> Any:
        self.hurry(_remaining(self._timeout))
        return self.plain.recv_into(buffer)

    def sendall(self, data: Any) -> None:
        self.hurry(_remaining(self._timeout))
        self.plain.sendall(data)

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = self._set = timeout
        self.plain.settimeout(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


@lru_cache(maxsize=16)
def bounded(connection_class: Any, context: SSLContext | None = None) -> Any:
    """The connection class with its connecting, TLS, handshake, reads and writes under the deadline.

    context -- the TLS context that all its connections share.
    """

    class Bounded(connection_class):  # type: ignore[misc]  # the class is only known at run time
        @property
        def socket_connect_timeout(self) -> float | None:
            return _remaining(self._socket_connect_timeout)

        @socket_connect_timeout.setter
        def socket_connect_timeout(self, value: float | None) -> None:
            self._socket_connect_timeout = value

        def _connect(self) -> Any:
            return BoundedSocket(super()._connect())

        def _wrap_socket_with_ssl(self, sock: Any) -> Any:
            sock.settimeout(_remaining(sock.gettimeout()))
            if context is None:
                return super()._wrap_socket_with_ssl(sock)
            return context.wrap_socket(sock, server_hostname=self.host)

    return Bounded

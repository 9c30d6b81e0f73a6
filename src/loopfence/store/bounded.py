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


def set_deadline(seconds: float) -> float:
    """From now on, this thread's bounded connections give up after `seconds`; the moment by the monotonic clock."""
    _deadline.at = time.monotonic() + seconds
    return _deadline.at


def clear_deadline() -> None:
    """This thread's bounded connections wait as their own settings say."""
    _deadline.at = _NO_DEADLINE


def _remaining(most: float | None) -> float | None:
    at = _deadline.at
    if at == _NO_DEADLINE:
        return most
    left = (at - time.monotonic()) * _deadline.share
    if left <= 0:
        # redis-py closes the socket on it and raises its own TimeoutError.
        raise TimeoutError("the step's time is up")
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


class _BoundedSocket:
    """A socket whose every read and write ends by the deadline, however slowly the bytes come."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._timeout = self._set = sock.gettimeout()

    def _hurry(self) -> None:
        left = _remaining(self._timeout)
        # Setting a timeout costs more than 10 ms are worth.
        if left is None or self._set is None or not 0 <= self._set - left < 0.01:
            self._sock.settimeout(left)
            self._set = left

    def recv(self, size: int) -> Any:
        self._hurry()
        return self._sock.recv(size)

    def recv_into(self, buffer: Any) -> Any:
        self._hurry()
        return self._sock.recv_into(buffer)

    def sendall(self, data: Any) -> None:
        self._hurry()
        self._sock.sendall(data)

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = self._set = timeout
        self._sock.settimeout(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


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
            return _BoundedSocket(super()._connect())

        def _wrap_socket_with_ssl(self, sock: Any) -> Any:
            sock.settimeout(_remaining(sock.gettimeout()))
            if context is None:
                return super()._wrap_socket_with_ssl(sock)
            return context.wrap_socket(sock, server_hostname=self.host)

    return Bounded

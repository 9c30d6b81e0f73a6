"""redis-py connections that keep to one deadline: whatever a step does on the wire ends by then."""

from __future__ import annotations

import threading
import time
from functools import lru_cache
from typing import Any

_NO_DEADLINE = float("inf")


class _Deadline(threading.local):
    """When the step that this thread is in must be over, by the monotonic clock."""

    at = _NO_DEADLINE


_deadline = _Deadline()


def set_deadline(seconds: float) -> float:
    """From now on, this thread's bounded connections give up after `seconds`; the moment by the monotonic clock."""
    _deadline.at = time.monotonic() + seconds
    return _deadline.at


def clear_deadline() -> None:
    """This thread's bounded connections wait as their own settings say."""
    _deadline.at = _NO_DEADLINE


def _remaining(most: float | None) -> float | None:
    if _deadline.at == _NO_DEADLINE:
        return most
    left = _deadline.at - time.monotonic()
    if left <= 0:
        # redis-py closes the socket on it and raises its own TimeoutError.
        raise TimeoutError("the step's time is up")
    return left if most is None else min(left, most)


class _BoundedSocket:
    """A socket whose every read and write ends by the deadline, however slowly the bytes come."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._timeout = sock.gettimeout()

    def _hurry(self) -> None:
        self._sock.settimeout(_remaining(self._timeout))

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
        self._timeout = timeout
        self._sock.settimeout(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@lru_cache(maxsize=16)
def bounded(connection_class: Any) -> Any:
    """The connection class with its connecting, TLS, handshake, reads and writes under the deadline."""

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
            return super()._wrap_socket_with_ssl(sock)

    return Bounded

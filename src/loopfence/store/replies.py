"""What a server answers, sans-IO: takes bytes as they come and gives back whole replies."""

from __future__ import annotations

from typing import Any

import redis.exceptions
from redis._parsers.base import BaseParser

_TEXT, _NUMBER, _STATUS, _ERROR, _NOTHING, _LIST, _PUSH = b"$:+-_*>"


class Replies:
    """The replies on one connection: RESP2, and as much of RESP3 as scripts and SCAN are answered with.

    redis-py's own readers wait for the socket in the middle of a reply, on asyncio by way of two tasks; this one never
    waits. A text is bytes, nothing is None, and a server's refusal is redis-py's error for it, as a value.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._open: list[tuple[int, list[Any], int]] = []
        """The lists that are not whole yet, outermost first: kind, items so far, how many there will be."""

    def feed(self, data: bytes) -> list[Any]:
        """The replies that are whole with `data`.

        Raises redis-py's ConnectionError where the connection has come to its end, ValueError for what is no reply.
        """
        if not data:
            raise redis.exceptions.ConnectionError("the server closed the connection")
        if self._rest:
            data = self._rest + data
        replies: list[Any] = []
        at = 0
        while (line := data.find(b"\r\n", at)) >= 0:
            kind, head, after = data[at], data[at + 1 : line], line + 2
            if kind == _TEXT and (size := int(head)) >= 0:
                end = after + size
                if len(data) < end + 2:
                    break
                if self._open:
                    self._add(data[after:end], replies)
                else:
                    replies.append(data[after:end])
                after = end + 2
            elif kind in (_LIST, _PUSH) and (size := int(head)) > 0:
                self._open.append((kind, [], size))
            else:
                self._add(_line(kind, head), replies)
            at = after
        self._rest = data[at:]
        return replies

    def _add(self, item: Any, replies: list[Any]) -> None:
        """Put an item where it belongs, and each list that is whole with it."""
        while self._open:
            kind, items, size = self._open[-1]
            items.append(item)
            if len(items) < size:
                return
            self._open.pop()
            if kind == _PUSH:  # what a RESP3 server says unasked is no reply
                return
            item = items
        replies.append(item)


def _line(kind: int, head: bytes) -> Any:
    """A reply that is one line."""
    if kind == _NUMBER:
        return int(head)
    if kind == _STATUS:
        return head
    if kind == _ERROR:
        error = BaseParser.parse_error(head.decode("utf-8", "replace"))  # type: ignore[no-untyped-call]
        if isinstance(error, redis.exceptions.ConnectionError):
            raise error
        return error
    if kind == _NOTHING or (kind in (_TEXT, _LIST) and int(head) < 0):
        return None
    if kind == _LIST:
        return []
    raise ValueError(f"no reply begins with {chr(kind)!r}")

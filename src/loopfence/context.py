"""The session of the code that runs now: a context variable that adapters and the tool decorator read."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_current: ContextVar[str | None] = ContextVar("loopfence_session", default=None)


@contextmanager
def session(session_id: str) -> Iterator[str]:
    """Name the session for everything inside the `with` block, tasks started in it included.

    It does not cross threads or job queues by itself: hand the id over and open the block again there.
    """
    token = _current.set(session_id)
    try:
        yield session_id
    finally:
        _current.reset(token)


def current_session() -> str | None:
    """The id of the innermost `with session(id)` block, or None outside of any."""
    return _current.get()

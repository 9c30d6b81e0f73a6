"""Settings -> store; redis-py and all that only Redis needs are imported with the first Redis URL or client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loopfence.store.memory import AsyncMemoryStore, MemoryStore, Space, named_space

if TYPE_CHECKING:
    from loopfence.settings import Settings
    from loopfence.store.outage import Outage
    from loopfence.store.scripts import Commands
    from loopfence.store.tally import AsyncStore, Store


def space_of(settings: Settings) -> Space | None:
    """The sessions of a `memory://` URL, shared by name; None for Redis."""
    return named_space(settings.url.removeprefix("memory://")) if settings.in_memory else None


def open_store(settings: Settings, space: Space | None) -> Store:
    """The synchronous store for these settings; connects later."""
    if space is not None:
        return _memory(settings, space)
    from loopfence.store.connect import open_link
    from loopfence.store.sync import RedisStore

    return RedisStore(open_link(settings), *_around(settings))


def open_async_store(settings: Settings, space: Space | None) -> AsyncStore:
    """The awaitable store for these settings; connects later."""
    if space is not None:
        return AsyncMemoryStore(_memory(settings, space))
    from loopfence.store.aio import AsyncRedisStore
    from loopfence.store.connect import open_async_link

    return AsyncRedisStore(open_async_link(settings), *_around(settings))


def _memory(settings: Settings, space: Space) -> MemoryStore:
    clock = settings.clock or time.time
    return MemoryStore(space, namespace=settings.namespace, ttl=settings.ttl_ms, clock=clock)


def _around(settings: Settings) -> tuple[Commands, Outage]:
    """What stands around a link: the steps of the namespace, and the window for when Redis is out."""
    from loopfence.store.outage import Outage
    from loopfence.store.scripts import Commands

    local = MemoryStore(namespace=settings.namespace, ttl=settings.ttl_ms, source="local")
    return Commands(settings.namespace, settings.ttl_ms), Outage(settings.on_outage, local)

"""Settings -> store; redis-py is imported here, with the first Redis URL or client, and not before."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

from loopfence.errors import ConfigError
from loopfence.store.memory import AsyncMemoryStore, MemoryStore, Space, named_space
from loopfence.store.outage import Outage
from loopfence.store.scripts import Commands

if TYPE_CHECKING:
    from loopfence.settings import Settings
    from loopfence.store.tally import AsyncStore, Store


def space_of(settings: Settings) -> Space | None:
    """The sessions of a `memory://` URL, shared by name; None for Redis."""
    return named_space(settings.url.removeprefix("memory://")) if settings.in_memory else None


def open_store(settings: Settings, space: Space | None) -> Store:
    """The synchronous store for these settings; connects later."""
    if space is not None:
        return _memory(settings, space)
    from loopfence.store.sync import RedisStore

    return RedisStore(*_parts(settings, asynchronous=False), owned=settings.client is None)


def open_async_store(settings: Settings, space: Space | None) -> AsyncStore:
    """The awaitable store for these settings; connects later."""
    if space is not None:
        return AsyncMemoryStore(_memory(settings, space))
    from loopfence.store.aio import AsyncRedisStore

    return AsyncRedisStore(*_parts(settings, asynchronous=True), owned=settings.client is None)


def _memory(settings: Settings, space: Space) -> MemoryStore:
    clock = settings.clock or time.time
    return MemoryStore(space, namespace=settings.namespace, ttl=settings.ttl_ms, clock=clock)


def _parts(settings: Settings, *, asynchronous: bool) -> tuple[Any, Commands, Outage]:
    from loopfence.store.connect import connect

    client = settings.client
    if client is None:
        client = connect(settings.url, settings.timeout, asynchronous=asynchronous)
    elif not hasattr(client, "execute_command"):
        raise ConfigError(f"client must be a redis-py client (got {type(client).__name__})")
    elif inspect.iscoroutinefunction(client.execute_command) is not asynchronous:
        kind, twin = ("an asyncio", "LoopGuard") if asynchronous else ("a synchronous", "AsyncLoopGuard")
        raise ConfigError(f"client must be {kind} redis-py client here; give this one to {twin}")
    local = MemoryStore(namespace=settings.namespace, ttl=settings.ttl_ms, source="local")
    return client, Commands(settings.namespace, settings.ttl_ms), Outage(settings.on_outage, local)

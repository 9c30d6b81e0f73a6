"""URL -> link; the one place that knows redis-py's constructors and options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.backoff import ConstantBackoff, NoBackoff

from loopfence.errors import ConfigError

if TYPE_CHECKING:
    from loopfence.settings import Settings
    from loopfence.store.aio_links import AsyncLink
    from loopfence.store.links import Link


def open_link(settings: Settings) -> Link:
    """The way to Redis for a LoopGuard; connects later. ConfigError where URL or client are wrong."""
    from loopfence.store.bounded import bounded
    from loopfence.store.links import ClientLink, WireLink

    if settings.client is not None:
        client = _checked(settings.client, asynchronous=False)
        return ClientLink(lambda: client, timeout=None, owned=False)
    if settings.url.startswith("redis+cluster://"):
        make = _cluster(settings)
        return ClientLink(make, timeout=settings.timeout, owned=True)
    client = _client(settings, asynchronous=False)
    pools = [client.connection_pool]
    if hasattr(pools[0], "sentinel_manager"):
        pools += [sentinel.connection_pool for sentinel in pools[0].sentinel_manager.sentinels]
    for pool in pools:
        pool.connection_class = bounded(pool.connection_class)
    return WireLink(client.connection_pool, settings.timeout)


def open_async_link(settings: Settings) -> AsyncLink:
    """The same for an AsyncLoopGuard."""
    from loopfence.store.aio_links import AsyncClientLink, AsyncWireLink

    if settings.client is not None:
        client = _checked(settings.client, asynchronous=True)
        return AsyncClientLink(lambda: client, timeout=None, owned=False)
    if settings.url.startswith("redis+cluster://"):
        return AsyncClientLink(_async_cluster(settings), timeout=settings.timeout, owned=True)
    return AsyncWireLink(_client(settings, asynchronous=True).connection_pool, settings.timeout)


def _checked(client: Any, *, asynchronous: bool) -> Any:
    if not hasattr(client, "execute_command"):
        raise ConfigError(f"client must be a redis-py client (got {type(client).__name__})")
    if inspect.iscoroutinefunction(client.execute_command) is not asynchronous:
        kind, twin = ("an asyncio", "LoopGuard") if asynchronous else ("a synchronous", "AsyncLoopGuard")
        raise ConfigError(f"client must be {kind} redis-py client here; give this one to {twin}")
    return client


def _options(settings: Settings, *, asynchronous: bool) -> dict[str, Any]:
    """What every client of ours gets: our timeout, nothing re-sent behind our back, no chatter when connecting."""
    from redis.asyncio.retry import Retry as AsyncRetry
    from redis.retry import Retry

    retry: Any = AsyncRetry if asynchronous else Retry
    timeout = settings.timeout
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }


def _client(settings: Settings, *, asynchronous: bool) -> Any:
    """A client for redis://, rediss://, unix:// or redis+sentinel://; making it does no I/O."""
    url = settings.url
    options = _options(settings, asynchronous=asynchronous)
    try:
        if url.startswith("redis+sentinel://"):
            client = _sentinel(url, options, asynchronous=asynchronous)
        else:
            kind: Any = redis.asyncio.Redis if asynchronous else redis.Redis
            client = kind.from_url(url, **options)
        # Unknown options only show when a connection is made; that does no I/O either.
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"url: {_reason(error)}") from None
    return client


def _reason(error: Exception) -> str:
    """What is wrong, in words that hold no URL: it may hold a password."""
    text = str(error)
    if "unexpected keyword argument" in text:
        return f"neither loopfence nor redis-py knows the query field {text.rsplit(' ', 1)[-1]}"
    return text if text.startswith("Invalid value for") else "it is no valid Redis URL"


def _endpoints(netloc: str, default_port: int) -> tuple[list[tuple[str, int]], dict[str, str]]:
    credentials, _, hosts = netloc.rpartition("@")
    found = []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, str(default_port)
        if not name or not port.isdigit():
            raise ConfigError(f"url: {host[:80]!r} is no host:port")
        found.append((name.strip("[]"), int(port)))
    user, _, password = credentials.partition(":")
    named = {"username": unquote(user), "password": unquote(password)}
    return found, {name: value for name, value in named.items() if value}


def _query(query: str) -> dict[str, Any]:
    """Query fields with the types that redis-py's own parser gives them."""
    from redis.connection import parse_url

    parse: Any = parse_url
    found: dict[str, Any] = parse(f"redis://localhost?{query}")
    found.pop("host", None)
    return found


def _sentinel(url: str, options: dict[str, Any], *, asynchronous: bool) -> Any:
    parts = urlsplit(url)
    endpoints, credentials = _endpoints(parts.netloc, 26379)
    service, _, db = parts.path.strip("/").partition("/")
    if not service or (db and not db.isdigit()):
        raise ConfigError("url: redis+sentinel:// is followed by host:port,host:port/service or …/service/db")
    sentinel: Any
    if asynchronous:
        from redis.asyncio.sentinel import Sentinel as sentinel  # noqa: N813
    else:
        from redis.sentinel import Sentinel as sentinel  # noqa: N813
    master = {**options, **credentials, **_query(parts.query), "db": int(db or 0)}
    return sentinel(endpoints, sentinel_kwargs=dict(options)).master_for(service, **master)


def _cluster_options(settings: Settings, *, asynchronous: bool) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    parts = urlsplit(settings.url)
    endpoints, credentials = _endpoints(parts.netloc, 6379)
    try:
        options = {**_options(settings, asynchronous=asynchronous), **credentials, **_query(parts.query)}
    except ValueError as error:
        raise ConfigError(f"url: {_reason(error)}") from None
    # While a slot moves or a replica takes over, asking again soon is right; our timeout bounds it.
    options["retry"] = type(options["retry"])(ConstantBackoff(0.02), 10)
    return endpoints, options


def _cluster(settings: Settings) -> Any:
    from functools import partial

    from redis.cluster import ClusterNode, RedisCluster
    from redis.connection import Connection, ConnectionPool

    from loopfence.store.bounded import bounded

    endpoints, options = _cluster_options(settings, asynchronous=False)
    pool = partial(ConnectionPool, connection_class=bounded(Connection))
    node: Any = ClusterNode

    def make() -> Any:
        host, port = endpoints[0]
        return RedisCluster(
            url=f"redis://{host}:{port}",
            startup_nodes=[node(*endpoint) for endpoint in endpoints],
            connection_pool_class=pool,
            **options,
        )

    return make


def _async_cluster(settings: Settings) -> Any:
    from redis.asyncio.cluster import ClusterNode, RedisCluster

    endpoints, options = _cluster_options(settings, asynchronous=True)
    return lambda: RedisCluster(startup_nodes=[ClusterNode(*endpoint) for endpoint in endpoints], **options)

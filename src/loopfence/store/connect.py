"""URL -> link; the one place that knows redis-py's constructors and options."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import redis
import redis.asyncio
from redis.backoff import NoBackoff

from loopfence.errors import ConfigError
from loopfence.store.bounded import bounded
from loopfence.store.cluster import AsyncClusterClient, ClusterClient, node_connection
from loopfence.store.tls import context_of, with_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ssl import SSLContext

    from loopfence.settings import Settings
    from loopfence.store.aio_links import AsyncLink, AsyncWireLink
    from loopfence.store.links import Link

_CONNECTION_OPTIONS = inspect.signature(redis.connection.AbstractConnection).parameters
# What keeps redis-py from telling its name and version when it connects; older releases spell it otherwise.
_UNNAMED = dict.fromkeys({"driver_info"} & set(_CONNECTION_OPTIONS) or {"lib_name", "lib_version"})
MAX_CONNECTIONS = 10_000
"""For one node of a cluster; redis-py's default of 100 raises when as many threads call at a time."""


_shared: WeakValueDictionary[tuple[str, float], AsyncWireLink] = WeakValueDictionary()
"""The asyncio links in use, by URL and timeout."""


def open_link(settings: Settings) -> Link:
    """The way to Redis for a LoopGuard; connects later. ConfigError where URL or client are wrong."""
    from loopfence.store.links import ClientLink, WireLink, sentinel_pools

    if settings.client is not None:
        client = _checked(settings.client, asynchronous=False)
        return ClientLink(client, settings.timeout, owned=False)
    if settings.url.startswith("redis+cluster://"):
        return ClientLink(_cluster(settings, asynchronous=False)(), settings.timeout, owned=True)
    pool = _client(settings, asynchronous=False).connection_pool
    for each in (pool, *sentinel_pools(pool)):
        each.connection_class = bounded(each.connection_class, _context(each))
    return WireLink(pool, settings.timeout)


def open_async_link(settings: Settings) -> AsyncLink:
    """The same for an AsyncLoopGuard."""
    from loopfence.store.aio_links import AsyncClientLink, AsyncWireLink, SharedLink

    if settings.client is not None:
        client = _checked(settings.client, asynchronous=True)
        return AsyncClientLink(lambda: client, settings.timeout, owned=False)
    if settings.url.startswith("redis+cluster://"):
        return AsyncClientLink(_cluster(settings, asynchronous=True), settings.timeout, owned=True)

    key = settings.url, settings.timeout
    if (link := _shared.get(key)) is not None:
        return SharedLink(link)
    context = _context(_client(settings, asynchronous=True).connection_pool)

    def make_pool() -> Any:
        pool = _client(settings, asynchronous=True).connection_pool
        if context is not None:
            pool.connection_class = with_context(pool.connection_class, context)
        return pool

    link = _shared[key] = AsyncWireLink(make_pool, settings.timeout)
    return SharedLink(link)


@contextmanager
def masters(settings: Settings) -> Iterator[list[Any]]:
    """A redis-py client of every server that holds sessions, to look around with; asks a cluster who they are."""
    if settings.url.startswith("redis+cluster://"):
        cluster = _cluster(settings, asynchronous=False)()
        try:
            yield cluster.masters()
        finally:
            cluster.close()
    else:
        with _client(settings, asynchronous=False) as client:
            yield [client]


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
        **_UNNAMED,
    }


def _client(settings: Settings, *, asynchronous: bool) -> Any:
    """A client for redis://, rediss://, unix:// or redis+sentinel://; making it does no I/O."""
    url = settings.url
    options = _options(settings, asynchronous=asynchronous)
    with _reading_url():
        if url.startswith("redis+sentinel://"):
            client = _sentinel(url, options, asynchronous=asynchronous)
        else:
            kind: Any = redis.asyncio.Redis if asynchronous else redis.Redis
            client = kind.from_url(url, **options)
        _check_options(client)
    return client


@contextmanager
def _reading_url() -> Iterator[None]:
    """What goes wrong in here is the URL's fault, said in words that hold no part of it: it may hold a password."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"url: {_reason(error)}") from None


def _check_options(client: Any) -> None:
    """Unknown options only show when a connection is made; that does no I/O either."""
    client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)


def _context(pool: Any) -> SSLContext | None:
    try:
        return context_of(pool)
    except OSError as error:
        raise ConfigError(f"url: the TLS files cannot be used ({error.strerror or error})") from None


def _reason(error: Exception) -> str:
    text = str(error)
    if "unexpected keyword argument" in text:
        return f"neither loopfence nor redis-py knows the query field {text.rsplit(' ', 1)[-1]}"
    return text if text.startswith("Invalid value for") else "it is no valid Redis URL"


def _endpoints(netloc: str, default_port: int) -> tuple[list[tuple[str, int]], dict[str, str]]:
    credentials, _, hosts = netloc.rpartition("@")
    found: list[tuple[str, int]] = []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, str(default_port)
        if not name or not port.isdigit():
            # not quoted: where the @ was forgotten, this is the password
            raise ConfigError(f"url: host {len(found) + 1} is no host:port")
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
    if "ssl" in found:
        found["ssl"] = found["ssl"].lower() in ("true", "1", "yes")
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
    # One that does not answer must leave time to ask the next.
    share = options["socket_timeout"] / (len(endpoints) + 1)
    asking = {**options, "socket_timeout": share, "socket_connect_timeout": share}
    return sentinel(endpoints, sentinel_kwargs=asking).master_for(service, **master)


def _cluster(settings: Settings, *, asynchronous: bool) -> Any:
    """What makes a client for redis+cluster://; making it does no I/O."""
    kind: Any = redis.asyncio.Redis if asynchronous else redis.Redis
    with _reading_url():
        parts = urlsplit(settings.url)
        seeds, credentials = _endpoints(parts.netloc, 6379)
        if parts.path.strip("/") not in ("", "0"):
            raise ConfigError("url: a cluster has no database but 0")
        options = {"max_connections": MAX_CONNECTIONS, **_query(parts.query), **credentials}
        options |= _options(settings, asynchronous=asynchronous)
        _check_options(kind(**options))
    pool = kind(**options).connection_pool
    context = _context(pool)
    connection_class = pool.connection_class
    if not asynchronous:
        connection_class = bounded(connection_class, context)
    elif context is not None:
        connection_class = with_context(connection_class, context)
    ours = {name: value for name, value in pool.connection_kwargs.items() if name not in ("host", "port")}
    of_node = node_connection(connection_class, ours)
    if asynchronous:
        return lambda: AsyncClusterClient(seeds, of_node, pool.max_connections, settings.timeout)
    return lambda: ClusterClient(seeds, of_node, pool.max_connections)

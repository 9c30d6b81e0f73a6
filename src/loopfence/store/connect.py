"""URL -> redis-py client; the one place that knows redis-py's constructors and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import redis
import redis.asyncio
import redis.exceptions

from loopfence.errors import ConfigError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

UNAVAILABLE = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError, TimeoutError)
SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "redis+sentinel")


def connect(url: str, timeout: float, *, asynchronous: bool) -> Any:
    """A client for `url`, not connected yet, that gives up after `timeout` seconds and never re-sends by itself.

    ConfigError where the URL is wrong; it never quotes the URL, which may hold a password.
    """
    scheme = url.partition("://")[0]
    options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    try:
        if scheme == "redis+cluster":
            return _cluster(url, options, asynchronous=asynchronous)
        if scheme == "redis+sentinel":
            return _sentinel(url, options, asynchronous=asynchronous)
        options["retry"] = _no_retry(asynchronous=asynchronous)
        kind: Any = redis.asyncio.Redis if asynchronous else redis.Redis
        client = kind.from_url(url, **options)
        # Unknown options only show when a connection is made; making one does no I/O.
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"url: {_reason(error)}") from None
    return client


def _reason(error: Exception) -> str:
    text = str(error)
    if "unexpected keyword argument" in text:
        return f"neither loopfence nor redis-py knows the query field {text.rsplit(' ', 1)[-1]}"
    return text if "://" not in text or "following schemes" in text else "it is no Redis URL"


def _no_retry(*, asynchronous: bool) -> Any:
    if asynchronous:
        from redis.asyncio.retry import Retry as AsyncRetry
        from redis.backoff import NoBackoff

        return AsyncRetry(NoBackoff(), 0)
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return Retry(NoBackoff(), 0)


def _endpoints(netloc: str, default_port: int) -> tuple[list[tuple[str, int]], dict[str, str]]:
    credentials, _, hosts = netloc.rpartition("@")
    found = []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not colon:
            name, port = host, str(default_port)
        if not name or not port.isdigit():
            raise ConfigError(f"url: {host!r} is no host:port")
        found.append((name.strip("[]"), int(port)))
    user, _, password = credentials.partition(":")
    named = {"username": unquote(user), "password": unquote(password)}
    return found, {name: value for name, value in named.items() if value}


def _query(query: str) -> dict[str, Any]:
    # redis-py's own parser gives its options their types.
    from redis.connection import parse_url

    parse: Any = parse_url
    return {k: v for k, v in parse(f"redis://localhost?{query}").items() if k not in {"host", "port"}}


def _cluster(url: str, options: dict[str, Any], *, asynchronous: bool) -> Any:
    parts = urlsplit(url)
    endpoints, credentials = _endpoints(parts.netloc, 6379)
    settings = {**options, **credentials, **_query(parts.query)}
    if asynchronous:
        from redis.asyncio.cluster import ClusterNode as AsyncNode
        from redis.asyncio.cluster import RedisCluster as AsyncCluster

        return AsyncCluster(startup_nodes=[AsyncNode(*endpoint) for endpoint in endpoints], **settings)
    from redis.cluster import ClusterNode, RedisCluster

    node: Any = ClusterNode
    return RedisCluster(startup_nodes=[node(*endpoint) for endpoint in endpoints], **settings)


def _sentinel(url: str, options: dict[str, Any], *, asynchronous: bool) -> Any:
    parts = urlsplit(url)
    endpoints, credentials = _endpoints(parts.netloc, 26379)
    service, _, db = parts.path.strip("/").partition("/")
    if not service or (db and not db.isdigit()):
        raise ConfigError("url: redis+sentinel:// needs host:port,host:port/service or …/service/db")
    settings = {**options, **credentials, **_query(parts.query), "db": int(db or 0)}
    settings["retry"] = _no_retry(asynchronous=asynchronous)
    sentinel_options = {**options, "retry": settings["retry"]}
    sentinel: Any
    if asynchronous:
        from redis.asyncio.sentinel import Sentinel as sentinel  # noqa: N813
    else:
        from redis.sentinel import Sentinel as sentinel  # noqa: N813
    return sentinel(endpoints, sentinel_kwargs=sentinel_options).master_for(service, **settings)


def split_query(url: str, ours: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The URL without the query fields that are loopfence's own, and those fields."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    mine = {name: value for name, value in query if name in ours}
    rest = urlencode([(name, value) for name, value in query if name not in ours])
    return urlunsplit(parts._replace(query=rest)), mine


def translate(error: Exception) -> StoreError:
    """The loopfence error for one of redis-py's, in words that hold no URL and no password."""
    if isinstance(error, UNAVAILABLE) and not isinstance(error, redis.exceptions.AuthenticationError):
        return StoreUnavailableError(f"Redis is unavailable ({type(error).__name__}: {error})")
    return StoreError(f"Redis refused the step ({error})")

"""One TLS context for all connections of a link.

redis-py makes one for each connection, which reads the system's certificates: tens of milliseconds, out of a timeout
that may be a quarter of a second, and on asyncio out of everybody's time. Here it is made once, with the guard.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.connection import SSLConnection

if TYPE_CHECKING:
    from ssl import SSLContext


def context_of(pool: Any) -> SSLContext | None:
    """The context that the pool's options ask for; None without TLS. OSError: a certificate file is no good."""
    if not issubclass(pool.connection_class, (SSLConnection, AsyncSSLConnection)):
        return None
    options = {name: value for name, value in pool.connection_kwargs.items() if name.startswith("ssl_")}
    if any("ocsp" in name for name in options):
        return None  # redis-py checks the staple around a context of its own
    # redis-py's own reading of the options: its asyncio connection makes a context without connecting.
    context: SSLContext = AsyncSSLConnection(**options).ssl_context.get()
    return context


@lru_cache(maxsize=16)
def with_context(connection_class: Any, context: SSLContext) -> Any:
    """The asyncio connection class, its connections sharing the context."""

    class Prepared(connection_class):  # type: ignore[misc]  # the class is only known at run time
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.ssl_context.context = context

    return Prepared

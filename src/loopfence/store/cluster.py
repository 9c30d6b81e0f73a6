"""redis-py's own cluster clients, kept from waiting on their own: the guard's deadline holds, its link does the retrying.

Slot map, MOVED and the nodes' connections are redis-py's. Left out is what takes longer than a step may: it sleeps
over CLUSTERDOWN and TRYAGAIN, asks around in the middle of a step, and loads the list of all commands. ASK is
followed here, since redis-py does not know a node that has no slots yet, and on asyncio may say ASKING on one
connection and the command on another.
"""

from __future__ import annotations

import asyncio
import os
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import redis.asyncio.cluster
import redis.cluster
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ClusterError,
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from loopfence.store.bounded import holding
from loopfence.store.faults import code_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

Address = tuple[str, int]
MOST_REDIRECTS = 5
_SLEPT_OVER = ("ASK", "CLUSTERDOWN", "TRYAGAIN")
_MISPLACED = ("CLUSTERDOWN", "READONLY", "MASTERDOWN")


@lru_cache(maxsize=256)
def _plain(parser_class: Any, host: str) -> Any:
    """The parser with no class for the errors that redis-py would sleep over; they are passed on as they are."""

    def moved(text: str, **options: Any) -> MovedError:
        error = MovedError(text, **options)
        error.host = error.host or host  # a node that does not know its own name is where we are
        return error

    kept = {code: kind for code, kind in parser_class.EXCEPTION_CLASSES.items() if code not in _SLEPT_OVER}
    return type("PlainParser", (parser_class,), {"EXCEPTION_CLASSES": {**kept, "MOVED": moved}})


def node_connection(connection_class: Any, options: dict[str, Any]) -> Any:
    """The connection class with all but the address set: a cluster client drops options that it does not know."""

    class NodeConnection(connection_class):  # type: ignore[misc]  # the class is only known at run time
        def __init__(self, *, host: str, port: int, **_: Any) -> None:
            super().__init__(host=host, port=port, **options)

        def set_parser(self, parser_class: Any) -> None:
            super().set_parser(_plain(parser_class, self.host))

    return NodeConnection


def _behind(error: Exception) -> Exception:
    """What redis-py's summary of a failed look-around hides: no permission, a wrong password, no cluster."""
    while isinstance(error, RedisClusterException):
        inner = error.__cause__ or error.__context__
        if not isinstance(inner, RedisError):
            break
        error = inner
    return error


def _last(replies: list[Any]) -> Any:
    """The reply after that to ASKING; the first error is raised as it is, not as a pipeline words it."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies[-1]


class ClusterClient(redis.cluster.RedisCluster):
    """redis-py's cluster client, connected when first used, in each process anew."""

    ERRORS_ALLOW_RETRY = ()
    RedisClusterRequestTTL = MOST_REDIRECTS

    def __init__(self, seeds: list[Address], connection_class: Any, max_connections: int) -> None:
        self._seeds = seeds
        host = f"[{seeds[0][0]}]" if ":" in seeds[0][0] else seeds[0][0]
        self._options = {
            "url": f"redis://{host}:{seeds[0][1]}",  # only with a URL it takes a connection class
            "connection_class": connection_class,
            "max_connections": max_connections,
            **_options(seeds),
        }
        self._pid: int | None = None
        self._due: dict[str, Any] | None = None
        """How to look around again before the next command; None = no need."""
        self._looking: dict[int, threading.Lock] = {}

    def _ready(self) -> None:
        pid = os.getpid()
        if self._pid == pid and self._due is None:
            return
        with holding(self._looking.setdefault(pid, threading.Lock())):
            try:
                if self._pid != pid:
                    super().__init__(**self._options, startup_nodes=self._nodes())
                    self._look_around = self.nodes_manager.initialize
                    self.nodes_manager.initialize = self._postpone  # type: ignore[method-assign]
                    self._pid = pid
                elif self._due is not None:
                    known = {node.name: node for node in self._nodes()}
                    self.nodes_manager.startup_nodes = {**known, **self.nodes_manager.startup_nodes}
                    self._look_around(**self._due)
            except RedisClusterException as error:
                raise _behind(error) from None
            self._due = None

    def _nodes(self) -> list[redis.cluster.ClusterNode]:
        return [redis.cluster.ClusterNode(*seed) for seed in self._seeds]

    def _postpone(self, **how: Any) -> None:
        self._due = how

    def command(self) -> dict[str, Any]:  # type: ignore[override]
        """Nothing: asked for when connecting, to find the keys of commands that the guard does not send."""
        return {}

    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        self._ready()
        try:
            return super().execute_command(*arguments, **options)
        except ResponseError as error:
            if code_of(error) == "ASK":
                return self._ask(str(error), arguments)
            if code_of(error) in _MISPLACED:
                self._due = {}
            raise
        except RedisClusterException:
            self._due = {}
            raise
        except ClusterError as error:
            raise ClusterDownError(str(error)) from None  # sent to and fro: a slot's move, over in a moment

    def _ask(self, text: str, arguments: tuple[Any, ...]) -> Any:
        asked = AskError(text.partition(" ")[2])
        node = redis.cluster.ClusterNode(asked.host or self._seeds[0][0], asked.port)
        node = self.nodes_manager.nodes_cache.setdefault(node.name, node)
        with self.get_redis_connection(node).pipeline(transaction=False) as pipe:
            pipe.execute_command("ASKING").execute_command(*arguments)
            return _last(pipe.execute(raise_on_error=False))

    def scan_iter(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        self._due = {}  # there may be masters that no step has met
        return super().scan_iter(*arguments, **options)

    def masters(self) -> list[Any]:
        """A client of every master."""
        self._due = {}
        self._ready()
        return [self.get_redis_connection(node) for node in self.get_primaries()]

    def close(self) -> None:
        if self._pid == os.getpid():
            super().close()


class AsyncClusterClient(redis.asyncio.cluster.RedisCluster):
    """redis-py's cluster client for asyncio; one event loop only."""

    ERRORS_ALLOW_RETRY = ()
    RedisClusterRequestTTL = MOST_REDIRECTS

    def __init__(self, seeds: list[Address], connection_class: Any, max_connections: int) -> None:
        self._seeds = seeds
        nodes = [redis.asyncio.cluster.ClusterNode(*seed) for seed in seeds]
        super().__init__(startup_nodes=nodes, max_connections=max_connections, **_options(seeds))
        self.connection_kwargs["connection_class"] = connection_class
        self._nodes = dict(self.nodes_manager.startup_nodes)
        for node in self._nodes.values():
            node.connection_class = connection_class
        self._looking = asyncio.Lock()

    async def initialize(self, **how: Any) -> AsyncClusterClient:
        """Ask where the slots are; redis-py's own asks for all commands as well, and closes all when it fails."""
        async with self._looking:
            if self._initialize:
                self.nodes_manager.startup_nodes = {**self._nodes, **self.nodes_manager.startup_nodes}
                await self.nodes_manager.initialize(**how)
                self._initialize = False
        return self

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        try:
            return await super().execute_command(*arguments, **options)
        except asyncio.CancelledError:
            self._initialize = True  # out of time: the node may be lost
            raise
        except ResponseError as error:
            if code_of(error) == "ASK":
                return await self._ask(str(error), arguments)
            self._initialize |= code_of(error) in _MISPLACED
            raise
        except RedisClusterException as error:
            self._initialize = True
            raise _behind(error) from None
        except KeyError:
            self._initialize = True
            raise ClusterDownError("no node serves the slot") from None
        except ClusterError as error:
            raise ClusterDownError(str(error)) from None

    async def _ask(self, text: str, arguments: tuple[Any, ...]) -> Any:
        asked = AskError(text.partition(" ")[2])
        node = redis.asyncio.cluster.ClusterNode(
            asked.host or self._seeds[0][0], asked.port, **self.connection_kwargs
        )
        node = self.nodes_manager.nodes_cache.setdefault(node.name, node)
        commands = [
            redis.asyncio.cluster.PipelineCommand(0, "ASKING"),
            redis.asyncio.cluster.PipelineCommand(1, *arguments),
        ]
        await node.execute_pipeline(commands)
        return _last([command.result for command in commands])

    def scan_iter(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        self._initialize = True
        return super().scan_iter(*arguments, **options)

    async def aclose(self) -> None:
        self._initialize = False  # redis-py takes a client that has to look around again for one without connections
        await super().aclose()


def _options(seeds: list[Address]) -> dict[str, Any]:
    return {
        "protocol": 2,
        "reinitialize_steps": 0,  # a moved slot is noted, and not the time to ask for all of them
        "require_full_coverage": False,
        "address_remap": lambda address: (address[0] or seeds[0][0], address[1]),
    }

"""redis-py's cluster clients, kept from waiting by themselves: the guard's deadline holds, its link does the retries.

Slot map, MOVED and the nodes' connections are redis-py's. What takes longer than a step may is put off or left out:
redis-py sleeps over CLUSTERDOWN and TRYAGAIN, asks all nodes around in the middle of a step, and loads the list of
all commands. ASK is followed here: redis-py does not know a node that has no slots yet, and on asyncio says ASKING on
one connection and the command on another.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import PipelineCommand
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ClusterDownError, MovedError, RedisClusterException, ResponseError

from loopfence.store.bounded import holding, hurrying
from loopfence.store.faults import code_of, raised

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_SLEPT_OVER = ("CLUSTERDOWN", "TRYAGAIN")
_MISPLACED = ("CLUSTERDOWN", "READONLY", "MASTERDOWN")


class _AskedError(ResponseError):
    """The slot is on its way to another node."""

    host: str
    port: int


@lru_cache(maxsize=256)
def _candid(parser_class: Any, host: str) -> Any:
    """The parser without a class for the errors that redis-py would sleep over: those it passes on as they are."""

    def moved(text: str, kind: Any = MovedError, **_: Any) -> Any:
        error, place = kind(text), MovedError(text)
        error.host, error.port = place.host or host, place.port  # a node without a name is where we are
        return error

    codes = {code: kind for code, kind in parser_class.EXCEPTION_CLASSES.items() if code not in _SLEPT_OVER}
    codes |= {"MOVED": moved, "ASK": lambda text, **_: moved(text, _AskedError)}
    return type("CandidParser", (parser_class,), {"EXCEPTION_CLASSES": codes})


def node_connection(connection_class: Any, options: dict[str, Any]) -> Any:
    """The connection class with all but the address set: a cluster client drops options that it does not know."""

    class NodeConnection(connection_class):  # type: ignore[misc]  # the class is only known at run time
        def __init__(self, *, host: str, port: int, **_: Any) -> None:
            super().__init__(**{**options, "host": host, "port": port})

        def set_parser(self, parser_class: Any) -> None:
            super().set_parser(_candid(parser_class, self.host))

    return NodeConnection


def _shuffled(nodes: Any) -> list[Any]:
    """In another order each time: a node that does not answer must not be asked first for ever."""
    return random.sample(list(nodes), len(nodes))


def _options(seeds: list[tuple[str, int]], max_connections: int) -> dict[str, Any]:
    return {
        "max_connections": max_connections,
        "protocol": 2,
        "reinitialize_steps": 0,  # a slot that moved is no reason to ask for all of them
        "require_full_coverage": False,
        "address_remap": lambda address: (address[0] or seeds[0][0], address[1]),
    }


class ClusterClient(RedisCluster):
    """redis-py's client, connected when first used, in each process anew."""

    ERRORS_ALLOW_RETRY: Any = ()

    def __init__(self, seeds: list[tuple[str, int]], connection_class: Any, max_connections: int) -> None:
        self._seeds = seeds
        # Only with a URL redis-py takes a connection class; it is one more seed.
        url = "redis://{}:{}".format(f"[{seeds[0][0]}]" if ":" in seeds[0][0] else seeds[0][0], seeds[0][1])
        self._options = {"url": url, "connection_class": connection_class, **_options(seeds, max_connections)}
        self._pid = 0
        self._lost = True
        self._looking: dict[int, threading.Lock] = {}

    def _look_around(self) -> None:
        """Ask where the slots are; in a process that has not yet, connect."""
        pid = os.getpid()
        nodes: list[Any] = [ClusterNode(*seed) for seed in self._seeds]  # type: ignore[no-untyped-call]
        with holding(self._looking.setdefault(pid, threading.Lock())), hurrying():
            if self._pid != pid:
                super().__init__(**self._options, startup_nodes=_shuffled(nodes))
                self._ask_around: Any = self.nodes_manager.initialize
                vars(self.nodes_manager)["initialize"] = self._lose
                self._pid = pid
            elif self._lost:
                known = {node.name: node for node in nodes} | self.nodes_manager.startup_nodes
                self.nodes_manager.startup_nodes = dict(_shuffled(known.items()))
                self._ask_around()
            self._lost = False

    def _lose(self, **_: Any) -> None:
        """What redis-py does when it lost a node, put off until the next command: there may be time for it then."""
        self._lost = True

    def command(self) -> dict[str, Any]:  # type: ignore[override]
        """No list of all commands: it tells where their keys are, and the guard only sends scripts."""
        return {}

    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        if self._lost or self._pid != os.getpid():
            self._look_around()
        try:
            return super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]
        except _AskedError as asked:
            node: Any = ClusterNode(asked.host, asked.port)  # type: ignore[no-untyped-call]
            node = self.get_redis_connection(self.nodes_manager.nodes_cache.setdefault(node.name, node))
            with node.pipeline(transaction=False) as pipe:
                pipe.execute_command("ASKING").execute_command(*arguments)
                return [raised(reply) for reply in pipe.execute(raise_on_error=False)][1]
        except (ResponseError, RedisClusterException) as error:
            self._lost |= isinstance(error, RedisClusterException) or code_of(error) in _MISPLACED
            raise

    def scan_iter(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        self._lost = True  # there may be masters that no step has met
        return super().scan_iter(*arguments, **options)

    def masters(self) -> list[Any]:
        """A client of every master."""
        self._look_around()
        return [self.get_redis_connection(node) for node in self.get_primaries()]  # type: ignore[no-untyped-call]

    def close(self) -> None:
        if self._pid == os.getpid():
            super().close()


class AsyncClusterClient(AsyncRedisCluster):
    """redis-py's client for asyncio; one event loop only."""

    ERRORS_ALLOW_RETRY: Any = ()

    def __init__(
        self, seeds: list[tuple[str, int]], connection_class: Any, max_connections: int, timeout: float
    ) -> None:
        super().__init__(*seeds[0], **_options(seeds, max_connections))
        self.connection_kwargs["connection_class"] = connection_class
        self._seeds = self._known = seeds
        self._looking = asyncio.Lock()
        self._patience = timeout / 2  # with one node, so that there is time to ask another

    async def initialize(self, *_: Any, **__: Any) -> AsyncClusterClient:
        """Ask where the slots are. redis-py's own asks for all commands too, and closes every connection on failure."""
        async with self._looking:
            for address in _shuffled(self._known) if self._initialize else []:
                node = AsyncClusterNode(*address, **self.connection_kwargs)
                self.nodes_manager.startup_nodes = {node.name: node}
                try:
                    async with asyncio.timeout(self._patience):
                        await self.nodes_manager.initialize()
                except (RedisClusterException, TimeoutError) as error:
                    failure = error
                else:
                    self._initialize = False
                    self._known = list({*self._seeds, *((each.host, int(each.port)) for each in self.get_nodes())})
                    break
                finally:
                    await node.disconnect()
            if self._initialize:
                raise failure
        return self

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        try:
            # Before redis-py's own, which comes too late for the first command: that would go to any node.
            await self.initialize()
            return await super().execute_command(*arguments, **options)
        except _AskedError as asked:
            node = AsyncClusterNode(asked.host, asked.port, **self.connection_kwargs)
            node = self.nodes_manager.nodes_cache.setdefault(node.name, node)
            commands = [PipelineCommand(0, "ASKING"), PipelineCommand(1, *arguments)]
            await node.execute_pipeline(commands)
            return [raised(command.result) for command in commands][1]
        except KeyError:
            self._initialize = True
            raise ClusterDownError("no node serves the slot") from None
        except (ResponseError, RedisClusterException, asyncio.CancelledError) as error:
            # Cancelled: out of time, and the node may be lost.
            self._initialize |= not isinstance(error, ResponseError) or code_of(error) in _MISPLACED
            raise

    def scan_iter(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        self._initialize = True
        return super().scan_iter(*arguments, **options)

    async def aclose(self) -> None:
        self._initialize = False  # redis-py takes a client that has to look around again for one without connections
        await super().aclose()

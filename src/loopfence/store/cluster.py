"""Which node of a Redis Cluster serves a session, and what to do when it has moved; two small clients that do it.

redis-py's own cluster client sleeps and asks around for as long as it likes; here each step is one command to one
node, so that the guard's deadline holds. Routing is told once, as a generator that says what to send where; the
clients send it, synchronously and on asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import redis.exceptions
from redis.crc import key_slot

from loopfence.store.faults import code_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

Address = tuple[str, int]
MOST_REDIRECTS = 5


class Ask(NamedTuple):
    """A command for one node."""

    address: Address
    arguments: tuple[Any, ...]
    asking: bool = False
    """The slot is on its way to this node: ASKING goes first."""


class Slots:
    """The slots' nodes as far as they are known, learned from `seeds` and from the nodes themselves."""

    def __init__(self, seeds: list[Address]) -> None:
        self._seeds = seeds
        self._ranges: list[tuple[int, int, Address]] = []
        self._moved: dict[int, Address] = {}
        self._lost: Address | None = None

    def masters(self) -> list[Address]:
        """Every node that serves slots."""
        return list(dict.fromkeys([address for _, _, address in self._ranges] + list(self._moved.values())))

    def at(self, slot: int) -> Address | None:
        """The slot's node; None = not known."""
        if slot in self._moved:
            return self._moved[slot]
        return next((address for first, last, address in self._ranges if first <= slot <= last), None)

    def route(self, arguments: tuple[Any, ...]) -> Generator[Ask, Any, Any]:
        """Ask the node that serves the first key of an EVAL or EVALSHA; returns its reply."""
        slot = key_slot(str(arguments[3]).encode())
        asking = None
        for _ in range(MOST_REDIRECTS):
            address = asking or self.at(slot)
            if address is None:
                yield from self.learn()
                address = self.at(slot)
            if address is None:
                raise redis.exceptions.ClusterDownError(f"no node serves slot {slot}")
            try:
                return (yield Ask(address, arguments, asking is not None))
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                self._forget(address)
                raise
            except redis.exceptions.ResponseError as error:
                asking = self._redirect(error, slot, address)
        raise redis.exceptions.ClusterDownError(f"slot {slot} was redirected {MOST_REDIRECTS} times")

    def learn(self) -> Generator[Ask, Any, None]:
        """Ask one node after the other where the slots are, the one that was just lost at last."""
        error: Exception | None = None
        known = dict.fromkeys(self.masters() + self._seeds)
        for address in sorted(known, key=lambda address: address == self._lost):
            try:
                reply = yield Ask(address, ("CLUSTER", "SLOTS"))
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as lost:
                error = lost
                continue
            self._ranges = [(first, last, _address(master, address)) for first, last, master, *_ in reply]
            self._moved = {}
            return
        raise error or redis.exceptions.ConnectionError("no node of the cluster is known")

    def _forget(self, address: Address) -> None:
        """A node was lost: another may serve its slots by now, so all is learned anew."""
        self._lost = address
        self._seeds = list(dict.fromkeys(self._seeds + self.masters()))
        self._ranges, self._moved = [], {}

    def _redirect(self, error: redis.exceptions.ResponseError, slot: int, asked: Address) -> Address | None:
        """The node to ask with ASKING, or None where the slot's node is known again; raises what is no redirect."""
        code = code_of(error)
        if code in ("MOVED", "ASK"):
            host, _, port = str(error).rpartition(" ")[2].rpartition(":")
            target = (host or asked[0], int(port))
            if code == "ASK":
                return target
            self._moved[slot] = target
            return None
        if code in ("CLUSTERDOWN", "READONLY", "MASTERDOWN"):
            self._forget(asked)
        raise error


def _address(node: list[Any], asked: Address) -> Address:
    """A node's address as CLUSTER SLOTS gives it; one that does not know its own name is the one that was asked."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return host or asked[0], int(node[1])


def _last(replies: list[Any]) -> Any:
    """The reply after that to ASKING; the first error is raised as it is, not as a pipeline words it."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies[-1]


class ClusterClient:
    """As much of a redis-py client as the guard needs. `connect` makes the client of one node."""

    def __init__(self, seeds: list[Address], connect: Callable[[Address], Any]) -> None:
        self._slots = Slots(seeds)
        self._connect = connect
        self._nodes: dict[Address, Any] = {}

    def execute_command(self, *arguments: Any) -> Any:
        """Send an EVAL or EVALSHA to the node of its first key."""
        return self._follow(self._slots.route(arguments))

    def scan_iter(self, **options: Any) -> Iterator[Any]:
        """The matching keys of all masters."""
        self._follow(self._slots.learn())
        for address in self._slots.masters():
            yield from self._node(address).scan_iter(**options)

    def nodes(self) -> list[Any]:
        """A client of every master."""
        self._follow(self._slots.learn())
        return [self._node(address) for address in self._slots.masters()]

    def close(self) -> None:
        """Close the connections to all nodes."""
        for node in self._nodes.values():
            node.close()

    def _node(self, address: Address) -> Any:
        # Two threads may both make one: setdefault keeps the first, the other never connected.
        return self._nodes.get(address) or self._nodes.setdefault(address, self._connect(address))

    def _follow(self, steps: Generator[Ask, Any, Any]) -> Any:
        try:
            ask = next(steps)
            while True:
                try:
                    reply = self._send(ask)
                except redis.exceptions.RedisError as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(reply)
        except StopIteration as done:
            return done.value

    def _send(self, ask: Ask) -> Any:
        node = self._node(ask.address)
        if not ask.asking:
            return node.execute_command(*ask.arguments)
        with node.pipeline(transaction=False) as pipe:
            pipe.execute_command("ASKING").execute_command(*ask.arguments)
            return _last(pipe.execute(raise_on_error=False))


class AsyncClusterClient:
    """ClusterClient for asyncio; one event loop only."""

    def __init__(self, seeds: list[Address], connect: Callable[[Address], Any]) -> None:
        self._slots = Slots(seeds)
        self._connect = connect
        self._nodes: dict[Address, Any] = {}

    async def execute_command(self, *arguments: Any) -> Any:
        return await self._follow(self._slots.route(arguments))

    async def scan_iter(self, **options: Any) -> AsyncIterator[Any]:
        await self._follow(self._slots.learn())
        for address in self._slots.masters():
            async for key in self._node(address).scan_iter(**options):
                yield key

    async def aclose(self) -> None:
        for node in self._nodes.values():
            await node.aclose()

    def _node(self, address: Address) -> Any:
        return self._nodes.get(address) or self._nodes.setdefault(address, self._connect(address))

    async def _follow(self, steps: Generator[Ask, Any, Any]) -> Any:
        try:
            ask = next(steps)
            while True:
                try:
                    reply = await self._send(ask)
                except redis.exceptions.RedisError as error:
                    ask = steps.throw(error)
                else:
                    ask = steps.send(reply)
        except StopIteration as done:
            return done.value

    async def _send(self, ask: Ask) -> Any:
        node = self._node(ask.address)
        if not ask.asking:
            return await node.execute_command(*ask.arguments)
        async with node.pipeline(transaction=False) as pipe:
            pipe.execute_command("ASKING").execute_command(*ask.arguments)
            return _last(await pipe.execute(raise_on_error=False))

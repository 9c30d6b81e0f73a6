"""A Redis Cluster on loopback: three masters, three replicas, slots that can be moved while calls go on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from servers.process import RedisServer, ServerStartError, Setup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers.binaries import Binary

SLOTS = 16384
NODE_TIMEOUT_MS = 1000
FORM_SECONDS = 40.0


class Cluster(Setup):
    """Masters are `nodes[:3]`, their replicas `nodes[3:]` in the same order, until a failover."""

    def __init__(self, binary: Binary, *, masters: int = 3) -> None:
        self.masters = masters
        config = [
            "cluster-enabled yes",
            f"cluster-node-timeout {NODE_TIMEOUT_MS}",
            "repl-diskless-sync-delay 0",
        ]
        self.servers = self.nodes = [RedisServer(binary, config=config) for _ in range(2 * masters)]

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self._form()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[: self.masters])

    def master_of(self, slot: int) -> RedisServer:
        """The node that serves a slot now, as a live node sees it."""
        return self.node_at(self._owner(next(self.live()), slot))

    @staticmethod
    def _owner(node: RedisServer, slot: int) -> int:
        """The port of the slot's master, as `node` sees it."""
        for first, last, (_, port, *_), *_ in node.admin.execute_command("CLUSTER SLOTS"):
            if first <= slot <= last:
                return port
        raise LookupError(f"{node!r} knows no node that serves slot {slot}")

    def _masters(self) -> list[RedisServer]:
        return [node for node in self.live() if node.admin.execute_command("ROLE")[0] == b"master"]

    def replica_of(self, master: RedisServer) -> RedisServer:
        for node in self.live():
            role = node.admin.execute_command("ROLE")
            if role[0] == b"slave" and role[2] == master.port:
                return node
        raise LookupError(f"{master!r} has no replica")

    def node_at(self, port: int) -> RedisServer:
        return next(node for node in self.nodes if node.port == port)

    def live(self) -> Iterator[RedisServer]:
        return (node for node in self.nodes if node.alive and not node.frozen)

    def move_slot(self, slot: int, source: RedisServer, target: RedisServer) -> Iterator[None]:
        """Reshard one slot as redis-cli does, a key at a time; yields after each step, for calls to come."""
        source_id, target_id = self.node_id(source), self.node_id(target)
        target.admin.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
        source.admin.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
        yield
        while keys := source.admin.execute_command("CLUSTER GETKEYSINSLOT", slot, 1):
            source.admin.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            yield
        others = [node for node in self._masters() if node not in (target, source)]
        for node in (target, source, *others):
            node.admin.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
        yield
        # gossip that was under way may undo an assignment: it is said again until all have agreed for a while
        agreed = 0
        while agreed < 10:
            time.sleep(0.01)
            agreed += 1
            for node in (target, source, *others):
                if self._owner(node, slot) != target.port:
                    node.admin.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
                    agreed = 0

    def node_id(self, node: RedisServer) -> str:
        return node.admin.execute_command("CLUSTER MYID").decode()

    def wait_ok(self, seconds: float = FORM_SECONDS) -> None:
        """Wait until every live node says that the cluster is whole."""
        deadline = time.monotonic() + seconds
        while not all(self._is_ok(node) for node in self.live()):
            if time.monotonic() > deadline:
                raise ServerStartError(f"no cluster after {seconds:g} s: {[n.log(3) for n in self.live()]}")
            time.sleep(0.05)

    @staticmethod
    def _is_ok(node: RedisServer) -> bool:
        return node.admin.execute_command("CLUSTER INFO")["cluster_state"] == "ok"

    def _form(self) -> None:
        first = self.nodes[0]
        for epoch, node in enumerate(self.nodes, 1):
            # distinct epochs from the start: nodes that have to settle a clash take seconds for it
            node.admin.execute_command("CLUSTER SET-CONFIG-EPOCH", epoch)
        for node in self.nodes[1:]:
            node.admin.execute_command("CLUSTER MEET", "127.0.0.1", first.port)
        share = SLOTS // self.masters
        for index, node in enumerate(self.nodes[: self.masters]):
            last = SLOTS if index == self.masters - 1 else (index + 1) * share
            node.admin.execute_command("CLUSTER ADDSLOTS", *range(index * share, last))
        self._wait_known()
        for master, replica in zip(self.nodes[: self.masters], self.nodes[self.masters :], strict=True):
            replica.admin.execute_command("CLUSTER REPLICATE", self.node_id(master))
        self._wait_replicas()
        self.wait_ok()

    def _wait_known(self) -> None:
        deadline = time.monotonic() + FORM_SECONDS
        while not all(self._knows_all(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise ServerStartError("cluster nodes did not meet")
            time.sleep(0.05)

    def _knows_all(self, node: RedisServer) -> bool:
        known = node.admin.execute_command("CLUSTER NODES").values()
        return sum(other["connected"] for other in known) == len(self.nodes)

    def _wait_replicas(self) -> None:
        deadline = time.monotonic() + FORM_SECONDS
        for replica in self.nodes[self.masters :]:
            while replica.admin.execute_command("ROLE")[3] != b"connected":
                if time.monotonic() > deadline:
                    raise ServerStartError(f"{replica!r} did not follow its master")
                time.sleep(0.05)

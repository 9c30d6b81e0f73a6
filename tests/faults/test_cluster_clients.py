"""redis-py's cluster clients under the guard: they heal from nodes that do not answer, and never hold up a call."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from ledger import TIMEOUT, Ledger
from test_topologies import RECOVERY_SECONDS, _call_until_answered, held_in, slot_of

from loopfence import AsyncLoopGuard, LoopGuard
from loopfence.errors import StoreError, StoreUnavailableError
from servers import Cluster, RedisServer, find_binaries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flavour import Flavour

KEYS = 4  # calls, counts, state and args


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three masters and three replicas that the tests of this module share, and must leave whole."""
    with Cluster(find_binaries()[-1]) as nodes:
        yield nodes


def test_making_a_guard_asks_nobody_and_a_failed_first_contact_is_forgotten(
    cluster: Cluster, flavour: Flavour, ledger: Ledger
) -> None:
    for node in cluster.nodes:
        node.freeze()
    ledger.injected("cluster frozen", len(cluster.nodes))
    try:
        before = time.perf_counter()
        session = flavour.guard(cluster.url, timeout=TIMEOUT).session("late")
        assert time.perf_counter() - before < TIMEOUT
        with ledger.bounded("cluster frozen"):
            assert session.check("search", call_id="c1").degraded
    finally:
        for node in cluster.nodes:
            node.thaw()
    cluster.wait_ok()
    after = _call_until_answered(session, ledger, "cluster frozen")
    assert after in held_in(cluster.master_of(slot_of("late")), "late")


def test_a_frozen_node_leaves_time_to_ask_the_next(cluster: Cluster, flavour: Flavour, ledger: Ledger) -> None:
    guards = [flavour.guard(cluster.url, timeout=TIMEOUT) for _ in range(6)]
    frozen = next(node for node in _masters(cluster) if node is not cluster.master_of(slot_of("s")))
    frozen.freeze()
    ledger.injected("cluster node frozen")
    try:
        for guard in guards:  # whom they ask first is chance
            with ledger.bounded("cluster node frozen"):
                assert not guard.session("s").check("search").degraded
    finally:
        frozen.thaw()


def test_a_slot_moves_to_a_node_that_nobody_knew(flavour: Flavour) -> None:
    with Cluster(find_binaries()[-1]) as cluster:
        guard = flavour.guard(cluster.url, on_outage="raise", timeout=2, keep_args=True)
        session, slot = guard.session("resharded"), slot_of("resharded")
        session.report(session.check("search"), result="x")
        source = cluster.master_of(slot)
        with RedisServer(source.binary, config=["cluster-enabled yes", "cluster-node-timeout 1000"]) as added:
            added.admin.execute_command("CLUSTER MEET", "127.0.0.1", source.port)
            cluster.nodes.append(added)
            _wait_all_know(cluster)
            moving = cluster.move_slot(slot, source, added)
            for _ in range(1 + KEYS):  # prepared, and all keys gone: asking is needed now
                next(moving)
            assert [session.check("search").count for _ in range(2)] == [2, 3]
            for _ in moving:
                pass
            assert session.check("search").count == 4
            assert list(guard.sessions()) == ["resharded"]


async def test_many_calls_at_a_time_are_asked_for_on_the_right_connection(cluster: Cluster) -> None:
    """ASKING goes first on the very connection that the command takes."""
    async with AsyncLoopGuard(
        cluster.url, on_outage="raise", timeout=5, keep_args=True, window=100, threshold=100
    ) as guard:
        session, slot = guard.session("asked"), slot_of("asked")
        await session.report(await session.check("search"), result="x")
        await asyncio.gather(*(session.check("search") for _ in range(10)))
        source = cluster.master_of(slot)
        target = next(node for node in _masters(cluster) if node is not source)
        moving = cluster.move_slot(slot, source, target)
        for _ in range(1 + KEYS):
            next(moving)
        verdicts = await asyncio.gather(*(session.check("search") for _ in range(10)))
        assert sorted(verdict.total for verdict in verdicts) == list(range(12, 22))
        for _ in moving:
            pass


def test_nodes_that_do_not_tell_their_host_are_where_they_were_found(cluster: Cluster, flavour: Flavour) -> None:
    for node in cluster.nodes:
        node.admin.config_set("cluster-preferred-endpoint-type", "unknown-endpoint")
    try:
        session = flavour.guard(cluster.url, on_outage="raise", timeout=2).session("nameless")
        slot = slot_of("nameless")
        assert session.check("search").count == 1
        source = cluster.master_of(slot)
        target = next(node for node in _masters(cluster) if node is not source)
        for _ in cluster.move_slot(slot, source, target):
            pass
        assert session.check("search").count == 2
    finally:
        for node in cluster.nodes:
            node.admin.config_set("cluster-preferred-endpoint-type", "ip")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forks_while_threads_call_each_have_connections_of_their_own(cluster: Cluster) -> None:
    with LoopGuard(cluster.url, on_outage="raise", timeout=5, window=1000, threshold=1000) as guard:
        session = guard.session("forked")
        assert session.check("search").total == 1
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                guard.session("busy").check("search")

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for child in range(1, 6):
                pid = os.fork()
                if pid == 0:
                    try:
                        os._exit(sum(session.check("search").total for _ in range(3)))
                    finally:
                        os._exit(1)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 12 * child - 3
                assert session.check("search").total == 4 * child + 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@pytest.mark.parametrize(
    ("credentials", "words"), [("", "Authentication required"), (":wrong@", "invalid username-password pair")]
)
def test_a_refused_login_is_told_as_such(credentials: str, words: str, flavour: Flavour) -> None:
    with RedisServer(find_binaries()[-1], password="secret") as server:
        guard = flavour.guard(f"redis+cluster://{credentials}127.0.0.1:{server.port}", on_outage="raise", timeout=2)
        with pytest.raises(StoreError, match=words) as refusal:
            guard.session("s").check("search")
    assert not isinstance(refusal.value, StoreUnavailableError)


def test_a_server_without_cluster_says_so(newest_server: RedisServer, flavour: Flavour) -> None:
    guard = flavour.guard(f"redis+cluster://127.0.0.1:{newest_server.port}", on_outage="raise", timeout=2)
    with pytest.raises(StoreError, match="cluster support disabled"):
        guard.session("s").check("search")


def test_a_frozen_master_is_replaced(flavour: Flavour, ledger: Ledger) -> None:
    with Cluster(find_binaries()[-1]) as cluster:
        session = flavour.guard(cluster.url, timeout=TIMEOUT).session("stopped")
        assert not session.check("search", call_id="c1").degraded
        master = cluster.master_of(slot_of("stopped"))
        replica = cluster.replica_of(master)
        master.wait_replicated()
        master.freeze()
        ledger.injected("cluster master frozen")
        after = _call_until_answered(session, ledger, "cluster master frozen")
        _compare(ledger, "cluster master frozen", ["c1", after], held_in(replica, "stopped"))


def test_a_cluster_that_is_down_holds_up_no_call(cluster: Cluster, flavour: Flavour, ledger: Ledger) -> None:
    """CLUSTERDOWN from every node, since one master is gone with its replica."""
    session = flavour.guard(cluster.url, timeout=TIMEOUT).session("down")
    assert not session.check("search", call_id="c1").degraded
    mine = cluster.master_of(slot_of("down"))
    lost = next(node for node in _masters(cluster) if node is not mine)
    pair = [cluster.replica_of(lost), lost]
    for node in pair:
        node.freeze()
    ledger.injected("cluster down", len(pair))
    try:
        _wait_state(mine, "fail")
        for number in range(2, 22):
            with ledger.bounded("cluster down"):
                assert session.check("search", call_id=f"c{number}").degraded
    finally:
        for node in pair:
            node.thaw()
    cluster.wait_ok()
    after = _call_until_answered(session, ledger, "cluster down")
    _compare(ledger, "cluster down", ["c1", after], held_in(cluster.master_of(slot_of("down")), "down"))


def _compare(ledger: Ledger, fault: str, answered: list[str], held: list[str]) -> None:
    """What was answered is held, nothing twice. A call that was given up may be held as well: its reply came late."""
    ledger.compare(fault, answered, [call for call in held if call in answered])
    assert len(held) == len(set(held))


def _masters(cluster: Cluster) -> list[RedisServer]:
    return [node for node in cluster.live() if node.admin.execute_command("ROLE")[0] == b"master"]


def _wait_until(what: Any) -> None:
    deadline = time.monotonic() + RECOVERY_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _wait_state(node: RedisServer, state: str) -> None:
    _wait_until(lambda: node.admin.execute_command("CLUSTER INFO")["cluster_state"] == state)


def _wait_all_know(cluster: Cluster) -> None:
    _wait_until(
        lambda: all(
            sum(other["connected"] for other in node.admin.execute_command("CLUSTER NODES").values())
            == len(cluster.nodes)
            for node in cluster.nodes
        )
    )
    cluster.wait_ok()

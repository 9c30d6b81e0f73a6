"""Cluster and sentinel: one slot a session, calls go on while slots move and masters die, and what a failover loses."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
from ledger import TIMEOUT, Ledger
from redis.crc import key_slot
from test_privileges import ROOT, add_user

from loopfence import AsyncLoopGuard, Level, LoopGuard
from servers import Cluster, RedisServer, SentinelSetup, find_binaries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flavour import Flavour

ODD_IDS = ["plain", "}", "{x}", "{", "a}b{c", "nul\0", "emoji \U0001f501", "é" * 256, "x" * 512, "*", "a b\n"]
RECOVERY_SECONDS = 15.0
MOVES = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three masters and three replicas that the tests of this module share, and must leave whole."""
    with Cluster(find_binaries()[-1]) as nodes:
        yield nodes


def slot_of(session: str) -> int:
    return key_slot(f"loopfence:{{{session}}}:calls".encode())


def held_in(server: RedisServer, session: str) -> list[str]:
    """The call ids that one node holds, whatever it thinks of the slot."""
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        members = client.zrange(f"loopfence:{{{session}}}:calls", 0, -1)
    return [member.decode().split(" ")[1] for member in members]


@pytest.mark.parametrize("session_id", ODD_IDS, ids=ascii)
def test_all_keys_of_a_session_are_in_one_slot(session_id: str, cluster: Cluster, flavour: Flavour) -> None:
    guard = flavour.guard(cluster.url, on_outage="raise", timeout=2, keep_args=True, stop=4)
    session = guard.session(session_id)
    for number in range(1, 5):
        verdict = session.check("search", {"q": 1})
        assert (verdict.count, verdict.source) == (number, "redis")
        session.report(verdict, result="same")
    assert verdict.level is Level.STOP
    keys = Counter(key for node in cluster.nodes[:3] for key in node.admin.scan_iter())
    assert sorted(keys.values()) == [1] * 4, "calls, counts, state and args, each on one master"
    assert len({key_slot(key) for key in keys}) == 1
    assert list(guard.sessions()) == [session_id]
    session.reset()
    assert len(session.recent_keys()) == 0


def test_sessions_of_all_masters_are_listed(cluster: Cluster, flavour: Flavour) -> None:
    guard = flavour.guard(cluster.url, on_outage="raise", timeout=2)
    for number in range(60):
        guard.session(f"s{number}").check("search")
    assert sorted(guard.sessions()) == sorted(f"s{number}" for number in range(60))
    assert guard.tracked_sessions() == 60


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode_responses", [False, True])
def test_a_users_own_cluster_client(cluster: Cluster, protocol: int, decode_responses: bool) -> None:
    options: dict[str, Any] = {"protocol": protocol, "decode_responses": decode_responses}
    with redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, **options) as client:
        guard = LoopGuard(client=client, on_outage="raise")
        for number in range(1, 4):
            verdict = guard.session("s").check("search", {"q": 1})
            guard.session("s").report(verdict, result="same")
            assert (verdict.count, verdict.source) == (number, "redis")
        assert [call.total for call in guard.record_many([("s", "search", {"q": 1}), ("t", "search", {})])] == [4, 1]
        assert sorted(guard.sessions()) == ["s", "t"]


async def test_a_users_own_asyncio_cluster_client(cluster: Cluster) -> None:
    async with redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port) as client:
        guard = AsyncLoopGuard(client=client, on_outage="raise")
        assert [(await guard.session("s").check("search")).count for _ in range(3)] == [1, 2, 3]
        assert [name async for name in guard.sessions()] == ["s"]


def test_the_readmes_user_with_its_cluster_commands_is_enough(cluster: Cluster, flavour: Flavour) -> None:
    more = re.search(r"On a cluster it needs `(\+asking \+cluster\|slots)` as well", (ROOT / "README.md").read_text())
    assert more
    for node in cluster.nodes:
        url = add_user(node, *more.group(1).split())
    credentials = url.removeprefix("redis://").partition("@")[0]
    url = cluster.url.replace("://", f"://{credentials}@")
    guard = flavour.guard(url, on_outage="raise", timeout=2, keep_args=True)
    session, slot = guard.session("moved"), slot_of("moved")
    session.report(session.check("search"), result="x")
    source = cluster.master_of(slot)
    target = next(node for node in cluster.nodes[:3] if node is not source)
    moving = cluster.move_slot(slot, source, target)
    for _ in range(5):  # prepared, and all four keys gone: asking is needed now
        next(moving)
    assert session.check("search").count == 2
    for _ in moving:
        pass
    assert list(guard.sessions()) == ["moved"]


def test_asyncio_run_twice_on_a_cluster_leaves_no_connection(cluster: Cluster) -> None:
    guard = AsyncLoopGuard(cluster.url, on_outage="raise", timeout=2)

    async def work() -> list[int]:
        return [(await guard.session("s").check("search")).count for _ in range(2)]

    assert asyncio.run(work()) == [1, 2]
    assert asyncio.run(work()) == [3, 4]
    gc.collect()  # an unclosed connection would warn, and a warning is an error here


def test_calls_are_answered_while_their_slot_moves(cluster: Cluster, flavour: Flavour, ledger: Ledger) -> None:
    """Key by key, with the session's own keys split between two nodes for a moment (TRYAGAIN, ASK, MOVED)."""
    guard = flavour.guard(cluster.url, window=10_000, threshold=10_000, timeout=TIMEOUT)
    session, slot = guard.session("moving"), slot_of("moving")
    session.report(session.check("note", call_id="note"), result="x")  # a state key as well
    steps: list[None] = []

    def reshard() -> None:
        for _ in range(MOVES):
            source = cluster.master_of(slot)
            target = next(node for node in cluster.nodes[:3] if node is not source)
            for step in cluster.move_slot(slot, source, target):
                steps.append(step)
                time.sleep(0.001)

    resharding = threading.Thread(target=reshard)
    resharding.start()
    answered, sent = ["note"], 0
    while resharding.is_alive():
        sent += 1
        with ledger.bounded("slot moved under calls"):
            verdict = session.check("search", {"q": 1}, call_id=f"m{sent}")
        if not verdict.degraded:
            answered.append(verdict.call_id)
            assert verdict.total >= len(answered) - 1
    resharding.join()
    ledger.injected("slot moved under calls", len(steps))
    assert len(steps) >= 5 * MOVES
    assert len(answered) - 1 == sent, "each step is short, so every call is answered inside the timeout"
    ledger.compare("slot moved under calls", answered, held_in(cluster.master_of(slot), "moving"))


def test_a_slot_that_stays_half_moved_is_an_outage_of_its_sessions(
    cluster: Cluster, flavour: Flavour, ledger: Ledger
) -> None:
    session, slot = flavour.guard(cluster.url, timeout=TIMEOUT).session("stuck"), slot_of("stuck")
    session.report(session.check("search", call_id="c1"), result="x")
    source = cluster.master_of(slot)
    target = next(node for node in cluster.nodes[:3] if node is not source)
    moving = cluster.move_slot(slot, source, target)
    for _ in range(2):  # prepared, and one of three keys gone
        next(moving)
    ledger.injected("slot half moved")
    with ledger.bounded("slot half moved"):
        assert session.check("search", call_id="c2").degraded
    for _ in moving:
        pass
    after = _call_until_answered(session, ledger, "slot half moved")
    ledger.compare("slot half moved", ["c1", after], held_in(target, "stuck"))


def test_a_slot_that_has_moved_costs_no_call(cluster: Cluster, flavour: Flavour) -> None:
    guard = flavour.guard(cluster.url, on_outage="raise", timeout=2)
    session, slot = guard.session("moved"), slot_of("moved")
    assert session.check("search").count == 1
    source = cluster.master_of(slot)
    target = next(node for node in cluster.nodes[:3] if node is not source)
    for _ in cluster.move_slot(slot, source, target):
        pass
    assert [session.check("search").count for _ in range(2)] == [2, 3]
    for _ in cluster.move_slot(slot, target, source):
        pass
    assert session.check("search").count == 4


def test_a_flushed_script_cache_costs_no_call(cluster: Cluster, flavour: Flavour) -> None:
    session = flavour.guard(cluster.url, on_outage="raise", timeout=2).session("s")
    assert session.check("search").count == 1
    for node in cluster.nodes:
        node.admin.script_flush()
    assert session.check("search").count == 2


def test_a_dead_master_is_replaced(cluster: Cluster, flavour: Flavour, ledger: Ledger) -> None:
    guard = flavour.guard(cluster.url, window=1000, threshold=1000, timeout=TIMEOUT)
    session, slot = guard.session("orphan"), slot_of("orphan")
    master = cluster.master_of(slot)
    replica = cluster.replica_of(master)
    before = [f"b{number}" for number in range(50)]
    for call_id in before:
        assert not session.check("search", call_id=call_id).degraded
    master.wait_replicated()  # what is lost otherwise is the sentinel test's business
    master.kill()
    ledger.injected("cluster master killed")
    after = _call_until_answered(session, ledger, "cluster master killed")
    held = held_in(replica, "orphan")
    ledger.compare("cluster master killed", [*before, after], [c for c in held if c in {*before, after}])
    assert len(held) == len(set(held))
    assert session.check("search").total == len(held) + 1
    master.start()
    cluster.wait_ok()
    _wait_follows(cluster, master, replica)


def test_the_guard_goes_on_after_a_sentinel_failover(flavour: Flavour, ledger: Ledger) -> None:
    with SentinelSetup(find_binaries()[-1]) as setup:
        guard = flavour.guard(setup.url, window=1000, threshold=1000, timeout=TIMEOUT)
        session = guard.session("s")
        before = [f"b{number}" for number in range(200)]
        for call_id in before:
            assert not session.check("search", call_id=call_id).degraded
        # killed at once: what its replica has not received is lost, the README says so, and the ledger shows it
        promoted = setup.fail_over()
        ledger.injected("sentinel failover")
        after = _call_until_answered(session, ledger, "sentinel failover")
        held = held_in(promoted, "s")
        row = ledger.rows["sentinel failover"]
        row.compared += len(before) + 1
        row.lost += len({*before, after} - set(held))
        row.doubled += len(held) - len(set(held))
        assert held[-1] == after
        # a failover loses a tail, never a call in the middle
        assert [call for call in held if call.startswith("b")] == before[: len([c for c in held if c in before])]
        assert len(held) == len(set(held))
        assert session.check("search").total == len(held) + 1


def test_a_promoted_replica_does_not_know_the_scripts(flavour: Flavour) -> None:
    with SentinelSetup(find_binaries()[-1]) as setup:
        session = flavour.guard(setup.url, timeout=TIMEOUT).session("s")
        assert session.check("search").count == 1
        setup.master.wait_replicated()
        promoted = setup.fail_over()
        promoted.admin.script_flush()
        verdict = session.check("search")
        while verdict.degraded:
            time.sleep(0.2)
            verdict = session.check("search")
        assert verdict.count == 2


def test_a_sentinel_that_does_not_answer_leaves_time_for_the_next(flavour: Flavour, ledger: Ledger) -> None:
    with SentinelSetup(find_binaries()[-1]) as setup:
        setup.sentinels[0].freeze()
        ledger.injected("sentinel frozen")
        session = flavour.guard(setup.url, timeout=TIMEOUT).session("s")
        with ledger.bounded("sentinel frozen"):
            assert not session.check("search").degraded


def _call_until_answered(session: object, ledger: Ledger, fault: str) -> str:
    """Call every 50 ms until Redis answers; the id of the answered call. No call takes longer than it may."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    number = 0
    while time.monotonic() < deadline:
        number += 1
        with ledger.bounded(fault):
            verdict = session.check("search", call_id=f"a{number}")
        if not verdict.degraded:
            return f"a{number}"
        time.sleep(0.05)
    pytest.fail(f"no answer for {RECOVERY_SECONDS} s")


def _wait_follows(cluster: Cluster, replica: RedisServer, master: RedisServer) -> None:
    """Wait until a restarted master has become its successor's replica, so that the next test finds six nodes."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    while True:
        role = replica.admin.execute_command("ROLE")
        if role[0] == b"slave" and role[2] == master.port and role[3] == b"connected":
            return
        assert time.monotonic() < deadline, role
        time.sleep(0.05)

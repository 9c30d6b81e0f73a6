"""Threads, forks, event loops and cancelled tasks: one guard serves them all, and closing leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
import time
import warnings
import weakref
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from test_outages import calls_held

from loopfence import AsyncLoopGuard, LoopGuard
from proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from flavour import Flavour
    from servers import RedisServer

THREADS = 32
CALLS = 50
TASKS = 500


def test_32_threads_share_one_guard(store: object, make_guard: Callable[..., LoopGuard]) -> None:
    guard = make_guard(window=2 * THREADS * CALLS, threshold=2 * THREADS * CALLS, timeout=5)
    session = guard.session("s")
    totals: list[int] = []
    start = threading.Barrier(THREADS)

    def work() -> None:
        start.wait()
        for _ in range(CALLS):
            totals.append(session.check("search", {"q": 1}).total)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(totals) == list(range(1, THREADS * CALLS + 1))


def test_threads_that_end_leave_no_connection(newest_server: RedisServer) -> None:
    with LoopGuard(newest_server.url, timeout=5, on_outage="raise") as guard:
        session = guard.session("s")
        held = []
        for _ in range(40):
            thread = threading.Thread(target=lambda: held.append(session.check("search").size))
            thread.start()
            thread.join()
        assert held == [min(number, 20) for number in range(1, 41)]
        gc.collect()
        newest_server.admin.ping()  # a turn of the server, in which it sees the last one go
        # One is the test's own.
        assert newest_server.admin.info("clients")["connected_clients"] == 1


def _fork_and_call(guard: LoopGuard, calls: int) -> None:
    """Run `calls` calls in a forked child of this very process; wait for its success."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for _ in range(calls):
                assert not guard.session("s").check("search", {"pid": "any"}).degraded
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_guard_used_before_a_fork_works_in_parent_and_children(newest_server: RedisServer) -> None:
    with LoopGuard(newest_server.url, window=1000, threshold=1000, timeout=5) as guard:
        session = guard.session("s")
        for child in range(1, 5):
            assert session.check("search", {"pid": "any"}).total == (child - 1) * (CALLS + 1) + 1
            _fork_and_call(guard, CALLS)
        held = calls_held(newest_server)
        assert len(held) == 4 * (CALLS + 1)
        assert len(set(held)) == len(held), "no call id is ever made twice"


def _prefork_worker(guard: LoopGuard, calls: int) -> None:
    for _ in range(calls):
        guard.session("s").check("search", {"q": 1})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_prefork_workers_at_the_same_time(newest_server: RedisServer) -> None:
    context = multiprocessing.get_context("fork")
    with LoopGuard(newest_server.url, window=1000, threshold=1000, timeout=5) as guard:
        guard.session("s").check("search", {"q": 1})
        workers = [context.Process(target=_prefork_worker, args=(guard, CALLS)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
        assert [worker.exitcode for worker in workers] == [0] * 4
        assert guard.session("s").check("search", {"q": 1}).total == 4 * CALLS + 2
        assert max(Counter(calls_held(newest_server)).values()) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_threads_call_leaves_the_child_no_locked_lock(newest_server: RedisServer) -> None:
    with LoopGuard(newest_server.url, window=10_000, threshold=10_000, timeout=5) as guard:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                guard.session("busy").check("search")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                _fork_and_call(guard, 3)
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_asyncio_run_twice_with_one_guard(newest_server: RedisServer) -> None:
    guard = AsyncLoopGuard(newest_server.url, window=50, threshold=50, on_outage="raise", timeout=5)

    async def work() -> list[int]:
        session = guard.session("s")
        return [(await session.check("search")).count for _ in range(5)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asyncio.run(work()) == [1, 2, 3, 4, 5]
        assert asyncio.run(work()) == [6, 7, 8, 9, 10]
        gc.collect()
    asyncio.run(guard.close())
    assert newest_server.admin.info("clients")["connected_clients"] == 1, "only the test's own client is left"


def test_loops_that_have_ended_are_let_go(newest_server: RedisServer) -> None:
    guard = AsyncLoopGuard(newest_server.url, timeout=5)
    loops = []

    async def call() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert not (await guard.session("s").check("search")).degraded

    for _ in range(4):
        asyncio.run(call())
    gc.collect()
    assert [loop() is None for loop in loops] == [True, True, True, False]


def test_one_guard_in_the_loops_of_several_threads(newest_server: RedisServer) -> None:
    guard = AsyncLoopGuard(newest_server.url, window=500, threshold=500, on_outage="raise", timeout=5)
    totals: list[int] = []

    async def work() -> None:
        session = guard.session("s")
        for _ in range(CALLS):
            totals.append((await session.check("search")).total)

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(totals) == list(range(1, 4 * CALLS + 1))


@pytest.mark.parametrize("hours", [1, -1])
def test_a_workers_own_clock_does_not_matter(
    hours: int, flavour: Flavour, newest_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = {"wait": {"pace": 60}}
    session = flavour.guard(newest_server.url, max_age=60, tools=tools, on_outage="raise", timeout=5).session("s")
    assert [session.check(tool).count for tool in ("search", "wait", "search", "wait")] == [1, 1, 2, 2]
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + hours * 3600)
    assert [session.check(tool).count for tool in ("search", "wait")] == [3, 3]


async def test_500_tasks_on_one_loop(newest_server: RedisServer) -> None:
    limit = 2 * TASKS
    async with AsyncLoopGuard(newest_server.url, window=limit, threshold=limit, on_outage="raise", timeout=10) as guard:
        session = guard.session("s")
        verdicts = await asyncio.gather(*(session.check("search", {"q": 1}) for _ in range(TASKS)))
    assert sorted(verdict.total for verdict in verdicts) == list(range(1, TASKS + 1))


async def test_a_cancelled_task_never_shifts_anothers_reply(newest_server: RedisServer) -> None:
    with Proxy(newest_server.address) as proxy:
        async with AsyncLoopGuard(proxy.url, window=500, threshold=500, on_outage="raise", timeout=5) as guard:
            session = guard.session("s")
            for number in range(40):
                proxy.inject("delay", seconds=0.02)
                slow = asyncio.create_task(session.check("slow", {"n": number}))
                await asyncio.sleep(0.005 if number % 2 else 0)
                slow.cancel()
                verdicts = await asyncio.gather(
                    session.check("one", call_id=f"one{number}"), session.check("two", call_id=f"two{number}")
                )
                assert [(v.tool, v.total) for v in verdicts] == [("one", number + 1), ("two", number + 1)]
                with pytest.raises(asyncio.CancelledError):
                    await slow
        held = calls_held(newest_server)
        assert len(held) == len(set(held))


async def test_a_cancellation_is_no_outage(newest_server: RedisServer) -> None:
    with Proxy(newest_server.address) as proxy:
        async with AsyncLoopGuard(proxy.url, timeout=5) as guard:
            session = guard.session("s")
            await session.check("search", {"n": 0})
            proxy.inject("delay", seconds=0.2)
            task = asyncio.create_task(session.check("search", {"n": 1}))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not (await session.check("search", {"n": 2})).degraded


async def test_a_cancelled_probe_lets_the_next_one_in(newest_server: RedisServer) -> None:
    with Proxy(newest_server.address) as proxy:
        async with AsyncLoopGuard(proxy.url, timeout=0.1) as guard:
            session = guard.session("s")
            proxy.inject("blackhole", times=None)
            assert (await session.check("search")).degraded
            await asyncio.sleep(1.3)  # the breaker's first pause is over
            probe = asyncio.create_task(session.check("search"))
            await asyncio.sleep(0.02)
            probe.cancel()
            with pytest.raises(asyncio.CancelledError):
                await probe
            proxy.heal()
            for _ in range(60):
                if not (await session.check("search")).degraded:
                    return
                await asyncio.sleep(0.05)
            pytest.fail("the breaker never closed")


def test_closing_is_idempotent_and_leaves_no_warning(newest_server: RedisServer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard = LoopGuard(newest_server.url, timeout=5)
        guard.session("s").check("search")
        guard.close()
        guard.close()
        del guard
        gc.collect()
    assert newest_server.admin.info("clients")["connected_clients"] == 1


async def test_async_closing_is_idempotent_and_leaves_no_warning(newest_server: RedisServer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard = AsyncLoopGuard(newest_server.url, timeout=5)
        await guard.session("s").check("search")
        await guard.close()
        await guard.close()
        del guard
        gc.collect()
    assert newest_server.admin.info("clients")["connected_clients"] == 1


async def test_guards_of_one_url_share_a_connection_that_is_closed_with_the_last(newest_server: RedisServer) -> None:
    def connections() -> int:
        return sum(client["name"] == "shared" for client in newest_server.admin.client_list())

    url = f"{newest_server.url}?client_name=shared"
    one, other, slower = AsyncLoopGuard(url), AsyncLoopGuard(url, window=9), AsyncLoopGuard(url, timeout=3)
    for guard in (one, other):
        assert not (await guard.session("s").check("search")).degraded
    assert connections() == 1
    assert not (await slower.session("s").check("search")).degraded
    assert connections() == 2
    await slower.close()
    await one.close()
    await one.close()
    assert connections() == 1
    assert (await other.session("s").check("search")).total == 4
    await other.close()
    assert connections() == 0
    assert (await one.session("s").check("search")).total == 5
    await one.close()
    assert connections() == 0


def test_a_users_client_is_left_open(newest_server: RedisServer) -> None:
    with newest_server.connect() as client:
        with LoopGuard(client=client) as guard:
            guard.session("s").check("search")
        assert client.ping()

"""What one record costs on Redis: for the caller, for the server, in memory, and for a whole fleet."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import shutil
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import redis
import redis.asyncio

from benchmarks.harness import Row, by_turns, by_turns_awaited, in_turns, per_call, row
from loopfence import AsyncLoopGuard, LoopGuard
from loopfence.store.keys import session_keys
from loopfence.store.scripts import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMEOUT = 5.0
"""A benchmark must not measure the outage policy."""
QUICK, FULL = (2000, 51, 100), (10_000, 101, 250)
"""Turns of one call each; then turns in a row, and the calls in each of these."""
WORKERS = 20
CALLS = 2000
"""Of each worker of the fleet."""
ARGS = {"query": "price of tea", "page": 1}


def sync_rows(url: str, *, quick: bool) -> Iterator[Row]:
    """A synchronous record against SET and against what other limiters do, call by call and in a row."""
    turns, repeats, calls = QUICK if quick else FULL
    guard = LoopGuard(url, timeout=TIMEOUT)
    session = guard.session("bench-sync")
    plain = redis.Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, protocol=2)
    measures: dict[str, Callable[[int], object]] = {
        "record": lambda index: session.check("search", {"query": "tea", "page": index % 50}),
        "redis-py SET": lambda index: plain.set(f"bench:{index % 50}", "value", ex=60),
        "limits moving window": _limits(url),
        "throttled-py GCRA": _throttled(url),
        "pyrate-limiter Redis bucket": _pyrate(plain),
    }
    # An agent's calls never come in a row: there is always a tool in between, and the caches have gone cold.
    for name, work in list(measures.items())[1:]:
        ours, others = by_turns([measures["record"], work], turns, 1)
        yield row("sync record", ours, "µs", name, others, "<= 1.0" if name == "redis-py SET" else "< 1.0")
    ours, sets = by_turns([measures["record"], measures["redis-py SET"]], repeats, calls)
    yield row(f"sync record, {calls} in a row", ours, "µs", "redis-py SET", sets, "<= 1.0")
    batch = [("bench-many", "search", {"page": page}) for page in range(100)]
    many, single = in_turns(
        [
            lambda: 100e6 / per_call(lambda _: guard.record_many(batch), calls // 20),
            lambda: 1e6 / per_call(measures["record"], calls),
        ],
        repeats,
    )
    yield row("record_many, 100 a batch", many, "records/s", "single records", single, ">= 5")
    guard.close()


def _limits(url: str) -> Callable[[int], object]:
    from limits import RateLimitItemPerMinute
    from limits.storage import RedisStorage
    from limits.strategies import MovingWindowRateLimiter

    limiter = MovingWindowRateLimiter(RedisStorage(url))
    # As many entries as a window of ours holds.
    item = RateLimitItemPerMinute(20)
    return lambda index: limiter.hit(item, "bench", str(index % 50))


def _throttled(url: str) -> Callable[[int], object]:
    from throttled import Throttled, rate_limiter, store

    throttle = Throttled(using="gcra", quota=rate_limiter.per_min(1_000_000), store=store.RedisStore(server=url))
    return lambda index: throttle.limit(f"bench:{index % 50}")


def _pyrate(client: Any) -> Callable[[int], object]:
    from pyrate_limiter import Duration, Rate, RateItem, RedisBucket

    bucket = RedisBucket.init([Rate(20, Duration.MINUTE)], client, "bench-pyrate")
    return lambda index: bucket.put(RateItem(str(index % 50), int(time.time() * 1000)))


def async_rows(url: str, *, quick: bool) -> Iterator[Row]:
    """An asyncio record, alone and among 256 tasks."""
    yield from asyncio.run(_async_rows(url, quick=quick))


async def _async_rows(url: str, *, quick: bool) -> list[Row]:
    turns, repeats, calls = QUICK if quick else FULL
    plain = redis.asyncio.Redis.from_url(url, socket_timeout=TIMEOUT, protocol=2, max_connections=2000)
    guard = AsyncLoopGuard(url, timeout=TIMEOUT)
    alone = guard.session("bench-async")
    works: list[Callable[[int], Any]] = [
        lambda index: alone.check("search", {"query": "tea", "page": index % 50}),
        lambda index: plain.set(f"bench:{index % 50}", "value", ex=60),
    ]
    one, sets = await by_turns_awaited(works, turns, 1)
    one_in_row, sets_in_row = await by_turns_awaited(works, repeats, calls)
    rate_calls, rate_repeats = (300, 5) if quick else (1500, 11)
    sha = await plain.script_load(RECORD.text)
    async with AsyncLoopGuard(f"{url}?client_name=counted", timeout=TIMEOUT) as another:
        await throughput(lambda task, index: _record(another, task, index), rate_calls)
        used = sum(client["name"] == "counted" for client in await plain.client_list())
    ours, theirs = [], []
    for _ in range(rate_repeats + 1):
        ours.append(await throughput(lambda task, index: _record(guard, task, index), rate_calls))
        theirs.append(await throughput(lambda task, index: evalsha_record(plain, sha, task, index), rate_calls))
    await guard.close()
    await plain.aclose()
    return [
        row("async record, one task", one, "µs", "redis-py asyncio SET", sets, "<= 1.0"),
        row(f"async record, {calls} in a row", one_in_row, "µs", "redis-py asyncio SET", sets_in_row, "<= 1.0"),
        row(
            f"async record, 256 tasks ({used} connection)",
            _median(ours),
            "records/s",
            "redis-py asyncio EVALSHA",
            _median(theirs),
            ">= 3",
        ),
    ]


def _median(values: list[float]) -> float:
    """The median of all but the first, which warmed up."""
    return sorted(values[1:])[len(values[1:]) // 2]


async def throughput(work: Callable[[int, int], Any], calls: int, tasks: int = 256) -> float:
    """Calls of `work(task, index)` a second, `8 * calls` of them spread over concurrent tasks."""
    each = max(4, calls * 8 // tasks)

    async def worker(task: int) -> None:
        for index in range(each):
            await work(task, index)

    start = time.perf_counter()
    await asyncio.gather(*(worker(task) for task in range(tasks)))
    return each * tasks / (time.perf_counter() - start)


def _record(guard: AsyncLoopGuard, task: int, index: int) -> Any:
    return guard.session(f"bench-{task}").check("search", {"page": index})


_ids = itertools.count()


def evalsha_record(client: Any, sha: str, task: int, index: int) -> Any:
    """The same record through a redis-py client's pool, as one would send it by hand."""
    keys = session_keys("loopfence", f"bench-{task}")
    signature = f"search:{index:016x}"
    return client.evalsha(sha, 4, *keys, signature, f"id{next(_ids)}", "search", 20, 3_600_000)


def server_rows(url: str, *, quick: bool) -> Iterator[Row]:
    """Time inside the server, from its own statistics."""
    calls, repeats = (500, 5) if quick else (3000, 9)
    client = redis.Redis.from_url(url)
    empty = client.script_load("return 1")

    def server_time(work: Callable[[int], object]) -> float:
        client.config_resetstat()
        for index in range(calls):
            work(index)
        return float(client.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])

    def recorder(window: int, sessions: int = 1) -> Callable[[int], object]:
        guard = LoopGuard(url, window=window, timeout=TIMEOUT, namespace=f"bench-{window}-{sessions}")
        many = [guard.session(f"s{number}") for number in range(sessions)]
        for number in range(sessions):
            batch = [(f"s{number}", "search", {"page": page}) for page in range(window + 5 if sessions == 1 else 1)]
            guard.record_many(batch)
        return lambda index: many[index % sessions].check("search", {"page": index % 50})

    works = [recorder(20), lambda _: client.evalsha(empty, 0), recorder(8), recorder(10_000), recorder(20, 10_000)]
    w20, nothing, w8, w10k, spread = in_turns([partial(server_time, work) for work in works], repeats)
    yield row("server time of one record, window 20", w20, "µs", "script `return 1`", nothing, "<= 15")
    yield row("server time, window 10,000", w10k, "µs", "window 8", w8, "<= 1.2")
    yield row("server time, 10,000 sessions", spread, "µs", "1 session", w20, "<= 1.2")


def memory_rows(url: str) -> Iterator[Row]:
    """Bytes of one session with a full window: half of the calls are repeats, or all are different (the worst case)."""
    client = redis.Redis.from_url(url)
    with LoopGuard(url, timeout=TIMEOUT) as guard:
        for different, (letters, goal) in itertools.product((10, 20), ((10, 1.6), (30, 2.5))):
            name = f"session-{letters}-{different}"
            for page in range(40):
                guard.session(name).check("t" * letters, {"page": page % different})
            size = sum(client.memory_usage(key, samples=0) or 0 for key in session_keys("loopfence", name))
            what = f"Redis memory, tool of {letters} letters, {different} of 20 differ"
            yield row(what, size / 1000, "KB", "", None, f"<= {goal}")


def fleet_rows(url: str) -> Iterator[Row]:
    """20 worker processes over 1,000 sessions, against what this Redis can do at all.

    Once each process runs its 50 sessions at the same time on asyncio, as agents that wait for their models do, and
    once it makes one call after the other.
    """
    benchmark = shutil.which("redis-benchmark")
    if benchmark is None:
        print("fleet rows left out: redis-benchmark is not on PATH")
        return
    host, _, port = url.removeprefix("redis://").partition("/")[0].partition(":")
    command = [benchmark, "-h", host, "-p", port, "-t", "incr", "-n", "100000", "-c", "20", "--csv"]

    def incr() -> float:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return next(float(line.split(",")[1].strip('"')) for line in lines if line.startswith('"INCR"'))

    workers = {"asyncio": _asyncio_worker, "one call at a time": _worker}
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:

        def fleet(worker: Callable[[str, int, int], None]) -> float:
            start = time.perf_counter()
            pool.starmap(worker, [(url, number, CALLS) for number in range(WORKERS)], chunksize=1)
            return WORKERS * CALLS / (time.perf_counter() - start)

        *ours, theirs = in_turns([*(partial(fleet, worker) for worker in workers.values()), incr], 3)
    for how, rate in zip(workers, ours, strict=True):
        name = f"fleet: {WORKERS} processes, 1,000 sessions, {how}"
        yield row(name, rate, "records/s", "redis-benchmark INCR", theirs, ">= 0.25")


def _sessions_of(number: int) -> range:
    """The sessions that fall to one of the workers."""
    return range(number, 1000, WORKERS)


def _worker(url: str, number: int, calls: int) -> None:
    with LoopGuard(url, timeout=TIMEOUT) as guard:
        sessions = [guard.session(f"fleet-{index}") for index in _sessions_of(number)]
        for index in range(calls):
            sessions[index % len(sessions)].check("search", {"page": index})


def _asyncio_worker(url: str, number: int, calls: int) -> None:
    async def agent(guard: AsyncLoopGuard, name: str, each: int) -> None:
        session = guard.session(name)
        for index in range(each):
            await session.check("search", {"page": index})

    async def run() -> None:
        names = [f"fleet-{index}" for index in _sessions_of(number)]
        async with AsyncLoopGuard(url, timeout=TIMEOUT) as guard:
            await asyncio.gather(*[agent(guard, name, calls // len(names)) for name in names])

    asyncio.run(run())

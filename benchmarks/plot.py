"""Draws what a record costs against the window, and throughput against concurrency, for the README."""

from __future__ import annotations

import asyncio
import json
import platform
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

import redis.asyncio
from matplotlib import pyplot as plt

from benchmarks.harness import per_call
from benchmarks.redis_rows import TIMEOUT, evalsha_record, throughput
from loopfence import AsyncLoopGuard, LoopGuard
from loopfence.store.scripts import RECORD

WINDOWS = (8, 20, 100, 1_000, 10_000)
TASKS = (1, 4, 16, 64, 256)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence import Session


def draw(url: str, path: Path) -> None:
    """Measure and draw; takes about half a minute."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for name, cost in _against_window(url).items():
        left.plot(WINDOWS, cost, marker="o", label=name)
    left.set(xscale="log", yscale="log", xlabel="window (calls)", ylabel="µs a record", title="Cost against the window")
    for name, rate in asyncio.run(_against_tasks(url)).items():
        right.plot(TASKS, rate, marker="o", label=name)
    right.set(xscale="log", xlabel="concurrent tasks", ylabel="records a second", title="Throughput, one event loop")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(f"{_machine()}, Python {platform.python_version()}", fontsize=9)
    figure.savefig(path, dpi=110)


def _machine() -> str:
    cpus = Path("/proc/cpuinfo")
    names = [line.partition(": ")[2] for line in cpus.read_text().splitlines() if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def _check(session: Session, index: int) -> object:
    return session.check("search", {"page": index})


def _best(work: Callable[[int], object], calls: int) -> float:
    return min(per_call(work, calls) for _ in range(7))


def _against_window(url: str) -> dict[str, list[float]]:
    costs: dict[str, list[float]] = {"loopfence on Redis": [], "loopfence in memory": [], "deque and json.dumps": []}
    for window in WINDOWS:
        remote = LoopGuard(url, window=window, timeout=TIMEOUT, namespace=f"plot-{window}")
        local = LoopGuard("memory://", window=window)
        calls: deque[tuple[str, str]] = deque(maxlen=window)
        remote.record_many([("plot", "search", {"page": page}) for page in range(window)])

        def naive(index: int, calls: deque[tuple[str, str]] = calls) -> int:
            call = "search", json.dumps({"page": index}, sort_keys=True)
            calls.append(call)
            return calls.count(call)

        for index in range(window):
            naive(index)
            local.check("search", {"page": index})
        session = remote.session("plot")
        works: list[Callable[[int], object]] = [partial(_check, session), partial(_check, local), naive]
        for column, work in zip(costs.values(), works, strict=True):
            column.append(_best(work, 300))
        remote.close()
    return costs


async def _against_tasks(url: str) -> dict[str, list[float]]:
    plain = redis.asyncio.Redis.from_url(url, socket_timeout=TIMEOUT, protocol=2, max_connections=2000)
    sha = await plain.script_load(RECORD.text)
    rates: dict[str, list[float]] = {"loopfence, 1 connection": [], "redis-py EVALSHA, a connection a task": []}
    async with AsyncLoopGuard(url, timeout=TIMEOUT) as guard:
        for tasks in TASKS:
            works: list[Callable[[int, int], Any]] = [
                lambda task, index: guard.session(f"plot-{task}").check("search", {"page": index}),
                lambda task, index: evalsha_record(plain, sha, task, index),
            ]
            for column, work in zip(rates.values(), works, strict=True):
                column.append(max([await throughput(work, 250, tasks) for _ in range(5)]))
    await plain.aclose()
    return rates

"""The workers of the demo: processes over Redis, threads over memory, each with a guard of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from loopfence.cli.opening import raising_guard

if TYPE_CHECKING:
    from loopfence import LoopGuard, Policy, Verdict

TTL = 600.0
"""Seconds that the demo's session stays in Redis, to be looked at."""


class AgentCall(NamedTuple):
    """One call that the agent wants, and the result that its tool would give."""

    tool: str
    args: dict[str, Any]
    result: Any


class Worker(NamedTuple):
    """One worker of the fleet: `pid` is that of its process, None for a thread."""

    number: int
    pid: int | None
    executor: Executor

    def start(self, session: str, call: AgentCall, *, at: float = 0.0) -> Future[Verdict]:
        """Hand a call to the worker, which makes it at the time `at` (seconds since the epoch) or at once."""
        return self.executor.submit(_make, session, call, at)


class Team:
    """`size` workers that share one store; leaving the context stops them."""

    def __init__(self, url: str, policy: Policy, size: int) -> None:
        self.processes = not url.startswith("memory:")
        self._executors = [self._executor(url, policy) for _ in range(size)]
        self.workers: list[Worker] = []

    def _executor(self, url: str, policy: Policy) -> Executor:
        if not self.processes:
            return ThreadPoolExecutor(1, initializer=_open, initargs=(url, policy))
        return ProcessPoolExecutor(
            1,
            # A fork would copy the parent's connections; a spawned worker starts as a worker of a fleet does.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_open_in_process,
            # The URL may hold a password: this way it goes through a pipe, not into the process list.
            initargs=(url, policy),
        )

    def start(self) -> None:
        """Start the workers and wait until each has opened its guard."""
        pids = [executor.submit(os.getpid) for executor in self._executors]
        self.workers = [
            Worker(number, pid.result() if self.processes else None, executor)
            for number, (pid, executor) in enumerate(zip(pids, self._executors, strict=True), start=1)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for executor in self._executors:
            executor.shutdown(wait=False, cancel_futures=True)
        for executor in self._executors:
            executor.shutdown()


_own = threading.local()


def demo_guard(url: str, policy: Policy) -> LoopGuard:
    """The guard that every member of the demo opens for itself."""
    return raising_guard(url, policy=policy, ttl=TTL)


def _open(url: str, policy: Policy) -> None:
    _own.guard = demo_guard(url, policy)


def _open_in_process(url: str, policy: Policy) -> None:
    # Ctrl-C is for the parent, which then stops its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _open(url, policy)


def _make(session: str, call: AgentCall, at: float) -> Verdict:
    time.sleep(max(0.0, at - time.time()))
    run = _own.guard.session(session)
    verdict: Verdict = run.check(call.tool, call.args)
    if verdict.allowed:
        run.report(verdict, result=call.result)
    return verdict

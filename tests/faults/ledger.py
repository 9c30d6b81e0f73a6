"""The account of what the fault tests did: faults, calls compared, lost and doubled, the longest call."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 0.25
SLACK = 0.1  # a call may take this much longer than the guard's timeout
NAP = 0.005


@dataclass
class Row:
    """One kind of fault: how often it struck, what was compared, and the longest call under it."""

    injected: int = 0
    compared: int = 0
    lost: int = 0
    doubled: int = 0
    longest: float = 0.0


class StallMeter:
    """How long this process was kept from running: a thread sleeps a little, over and over, and sees by how much
    it wakes too late. Without it, tests of latency would test how busy the machine is."""

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque(maxlen=1000)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            asleep = time.perf_counter()
            time.sleep(NAP)
            awake = time.perf_counter()
            if awake - asleep > 2 * NAP:
                self._late.append((awake, awake - asleep - NAP))

    def since(self, moment: float) -> float:
        """Seconds by which naps that ended after `moment` were too long."""
        return sum(late for awake, late in list(self._late) if awake > moment)


@dataclass
class Ledger:
    """Adds up what the fault tests did; printed after the run."""

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))

    def __post_init__(self) -> None:
        self._stalls = StallMeter()

    @contextmanager
    def timed(self, fault: str) -> Iterator[None]:
        """Time what is called under `fault`."""
        started = time.perf_counter()
        yield
        row = self.rows[fault]
        row.longest = max(row.longest, time.perf_counter() - started)

    @contextmanager
    def bounded(self, fault: str) -> Iterator[None]:
        """Time one guard call under `fault`: it may take its timeout and 100 ms, and what the machine stole of it."""
        started = time.perf_counter()
        with self.timed(fault):
            yield
        took = time.perf_counter() - started
        assert took - self._stalls.since(started) <= TIMEOUT + SLACK

    def injected(self, fault: str, number: int = 1) -> None:
        self.rows[fault].injected += number

    def compare(self, fault: str, sent: list[str], held: list[str]) -> None:
        """Hold the call ids that must be in the window against those that are; both must be the same."""
        row = self.rows[fault]
        row.compared += len(sent)
        row.lost += len(set(sent) - set(held))
        row.doubled += len(held) - len(set(held))
        assert sorted(sent) == sorted(held)


LEDGER = Ledger()

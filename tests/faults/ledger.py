"""The account of what the fault tests did: faults, calls compared, lost and doubled, the longest call."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 0.25
SLACK = 0.1  # a call may take this much longer than the guard's timeout


@dataclass
class Row:
    """One kind of fault: how often it struck, what was compared, and the longest call under it."""

    injected: int = 0
    compared: int = 0
    lost: int = 0
    doubled: int = 0
    longest: float = 0.0


@dataclass
class Ledger:
    """Adds up what the fault tests did; printed after the run."""

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))

    @contextmanager
    def timed(self, fault: str) -> Iterator[None]:
        """Time one guard call under `fault`."""
        started = time.perf_counter()
        yield
        row = self.rows[fault]
        row.longest = max(row.longest, time.perf_counter() - started)

    def injected(self, fault: str, number: int = 1) -> None:
        self.rows[fault].injected += number

    def compare(self, fault: str, sent: list[str], held: list[str]) -> None:
        """Hold the call ids that must be in the window against those that are; both must be the same, each once."""
        row = self.rows[fault]
        row.compared += len(sent)
        row.lost += len(set(sent) - set(held))
        row.doubled += len(held) - len(set(held))
        assert sorted(sent) == sorted(held)


LEDGER = Ledger()

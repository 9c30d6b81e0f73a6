"""What every fault test shares: sync and async guards alike, and the ledger printed at the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ledger import LEDGER, Ledger

from flavour import FLAVOURS, Flavour

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ledger() -> Ledger:
    return LEDGER


@pytest.fixture(params=list(FLAVOURS))
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    """The sync guard, and the async one driven as if it were."""
    made = FLAVOURS[request.param]()
    yield made
    made.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not LEDGER.rows:
        return
    write = terminalreporter.write_line
    terminalreporter.section("faults")
    write(f"{'fault':<34}{'injected':>9}{'compared':>9}{'lost':>6}{'doubled':>8}{'longest':>12}")
    for name, row in sorted(LEDGER.rows.items()):
        longest = f"{row.longest * 1000:.1f} ms" if row.longest else "-"
        write(f"{name:<34}{row.injected:>9}{row.compared:>9}{row.lost:>6}{row.doubled:>8}{longest:>12}")

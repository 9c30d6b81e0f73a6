"""One minute of the soak; longer ones are run by hand: python tests/soak/soak.py --minutes 10."""

from __future__ import annotations

import pytest

from soak import TIMEOUT, Soak

SECONDS = 60.0
LEAST = 500  # verdicts compared and faults that a minute brings even on a slow machine, by far
LEAST_FAULTS = 50


@pytest.mark.timeout(240)
def test_a_minute_of_faults_loses_and_doubles_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    account = Soak(seed=1).run(SECONDS)
    with capsys.disabled():
        print("", "soak, one minute:", *account.lines(), sep="\n  ")
    assert (account.lost, account.doubled, account.wrong) == (0, 0, 0)
    assert account.compared >= LEAST
    assert account.faults.total() >= LEAST_FAULTS
    # the exact bound is test_outages' business: here twenty workers and two servers share the machine
    assert account.longest <= TIMEOUT + 0.5

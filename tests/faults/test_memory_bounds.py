"""Redis memory: abandoned sessions vanish, a hammered one stays bounded by its window."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from loopfence import LoopGuard

if TYPE_CHECKING:
    from servers import RedisServer

SESSIONS = 10_000
HAMMERED = 200_000
BATCH = 500
KINDS = ("calls", "counts", "state", "args")


def test_abandoned_sessions_vanish_after_their_ttl(newest_server: RedisServer) -> None:
    started = time.monotonic()
    with LoopGuard(newest_server.url, ttl=60, timeout=5, on_outage="raise", keep_args=True) as guard:
        for number in range(SESSIONS):
            session = guard.session(f"s{number}")
            verdict = session.check("search", {"q": number})
            if not number % 10:
                session.report(verdict, result=number)
        assert guard.tracked_sessions() == SESSIONS
        keys = list(newest_server.admin.scan_iter(count=1000))
        assert len(keys) == 3 * SESSIONS + SESSIONS // 10
        pipe = newest_server.admin.pipeline(transaction=False)
        for key in keys:
            pipe.pttl(key)
        spent = (time.monotonic() - started) * 1000
        assert all(60_000 - spent - 1000 <= ttl <= 60_000 for ttl in pipe.execute())
        # the rest of the minute, in no time
        for key in keys:
            pipe.pexpire(key, 1)
        pipe.execute()
        time.sleep(0.05)
        assert guard.tracked_sessions() == 0


def test_a_session_vanishes_by_itself(newest_server: RedisServer) -> None:
    with LoopGuard(newest_server.url, ttl=0.2, timeout=5, on_outage="raise") as guard:
        session = guard.session("s")
        session.report(session.check("search"), result=1)
        assert newest_server.admin.dbsize() == 3
        time.sleep(0.3)
        assert [newest_server.admin.exists(f"loopfence:{{s}}:{kind}") for kind in KINDS] == [0] * 4
        assert session.check("search").total == 1


@pytest.mark.timeout(240)
def test_a_hammered_session_is_bounded_by_its_window(newest_server: RedisServer) -> None:
    def usage() -> int:
        return sum(newest_server.admin.memory_usage(f"loopfence:{{s}}:{kind}", samples=0) or 0 for kind in KINDS)

    sizes = []
    with LoopGuard(newest_server.url, window=20, timeout=5, on_outage="raise", keep_args=True) as guard:
        session = guard.session("s")
        for first in range(0, HAMMERED, BATCH):
            numbers = range(first, first + BATCH)
            verdicts = guard.record_many([("s", f"tool{n % 1000}", {"q": n}) for n in numbers])
            for verdict in verdicts[-10:]:  # the others have left the window of 20, or are about to
                session.report(verdict, result=first, ok=first % 3 == 0)
            if first in (HAMMERED // 100, HAMMERED - BATCH):
                sizes.append(usage())
        assert newest_server.admin.zcard("loopfence:{s}:calls") == 20
        assert newest_server.admin.hlen("loopfence:{s}:counts") == 20
        assert newest_server.admin.hlen("loopfence:{s}:args") == 20
    early, late = sizes
    # hash tables double and halve: what must not show is growth with the number of calls
    assert late <= 2 * early

"""Lost, late and torn replies: each logical call is in the window once, whatever the client re-sends."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from test_outages import calls_held

from proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger import Ledger

    from flavour import Flavour
    from servers import RedisServer

CALLS = 30
PATIENT = 5.0  # what counts here is the count, also where the machine is busy
# kind, its details, and whether a re-sent request can still be answered inside the timeout
TROUBLES = {
    "reply dropped": ("drop", {}),
    "reply dropped twice": ("drop", {"times": 2}),
    "connection refused": ("refuse", {}),
    "cut after 1 byte": ("cut", {"size": 1}),
    "cut in mid-reply": ("cut", {"size": 9}),
    "reply dripping": ("drip", {"seconds": 0.002}),
    "reply a bit late": ("delay", {"seconds": 0.05}),
}


@pytest.fixture
def proxy(newest_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(newest_server.address) as between:
        yield between


def _call_through_trouble(session: object, proxy: Proxy, trouble: str) -> list[int]:
    """CALLS calls of three tools in turn, every third in trouble; the counts that the verdicts gave."""
    kind, details = TROUBLES[trouble]
    counts = []
    for number in range(CALLS):
        if number % 3 == 1:
            proxy.inject(kind, **details)
        verdict = session.check(f"tool{number % 3}", {"same": True}, call_id=f"c{number}")
        assert not verdict.degraded
        counts.append(verdict.count)
    return counts


@pytest.mark.parametrize("trouble", list(TROUBLES))
def test_a_guards_own_client_counts_once(
    trouble: str, flavour: Flavour, proxy: Proxy, newest_server: RedisServer, ledger: Ledger
) -> None:
    session = flavour.guard(proxy.url, window=CALLS, threshold=CALLS, timeout=PATIENT).session("s")
    with ledger.timed(f"{trouble}, {CALLS} calls"):
        counts = _call_through_trouble(session, proxy, trouble)
    assert counts == [number // 3 + 1 for number in range(CALLS)]
    ledger.injected(trouble, sum(proxy.injected.values()))
    ledger.compare(trouble, [f"c{number}" for number in range(CALLS)], calls_held(newest_server))


@pytest.mark.parametrize("trouble", list(TROUBLES))
def test_a_users_client_with_its_default_retries_counts_once(
    trouble: str, flavour: Flavour, proxy: Proxy, newest_server: RedisServer, ledger: Ledger
) -> None:
    client = flavour.client(proxy.url)
    session = flavour.guard(client=client, window=CALLS, threshold=CALLS).session("s")
    counts = _call_through_trouble(session, proxy, trouble)
    assert counts == [number // 3 + 1 for number in range(CALLS)]
    ledger.injected(trouble, sum(proxy.injected.values()))
    ledger.compare(trouble, [f"c{number}" for number in range(CALLS)], calls_held(newest_server))


def test_a_call_id_of_its_own_is_made_before_the_first_attempt(
    flavour: Flavour, proxy: Proxy, newest_server: RedisServer, ledger: Ledger
) -> None:
    session = flavour.guard(proxy.url, timeout=PATIENT).session("s")
    for number in range(1, 4):
        proxy.inject("drop", times=2)
        assert session.check("search", {"q": 1}).count == number
    assert proxy.injected["drop"] == 6
    assert len(calls_held(newest_server)) == 3


def test_random_troubles_against_a_serial_count(
    flavour: Flavour, proxy: Proxy, newest_server: RedisServer, ledger: Ledger
) -> None:
    rng = random.Random(flavour.name)
    session = flavour.guard(proxy.url, window=400, threshold=400, timeout=PATIENT).session("s")
    seen: dict[str, int] = {}
    for number in range(300):
        if rng.random() < 0.4:
            kind, details = TROUBLES[rng.choice(list(TROUBLES))]
            proxy.inject(kind, **details)
        tool = f"tool{rng.randrange(5)}"
        seen[tool] = seen.get(tool, 0) + 1
        verdict = session.check(tool, call_id=f"c{number}")
        assert (verdict.total, verdict.size, verdict.degraded) == (seen[tool], number + 1, False)
    ledger.injected("random troubles", sum(proxy.injected.values()))
    ledger.compare("random troubles", [f"c{number}" for number in range(300)], calls_held(newest_server))


def test_the_same_call_id_from_another_worker_is_a_duplicate(
    flavour: Flavour, make_guard: Callable[..., object], store: object
) -> None:
    workers = [make_guard(threshold=2), make_guard(threshold=2)]
    first, second = (worker.session("s").check("pay", {"bill": 1}, call_id="job-1") for worker in workers)
    assert (first.count, first.duplicate, first.allowed) == (1, False, True)
    assert (second.count, second.duplicate, second.allowed) == (1, True, True)
    third = workers[1].session("s").check("pay", {"bill": 1}, call_id="job-2")
    assert (third.count, third.duplicate, third.allowed) == (2, False, False)


def test_a_report_whose_reply_was_lost_counts_once(flavour: Flavour, proxy: Proxy) -> None:
    session = flavour.guard(proxy.url, timeout=PATIENT, failures=3).session("s")
    for number in range(2):
        verdict = session.check("search", {"q": number})
        assert verdict.allowed
        proxy.inject("drop")
        session.report(verdict, ok=False)
    assert session.check("search", {"q": 9}).rule == "failures"


def test_a_reply_later_than_the_timeout_never_becomes_the_next_ones(
    flavour: Flavour, proxy: Proxy, newest_server: RedisServer
) -> None:
    session = flavour.guard(proxy.url, window=50, threshold=50, timeout=0.1).session("s")
    assert session.check("first", {"n": 0}, call_id="c0").count == 1
    proxy.inject("delay", seconds=0.3)
    late = session.check("late", {"n": 1}, call_id="c1")
    assert late.degraded
    counts = []
    for number in range(2, 40):
        verdict = session.check("other", {"n": 2}, call_id=f"c{number}")
        if not verdict.degraded:
            counts.append(verdict.count)
        if len(counts) == 3:
            break
        import time

        time.sleep(0.1)
    assert counts == [1, 2, 3]

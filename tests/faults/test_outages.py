"""Redis slow, gone, restarted or refusing: no call hangs, none raises but in "raise", and the guard heals itself."""

from __future__ import annotations

import logging
import socket
import time
from typing import TYPE_CHECKING

import pytest
from breakage import BREAKAGES, Breakage
from ledger import TIMEOUT, Ledger

from loopfence import Level, LoopGuard, StoreError, StoreUnavailableError
from servers import RedisServer, find_binaries, free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from flavour import Flavour

HEAL_SECONDS = 4.0  # the second pause of the breaker is at most 2 s and a fifth of jitter


def calls_held(server: RedisServer, session: str = "s") -> list[str]:
    """The call ids in the window, oldest first."""
    members = server.admin.zrange(f"loopfence:{{{session}}}:calls", 0, -1)
    return [member.decode().split(" ")[1] for member in members]


def check_until_healed(session: object, first: int = 1000) -> list[str]:
    """Call until Redis answers again; the ids of the calls that were made, the answered one last."""
    deadline = time.monotonic() + HEAL_SECONDS
    sent = []
    while time.monotonic() < deadline:
        sent.append(f"h{first + len(sent)}")
        if not session.check("probe", {"n": len(sent)}, call_id=sent[-1]).degraded:
            return sent
        time.sleep(0.05)
    pytest.fail(f"the guard did not heal in {HEAL_SECONDS} s")


@pytest.mark.parametrize("breakage", BREAKAGES, ids=str)
def test_a_local_window_guards_while_redis_is_out(
    breakage: Breakage,
    flavour: Flavour,
    start_server: Callable[..., RedisServer],
    ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = start_server()
    session = flavour.guard(server.url, timeout=TIMEOUT).session("s")
    for number in (1, 2):
        verdict = session.check("search", {"q": number}, call_id=f"a{number}")
        assert (verdict.source, verdict.degraded, verdict.count) == ("redis", False, 1)

    caplog.set_level(logging.INFO, logger="loopfence")
    breakage.strike(server)
    ledger.injected(breakage.name)
    verdicts = []
    for number in range(1, 6):
        with ledger.bounded(breakage.name):
            verdicts.append(session.check("fetch", {"url": "x"}, call_id=f"b{number}"))
    assert [v.degraded for v in verdicts] == [True] * 5
    assert [v.source for v in verdicts] == ["local"] * 5
    assert [v.count for v in verdicts] == [1, 2, 3, 4, 5]
    assert [v.level for v in verdicts] == [Level.ALLOW] * 2 + [Level.BLOCK] * 3

    breakage.heal(server)
    sent = check_until_healed(session)
    answered = (["a1", "a2"] if breakage.keeps else []) + sent[-1:]
    held = calls_held(server)
    # a call that got no answer in time may have come through all the same, but never twice
    ledger.compare(breakage.name, answered, [call for call in held if call in answered])
    assert len(held) == len(set(held))
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.ERROR, logging.WARNING], "one line when Redis goes, one when it is back"


@pytest.mark.parametrize("breakage", BREAKAGES, ids=str)
@pytest.mark.parametrize("on_outage", ["allow", "block", "raise"])
def test_the_outage_policy_answers(
    breakage: Breakage,
    on_outage: str,
    flavour: Flavour,
    start_server: Callable[..., RedisServer],
    ledger: Ledger,
) -> None:
    server = start_server()
    session = flavour.guard(server.url, timeout=TIMEOUT, on_outage=on_outage).session("s")
    before = session.check("search", {"q": 1})
    breakage.strike(server)
    ledger.injected(breakage.name)
    for _ in range(4):
        if on_outage == "raise":
            with ledger.bounded(breakage.name), pytest.raises(StoreError):
                session.check("search", {"q": 1})
            with pytest.raises(StoreError):
                session.report(before, result="x")
        else:
            with ledger.bounded(breakage.name):
                verdict = session.check("search", {"q": 1})
            level = {"allow": Level.ALLOW, "block": Level.BLOCK}[on_outage]
            rule = {"allow": None, "block": "outage"}[on_outage]
            assert (verdict.level, verdict.rule, verdict.degraded) == (level, rule, True)
            session.report(verdict, result="x")
            assert session.peek("search", {"q": 1}).degraded
    breakage.heal(server)


def test_no_answer_is_store_unavailable(flavour: Flavour, start_server: Callable[..., RedisServer]) -> None:
    server = start_server()
    session = flavour.guard(server.url, timeout=TIMEOUT, on_outage="raise").session("s")
    session.check("search")
    server.freeze()
    for _ in range(3):  # the call that waited, and those that the breaker answers
        with pytest.raises(StoreUnavailableError):
            session.check("search")


def test_a_dead_redis_costs_nothing_once_the_breaker_is_open(
    flavour: Flavour, start_server: Callable[..., RedisServer], ledger: Ledger
) -> None:
    server = start_server()
    session = flavour.guard(server.url, timeout=TIMEOUT).session("s")
    session.check("search", {"q": 0})
    server.freeze()
    session.check("search", {"q": 0})
    with ledger.bounded("1000 calls, breaker open"):
        for number in range(1000):
            session.check("search", {"q": number})


def test_connection_refused_from_the_start(flavour: Flavour, ledger: Ledger) -> None:
    port = free_port()
    with ledger.bounded("connection refused"):
        guard = flavour.guard(f"redis://127.0.0.1:{port}/0", timeout=TIMEOUT)
        session = guard.session("s")
        verdict = session.check("search")
    ledger.injected("connection refused")
    assert (verdict.degraded, verdict.source, verdict.level) == (True, "local", Level.ALLOW)
    with RedisServer(find_binaries()[-1], port=port) as server:
        sent = check_until_healed(session)
        assert calls_held(server) == sent[-1:]


def test_a_host_that_never_answers(flavour: Flavour, ledger: Ledger) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        # with its queue full, the kernel drops further connection requests, as a dead host does
        queue = [socket.socket() for _ in range(8)]
        for filler in queue:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        session = flavour.guard(url, timeout=TIMEOUT).session("s")
        with ledger.bounded("host never answers"):
            verdict = session.check("search")
        ledger.injected("host never answers")
        assert verdict.degraded
        assert ledger.rows["host never answers"].longest >= TIMEOUT * 0.9
        for filler in queue:
            filler.close()


def test_progress_and_reports_made_locally_count_locally(start_server: Callable[..., RedisServer]) -> None:
    server = start_server()
    with LoopGuard(server.url, timeout=TIMEOUT) as guard:
        session = guard.session("s")
        server.freeze()
        for number in range(4):
            verdict = session.check("poll", {"job": 7})
            session.report(verdict, result=f"{number} %")
            assert (verdict.level, verdict.degraded) == (Level.ALLOW, True)


def test_a_halt_while_redis_is_out_stops_this_process(start_server: Callable[..., RedisServer]) -> None:
    server = start_server()
    with LoopGuard(server.url, timeout=TIMEOUT) as guard:
        session = guard.session("s")
        server.freeze()
        session.halt("operator")
        assert session.check("search").level is Level.STOP


def test_the_breaker_closes_for_all_sessions(flavour: Flavour, start_server: Callable[..., RedisServer]) -> None:
    server = start_server()
    guard = flavour.guard(server.url, timeout=TIMEOUT)
    guard.session("one").check("search")
    server.freeze()
    assert guard.session("one").check("search").degraded
    assert guard.session("two").check("search").degraded
    server.thaw()
    check_until_healed(guard.session("one"))
    assert not guard.session("two").check("search").degraded

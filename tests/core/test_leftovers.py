"""What stays in Redis, and for how long: TTLs, readers that write nothing, and nothing of what has left."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest
from counting import EDIT, OTHER, SEARCH, call, counts

from loopfence import LoopGuard, StoreError, ToolRule, signature

if TYPE_CHECKING:
    from keyspace import Keys

    from conftest import StoreUnderTest
    from servers import RedisServer

EDIT_SIGNATURE = signature(*EDIT)
HALTED_MS = 86_400_000


# -- TTLs


def test_every_key_has_the_ttl_after_every_kind_of_step(redis_store: StoreUnderTest, keys: Keys) -> None:
    guard = redis_store.guard(ttl=3600, keep_args=True, tools={"search": ToolRule(pace=60)})
    session = guard.session("run")
    verdict = session.check(*SEARCH, call_id="1")
    steps = {
        "check": lambda: session.check(*SEARCH),
        "duplicate": lambda: session.check(*SEARCH, call_id="1"),
        "report": lambda: session.report(verdict, result=1),
        "note": session.note_progress,
    }
    for name, step in steps.items():
        keys.expire_in_a_minute()
        step()
        expected = dict.fromkeys(keys.all(), 3_600_000)
        if name == "duplicate":
            # Nothing was kept anew, and nothing is kept longer than its calls.
            expected["loopfence:{run}:args"] = keys.ttls()["loopfence:{run}:args"]
        assert keys.ttls() == expected, name


@pytest.mark.parametrize("by", ["operator", "policy"])
def test_a_halted_session_has_a_ttl_of_a_day(redis_store: StoreUnderTest, keys: Keys, by: str) -> None:
    session = redis_store.guard(threshold=2, stop=3, keep_args=True).session("run")
    verdict = session.check(*SEARCH)
    counts(session, SEARCH, *[SEARCH] * (by == "policy"))
    if by == "operator":
        session.halt("enough")
    for late in (lambda: session.report(verdict, result="late"), session.note_progress):
        late()
        assert keys.ttls() == dict.fromkeys(keys.all(), HALTED_MS)
    assert keys.ttls() == dict.fromkeys(keys.all(), HALTED_MS)
    call(session, OTHER)
    assert keys.ttls() == dict.fromkeys(keys.all(), HALTED_MS)


def test_a_step_that_may_set_no_ttl_leaves_no_key(redis_server: RedisServer) -> None:
    redis_server.admin.acl_setuser("timeless", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-pexpire"])
    url = redis_server.url.replace("://", "://timeless:x@")
    with LoopGuard(redis_server.url, timeout=10, on_outage="raise") as able:
        able.session("recorded").check(*SEARCH, call_id="1")
    before = redis_server.admin.keys()
    for step in (
        lambda session: session.check(*SEARCH),
        lambda session: session.report_call(*SEARCH, call_id="1", result=1),
        lambda session: session.note_progress(),
        lambda session: session.halt("enough"),
    ):
        for name in ("recorded", "new"):
            # A guard each: a refusal opens the breaker.
            guard = LoopGuard(url, timeout=10, on_outage="raise", keep_args=True)
            with guard, contextlib.suppress(StoreError):
                step(guard.session(name))
            assert sorted(redis_server.admin.keys()) == sorted(before)
    redis_server.admin.acl_deluser("timeless")


def test_a_longer_ttl_than_a_day_is_kept_when_halted(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard(ttl=2 * 86_400).session("run")
    session.halt("enough")
    assert keys.ttls() == {"loopfence:{run}:state": 2 * HALTED_MS}


def test_a_session_vanishes_with_its_ttl(store: StoreUnderTest) -> None:
    guard = store.guard(ttl=0.3)
    counts(guard.session("run"), SEARCH, SEARCH)
    time.sleep(0.35)
    assert (list(guard.sessions()), len(guard.session("run"))) == ([], 0)
    assert counts(guard.session("run"), SEARCH) == [1]


@pytest.mark.parametrize("max_age", [None, 1e-6])
def test_peek_and_reading_write_nothing_not_even_a_ttl(
    redis_store: StoreUnderTest, keys: Keys, max_age: float | None
) -> None:
    tools = {"search": ToolRule(pace=1e-6), "think": ToolRule(exempt=True)}
    guard = redis_store.guard(window=3, threshold=2, stop=3, max_age=max_age, tools=tools, keep_args=True)
    session = guard.session("run")
    for result in ("one", "two"):
        call(session, result=result)
        call(session, OTHER, ok=False)
    keys.expire_in_a_minute()
    before = keys.dumps()
    for named in (SEARCH, OTHER, EDIT, ("think", None)):
        session.peek(*named)
        session.would_raise(*named)
    session.check("think")
    session.snapshot()
    session.recent_keys()
    session.is_looping()
    assert len(session) == (3 if max_age is None else 0)
    assert keys.dumps() == before
    assert set(keys.ttls().values()) == {60_000}


def test_a_report_of_a_call_that_is_too_old_writes_nothing(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard(max_age=1e-6).session("run")
    session.report(session.check(*SEARCH), ok=False)
    assert list(keys.all()) == ["loopfence:{run}:calls", "loopfence:{run}:counts"]


def test_reading_a_session_that_is_not_there_makes_no_key(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard().session("run")
    assert (session.peek(*SEARCH).count, len(session), session.recent_keys()) == (1, 0, [])
    session.report_call(*SEARCH, call_id="never made", result=1)
    assert keys.all() == {}


# -- what has left


def test_nothing_of_a_call_or_a_tool_stays_when_it_has_left_the_window(redis_store: StoreUnderTest, keys: Keys) -> None:
    tools = {"edit": ToolRule(progress=True), "poll": ToolRule(pace=60)}
    session = redis_store.guard(window=2, threshold=2, keep_args=True, tools=tools).session("run")
    call(session, result="one")
    call(session, OTHER, result="one")
    call(session, EDIT, ok=True)
    call(session, ("poll", None), ok=False)
    session.note_progress()
    call(session, OTHER, ok=True)
    for number in "12":
        session.check("last", call_id=number)
    last = signature("last")
    found = keys.all()
    assert [member for member, _ in found["loopfence:{run}:calls"]] == [f"{last} 1", f"{last} 2"]
    assert found["loopfence:{run}:counts"] == {last: "2"}
    assert found["loopfence:{run}:args"] == {last: "{}"}
    state = found["loopfence:{run}:state"]
    assert {field for field in state if ":" in field} == {f"sig:{last}"}
    assert set(state) - {f"sig:{last}"} == {"version", "epoch", "epoch_by", "epoch_before", "epoch_token"}


def test_what_is_too_old_leaves_nothing_either(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard(max_age=1e-6, keep_args=True, tools={"*": ToolRule(pace=60)}).session("run")
    counts(session, SEARCH, OTHER, EDIT)
    found = keys.all()
    assert found["loopfence:{run}:counts"] == {EDIT_SIGNATURE: "1"}
    assert list(found["loopfence:{run}:args"]) == [EDIT_SIGNATURE]
    assert set(found["loopfence:{run}:state"]) == {"version", f"sig:{EDIT_SIGNATURE}"}


def test_in_memory_nothing_of_a_call_stays_either() -> None:
    session = LoopGuard("memory://", window=2, threshold=2).session("run")
    for number in range(5):
        call(session, ("search", {"n": number}), ok=False)
    for _ in range(2):
        session.check("last")
    held = session._store.contents("run")
    assert held.texts == {signature("last"): "{}"}
    assert (held.repeats, held.streaks) == ({signature("last"): 2}, {})


def test_reset_leaves_no_key(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard(keep_args=True).session("run")
    call(session, result="one")
    session.halt("enough")
    assert len(keys.all()) == 4
    session.reset()
    assert keys.all() == {}

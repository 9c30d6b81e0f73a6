"""Values put into the keys by hand: a step that meets them fails alone, says so, and leaves the window as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from counting import EDIT, OTHER, SEARCH, call, counts

from loopfence import LoopGuard, Session, StoreError, ToolRule, signature
from loopfence.errors import CorruptSessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from keyspace import Keys

    from conftest import StoreUnderTest

CALLS, COUNTS, STATE, ARGS = (f"loopfence:{{run}}:{kind}" for kind in ("calls", "counts", "state", "args"))
SEARCH_SIGNATURE, EDIT_SIGNATURE = signature(*SEARCH), signature(*EDIT)
TOOLS = {"edit": ToolRule(progress=True)}

# The oldest call in the full window is a search, reported; the next ones are an edit and another search.
DAMAGE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "calls of another type": (CALLS, lambda r: r.set(CALLS, "x", keepttl=True)),
    "counts of another type": (COUNTS, lambda r: r.set(COUNTS, "x", keepttl=True)),
    "state of another type": (STATE, lambda r: r.set(STATE, "x", keepttl=True)),
    "args of another type": (ARGS, lambda r: r.set(ARGS, "x", keepttl=True)),
    "a member that is no call": (CALLS, lambda r: r.zadd(CALLS, {"nonsense": 1})),
    "a count that is no number": (COUNTS, lambda r: r.hset(COUNTS, SEARCH_SIGNATURE, "many")),
    "an epoch that is no number": (STATE, lambda r: r.hset(STATE, "epoch", "soon")),
    "the layout of another release": (STATE, lambda r: r.hset(STATE, "version", "2")),
    "a signature's field": (STATE, lambda r: r.hset(STATE, f"sig:{SEARCH_SIGNATURE}", "1 2")),
    "a tool's field": (STATE, lambda r: r.hset(STATE, "tool:search", "1 many 3 x 4")),
    "the oldest call's field": (STATE, lambda r: r.hset(STATE, f"call:{SEARCH_SIGNATURE} 1", "yes")),
}
HARMLESS_TO_PEEK = {"a member that is no call", "args of another type", "the oldest call's field"}
HARMLESS_TO_REPORT = {"a member that is no call", "args of another type", "the oldest call's field"}


def full(guard: LoopGuard) -> Session:
    """A session with a full window, with reports and with arguments."""
    session = guard.session("run")
    for number, named in (("1", SEARCH), ("2", EDIT), ("3", SEARCH)):
        verdict = session.check(*named, call_id=number)
        if number != "3":
            session.report(verdict, result="one")
    return session


@pytest.fixture
def session(redis_store: StoreUnderTest) -> Session:
    return full(redis_store.guard(window=3, keep_args=True, tools=TOOLS))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_check_that_meets_damage_fails_and_leaves_everything_as_it_was(
    session: Session, keys: Keys, damage: str
) -> None:
    DAMAGE[damage][1](keys.client)
    before = readable(keys)
    with pytest.raises(CorruptSessionError, match=r"loopfence:\{run\}:\* hold what loopfence did not write"):
        session.check(*SEARCH, call_id="4")
    assert readable(keys) == before


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_peek_that_meets_damage_fails(session: Session, keys: Keys, damage: str) -> None:
    DAMAGE[damage][1](keys.client)
    if damage in HARMLESS_TO_PEEK:
        assert session.peek(*SEARCH).size == 3
    else:
        with pytest.raises(CorruptSessionError):
            session.peek(*SEARCH)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_report_that_meets_damage_fails_and_is_not_half_done(session: Session, keys: Keys, damage: str) -> None:
    DAMAGE[damage][1](keys.client)
    before = readable(keys)
    if damage in HARMLESS_TO_REPORT:
        session.report_call(*SEARCH, call_id="3", result="two")
    else:
        with pytest.raises(CorruptSessionError):
            session.report_call(*SEARCH, call_id="3", result="two")
        assert readable(keys) == before


@pytest.mark.parametrize("damage", [name for name, (key, _) in DAMAGE.items() if key == STATE])
def test_a_note_or_a_halt_never_wipes_a_state_that_it_cannot_read(session: Session, keys: Keys, damage: str) -> None:
    DAMAGE[damage][1](keys.client)
    before = readable(keys)
    unreadable = damage in {"state of another type", "an epoch that is no number", "the layout of another release"}
    for step in (session.note_progress, lambda: session.halt("enough")):
        if unreadable:
            with pytest.raises(CorruptSessionError):
                step()
            assert readable(keys) == before
        else:
            step()
            assert readable(keys) != before


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_reset_repairs_a_session(session: Session, keys: Keys, damage: str) -> None:
    DAMAGE[damage][1](keys.client)
    session.reset()
    assert keys.all() == {}
    assert counts(session, SEARCH, SEARCH) == [1, 2]


@pytest.mark.parametrize("damage", ["calls of another type", "a count that is no number", "a tool's field"])
def test_a_snapshot_of_a_damaged_session_fails_in_words(session: Session, keys: Keys, damage: str) -> None:
    DAMAGE[damage][1](keys.client)
    for read in (session.snapshot, session.recent_keys, session.is_looping, lambda: len(session)):
        with pytest.raises(StoreError, match="reset"):
            read()


@pytest.mark.parametrize("on_outage", ["local", "allow", "block"])
def test_the_outage_policy_answers_for_a_damaged_session_only(
    redis_store: StoreUnderTest, keys: Keys, on_outage: str
) -> None:
    guard = redis_store.guard(window=3, keep_args=True, tools=TOOLS, on_outage=on_outage)
    session = full(guard)
    keys.client.hset(STATE, "tool:search", "nonsense")
    verdict = session.check(*SEARCH)
    assert (verdict.degraded, verdict.source, verdict.allowed) == (True, "local", on_outage != "block")
    assert verdict.rule == ("outage" if on_outage == "block" else None)
    assert not guard.session("another").check(*SEARCH).degraded


def test_a_field_that_is_not_ours_changes_nothing_and_does_no_harm(session: Session, keys: Keys) -> None:
    keys.client.hset(STATE, "a note of the operator", "keep an eye on it")
    keys.client.hset(COUNTS, "strange", "7")
    assert session.check(*SEARCH).allowed
    call(session, OTHER, result=1)
    assert keys.all()[STATE]["a note of the operator"] == "keep an eye on it"


def readable(keys: Keys) -> dict[str, Any]:
    """Every key of a type that it may have, with its content; the others as they are."""
    found: dict[str, Any] = {}
    for name in keys.names():
        found[name] = keys.client.get(name) if keys.client.type(name) == b"string" else keys.content(name)
    return found

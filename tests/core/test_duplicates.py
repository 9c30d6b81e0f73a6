"""Calls that only look repeated: the same occurrence, sent again, is counted once."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import pytest
from counting import OTHER, SEARCH, clocked, counts

from loopfence.call_ids import _Ids

if TYPE_CHECKING:
    from conftest import StoreUnderTest
    from loopfence import Session


@pytest.fixture
def session(store: StoreUnderTest) -> Session:
    return store.guard(window=6, threshold=3).session("run")


def test_the_same_call_id_is_one_call(session: Session) -> None:
    first, second = (session.check(*SEARCH, call_id="turn 7") for _ in range(2))
    assert (first.count, first.size, first.duplicate) == (1, 1, False)
    assert (second.count, second.size, second.duplicate) == (1, 1, True)
    assert session.peek(*SEARCH).count == 2


def test_a_call_id_is_one_call_for_equal_signatures_only(session: Session) -> None:
    verdicts = [session.check(*named, call_id="turn 7") for named in (SEARCH, OTHER, SEARCH)]
    assert [(verdict.size, verdict.duplicate) for verdict in verdicts] == [(1, False), (2, False), (2, True)]


def test_a_call_id_is_one_call_in_one_session_only(store: StoreUnderTest) -> None:
    guard = store.guard()
    verdicts = [guard.session(name).check(*SEARCH, call_id="turn 7") for name in ("one", "two")]
    assert [verdict.duplicate for verdict in verdicts] == [False, False]


def test_call_ids_that_differ_past_their_sixteenth_character_differ(session: Session) -> None:
    verdicts = [session.check(*SEARCH, call_id="a long identifier " + end) for end in "112"]
    assert [(verdict.count, verdict.duplicate) for verdict in verdicts] == [(1, False), (1, True), (2, False)]


def test_without_a_call_id_every_call_has_one_of_its_own(session: Session) -> None:
    verdicts = [session.check(*SEARCH) for _ in range(3)]
    assert len({verdict.call_id for verdict in verdicts}) == 3
    assert [verdict.duplicate for verdict in verdicts] == [False] * 3


def test_a_duplicate_is_judged_anew_from_the_present_counts(session: Session) -> None:
    first = session.check(*SEARCH, call_id="job")
    counts(session, SEARCH, SEARCH)
    again = session.check(*SEARCH, call_id="job")
    assert (first.allowed, again.allowed, again.count, again.duplicate) == (True, False, 3, True)
    session.note_progress()
    once_more = session.check(*SEARCH, call_id="job")
    assert (once_more.allowed, once_more.count, once_more.total) == (True, 1, 3)


def test_a_call_id_that_has_left_the_window_is_a_new_call(session: Session) -> None:
    session.check(*SEARCH, call_id="job")
    counts(session, *[OTHER] * 6)
    again = session.check(*SEARCH, call_id="job")
    assert (again.count, again.duplicate) == (1, False)


def test_a_call_id_that_is_too_old_is_a_new_call() -> None:
    guard, clock = clocked(max_age=10)
    guard.check(*SEARCH, call_id="job")
    clock.now += 10
    assert not guard.check(*SEARCH, call_id="job").duplicate


def test_a_call_id_that_is_too_old_is_a_new_call_by_the_time_that_passes(store: StoreUnderTest) -> None:
    session = store.guard(max_age=0.2).session("run")
    session.check(*SEARCH, call_id="job")
    time.sleep(0.21)
    again = session.check(*SEARCH, call_id="job")
    assert (again.duplicate, again.count, again.total, again.size) == (False, 1, 1, 1)
    assert len(session) == 1


@pytest.mark.parametrize("random", [b"\xfb\xef\xbe" * 2, b"\xff" * 6, bytes(6)], ids=["62", "63", "0"])
def test_made_ids_differ_and_need_no_care_on_a_command_line(monkeypatch: pytest.MonkeyPatch, random: bytes) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: random[:size])
    ids = _Ids()
    made = [ids.new() for _ in range(4096)]
    assert len(set(made)) == 4096
    assert [an_id for an_id in made if not re.fullmatch(r"[A-Za-z0-9._]{9}", an_id)] == []

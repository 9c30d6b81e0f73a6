"""A loop is the same call repeated without progress: each sentence of that rule, on every store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from counting import EDIT, OTHER, SEARCH, call, clocked, counts, counts_of_results

from loopfence import LoopGuard, ToolRule

if TYPE_CHECKING:
    from conftest import StoreUnderTest
    from loopfence import Session

TOOLS = {"edit": ToolRule(progress=True), "write": ToolRule(progress=lambda args: args["file"] != "notes")}


@pytest.fixture
def session(store: StoreUnderTest) -> Session:
    return store.guard(window=6, threshold=6, tools=TOOLS).session("run")


@pytest.fixture
def strict(store: StoreUnderTest) -> Session:
    return store.guard(window=6, threshold=3, tools=TOOLS).session("strict run")


# -- the same call


def test_equal_tool_and_arguments_are_the_same_call_whatever_the_order_of_keys(session: Session) -> None:
    assert counts(session, ("search", {"a": 1, "b": 2}), ("search", {"b": 2, "a": 1})) == [1, 2]


def test_another_tool_or_other_arguments_are_another_call(session: Session) -> None:
    assert counts(session, SEARCH, OTHER, ("read", {"q": "a"}), SEARCH) == [1, 1, 1, 2]


# -- repeated: inside the window


def test_nothing_reported_counts_the_equal_calls_among_the_last_window(session: Session) -> None:
    assert counts(session, *[SEARCH] * 8) == [1, 2, 3, 4, 5, 6, 6, 6]


def test_what_has_left_the_window_does_not_count(store: StoreUnderTest) -> None:
    session = store.guard(window=3, threshold=3).session("run")
    assert counts(session, SEARCH, SEARCH, OTHER, SEARCH, OTHER, OTHER, SEARCH) == [1, 2, 1, 2, 2, 2, 1]


def test_an_occurrence_exactly_max_age_old_has_left_the_window() -> None:
    guard, clock = clocked(max_age=10)
    assert counts(guard, SEARCH) == [1]
    clock.now += 9.999_999
    assert counts(guard, SEARCH) == [2]
    clock.now += 0.000_001
    assert counts(guard, SEARCH) == [2]
    clock.now += 10
    assert counts(guard, SEARCH) == [1]


def test_max_age_goes_by_the_time_that_passes(store: StoreUnderTest) -> None:
    session = store.guard(max_age=1.0).session("run")
    assert counts(session, SEARCH, SEARCH) == [1, 2]
    time.sleep(1.01)
    assert (session.peek(*SEARCH).count, len(session)) == (1, 0)
    assert counts(session, SEARCH, SEARCH) == [1, 2]


def test_calls_of_one_instant_leave_the_window_one_after_the_other() -> None:
    guard, clock = clocked(max_age=10)
    counts(guard, SEARCH, SEARCH, SEARCH)
    assert [round((one.at - clock.now) * 1e6) for one in guard.snapshot().calls] == [0, 1, 2]
    clock.now += 10
    assert (guard.peek(*SEARCH).count, len(guard)) == (3, 2)
    clock.now -= 3
    assert counts(guard, SEARCH) == [4]


# -- without progress: the same call with a different result


def test_equal_results_do_not_discount(session: Session) -> None:
    assert counts_of_results(session, "none", "none", "none", "none") == [1, 2, 3, 4]


def test_after_a_different_result_only_the_latest_occurrence_still_counts(session: Session) -> None:
    assert counts_of_results(session, "one", "one", "two", "two", "two") == [1, 2, 3, 2, 3]


def test_a_result_is_compared_with_the_one_before_and_not_with_older_ones(session: Session) -> None:
    assert counts_of_results(session, "one", "two", "one", "two") == [1, 2, 2, 2]


def test_none_is_a_result_like_any_other(session: Session) -> None:
    assert counts_of_results(session, None, None, "two", "two") == [1, 2, 3, 2]


def test_a_report_without_result_says_nothing_about_a_change(session: Session) -> None:
    assert call(session, result="one").count == 1
    assert call(session, ok=True).count == 2
    assert call(session, ok=False).count == 3
    assert call(session, result="one").count == 4


def test_reports_are_taken_in_their_order_of_arrival(session: Session) -> None:
    first, second, third = (call(session) for _ in range(3))
    session.report(third, result="one")
    session.report(first, result="two")
    assert session.peek(*SEARCH).count == 2
    session.report(second, result="two")
    assert session.peek(*SEARCH).count == 2


def test_the_result_of_another_call_says_nothing_about_this_one(session: Session) -> None:
    call(session, result="one")
    call(session, OTHER, result="two")
    assert counts_of_results(session, "one", "one") == [2, 3]


def test_a_result_is_forgotten_when_the_last_occurrence_has_left_the_window(session: Session) -> None:
    call(session, result="one")
    counts(session, *[OTHER] * 6)
    call(session)
    call(session, result="two")
    assert session.peek(*SEARCH).count == 3


def test_a_result_is_kept_while_any_occurrence_is_in_the_window(session: Session) -> None:
    call(session, result="one")
    counts(session, *[OTHER] * 4, SEARCH, OTHER)
    call(session, result="two")
    assert (session.peek(*SEARCH).count, session.peek(*SEARCH).total) == (2, 3)


def test_discounted_occurrences_leave_the_window_before_those_that_count(session: Session) -> None:
    counts_of_results(session, "one", "two")
    assert counts(session, *[SEARCH] * 7) == [2, 3, 4, 5, 6, 6, 6]


def test_peek_lets_discounted_occurrences_leave_first_as_well(session: Session) -> None:
    counts_of_results(session, "one", "two")
    for expected in (2, 3, 4, 5, 6, 6):
        assert session.peek(*SEARCH).count == expected
        counts(session, SEARCH)


def test_a_different_result_never_counts_again_what_was_discounted(session: Session) -> None:
    call(session, result="one")
    late = session.check(*SEARCH)
    session.note_progress()
    session.report(late, result="two")
    assert session.peek(*SEARCH).count == 1


# -- without progress: another call that makes progress


def test_a_successful_progress_call_discounts_every_other_call(session: Session) -> None:
    counts(session, SEARCH, SEARCH, OTHER)
    call(session, EDIT, ok=True)
    assert counts(session, SEARCH, OTHER) == [1, 1]


def test_a_progress_call_does_not_discount_itself(session: Session) -> None:
    assert [call(session, EDIT, ok=True).count for _ in range(3)] == [1, 2, 3]


def test_a_progress_call_discounts_other_calls_of_its_own_tool(session: Session) -> None:
    another = ("edit", {"file": "y"})
    call(session, another, ok=True)
    call(session, EDIT, ok=True)
    assert counts(session, another, EDIT, EDIT) == [1, 2, 3]


def test_two_progress_calls_in_turn_discount_each_other(session: Session) -> None:
    another = ("edit", {"file": "y"})
    assert [call(session, named, ok=True).count for named in (EDIT, another) * 3] == [1] * 6


def test_what_another_call_discounted_stays_discounted_after_own_progress(session: Session) -> None:
    call(session, EDIT)
    call(session, EDIT)
    call(session, ("edit", {"file": "y"}), ok=True)
    call(session, EDIT, ok=True)
    assert counts(session, EDIT) == [2]


def test_a_failed_progress_call_discounts_nothing(session: Session) -> None:
    counts(session, SEARCH)
    call(session, EDIT, ok=False)
    assert counts(session, SEARCH) == [2]


def test_a_progress_call_that_was_not_reported_discounts_nothing(session: Session) -> None:
    assert counts(session, SEARCH, EDIT, SEARCH) == [1, 1, 2]


def test_a_success_after_a_failure_is_progress(session: Session) -> None:
    counts(session, SEARCH)
    verdict = call(session, EDIT, ok=False)
    session.report(verdict, ok=True)
    assert counts(session, SEARCH) == [1]


def test_a_blocked_attempt_is_never_progress(strict: Session) -> None:
    blocked = [strict.check(*EDIT) for _ in range(3)][-1]
    counts(strict, SEARCH)
    strict.report(blocked, ok=True)
    assert not blocked.allowed
    assert counts(strict, SEARCH) == [2]


def test_a_blocked_attempt_has_no_result(strict: Session) -> None:
    call(strict, result="one")
    call(strict, result="one")
    strict.report(strict.check(*SEARCH), result="two")
    assert strict.peek(*SEARCH).count == 4


def test_a_callable_says_which_arguments_make_progress(session: Session) -> None:
    counts(session, SEARCH)
    call(session, ("write", {"file": "notes"}), ok=True)
    assert counts(session, SEARCH) == [2]
    call(session, ("write", {"file": "code"}), ok=True)
    assert counts(session, SEARCH) == [1]


def test_a_callable_that_raises_makes_no_progress(session: Session) -> None:
    counts(session, SEARCH)
    call(session, ("write", {}), ok=True)
    assert counts(session, SEARCH) == [2]


# -- without progress: a poll at its pace


def test_a_call_at_least_its_pace_after_the_one_before_is_a_poll() -> None:
    guard, clock = clocked(tools={"search": ToolRule(pace=5)})
    seen = []
    for passed in (0, 5, 4.999_999, 5, 1, 5):
        clock.now += passed
        seen += counts(guard, SEARCH)
    assert seen == [1, 1, 2, 1, 2, 1]


def test_the_pace_of_one_call_is_not_that_of_another() -> None:
    guard, clock = clocked(tools={"search": ToolRule(pace=5)})
    counts(guard, SEARCH)
    clock.now += 4
    counts(guard, OTHER)
    clock.now += 4
    assert counts(guard, OTHER, SEARCH) == [2, 1]


def test_a_pace_goes_by_the_time_that_passes(store: StoreUnderTest) -> None:
    session = store.guard(tools={"search": ToolRule(pace=1.0)}).session("run")
    assert counts(session, SEARCH, SEARCH) == [1, 2]
    time.sleep(1.01)
    assert session.peek(*SEARCH).count == 1
    assert counts(session, SEARCH, SEARCH) == [1, 2]


# -- without progress: the caller said so


def test_note_progress_discounts_all_that_came_before(session: Session) -> None:
    counts(session, SEARCH, SEARCH, EDIT)
    session.note_progress()
    assert counts(session, SEARCH, EDIT, SEARCH) == [1, 1, 2]


def test_note_progress_discounts_what_made_progress_itself(session: Session) -> None:
    call(session, EDIT, ok=True)
    session.note_progress()
    assert counts(session, EDIT) == [1]


def test_noting_progress_before_any_call_changes_nothing(session: Session) -> None:
    session.note_progress()
    assert counts(session, SEARCH, SEARCH) == [1, 2]


def test_one_sessions_progress_is_not_anothers(store: StoreUnderTest) -> None:
    guard = store.guard()
    counts(guard.session("one"), SEARCH)
    counts(guard.session("two"), SEARCH)
    guard.session("one").note_progress()
    assert (guard.session("one").peek(*SEARCH).count, guard.session("two").peek(*SEARCH).count) == (1, 2)


# -- time


def test_a_clock_that_stands_at_zero_is_a_clock() -> None:
    session = LoopGuard("memory://", clock=lambda: 0.0).session("run")
    for result in ("x", "y", "y"):
        verdict = session.check("read")
        assert verdict.allowed
        session.report(verdict, result=result)
    assert session.peek("read").count == 3

"""The n-th call of one tool is blocked when its n-1 previous ones all failed, or all had the same result."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from counting import call, clocked

from loopfence import ToolRule

if TYPE_CHECKING:
    from conftest import StoreUnderTest
    from loopfence import Session, Verdict

FAILED: dict[str, Any] = {"ok": False}
WORKED: dict[str, Any] = {"ok": True}
TOOLS = {"edit": ToolRule(progress=True)}


@pytest.fixture
def session(store: StoreUnderTest) -> Session:
    return store.guard(window=6, threshold=6, failures=3, stagnation=4, tools=TOOLS).session("run")


def again(session: Session, tool: str = "shell", **report: Any) -> Verdict:
    """A call of the tool with arguments that it never had before."""
    return call(session, (tool, {"n": next(NUMBERS)}), **report)


NUMBERS = count()


# -- failures


def test_the_nth_call_is_blocked_when_all_before_it_failed_whatever_their_arguments(session: Session) -> None:
    verdicts = [again(session, **FAILED) for _ in range(3)]
    assert [verdict.allowed for verdict in verdicts] == [True, True, False]
    assert (verdicts[2].rule, verdicts[2].limit, verdicts[2].streak, verdicts[2].count) == ("failures", 3, 2, 1)


def test_without_a_limit_failures_never_block(store: StoreUnderTest) -> None:
    session = store.guard(failures=None).session("run")
    assert all(again(session, **FAILED).allowed for _ in range(12))


def test_a_success_ends_a_streak_of_failures(session: Session) -> None:
    for report in (FAILED, WORKED, FAILED):
        again(session, **report)
    assert session.peek("shell").allowed


def test_calls_that_were_not_reported_are_in_no_streak(session: Session) -> None:
    for report in (FAILED, {}, {}, FAILED):
        again(session, **report)
    assert session.peek("shell").streak == 2


def test_the_failures_of_another_tool_are_its_own(session: Session) -> None:
    for _ in range(2):
        again(session, "fetch", **FAILED)
    assert session.peek("shell").allowed
    assert not session.peek("fetch").allowed


def test_the_success_of_a_failed_call_ends_the_streak(session: Session) -> None:
    again(session, **FAILED)
    verdict = again(session, **FAILED)
    session.report(verdict, ok=True)
    assert session.peek("shell").allowed


def test_progress_of_any_tool_clears_a_streak(session: Session) -> None:
    for _ in range(2):
        again(session, **FAILED)
    again(session, "edit", **WORKED)
    assert session.peek("shell").allowed


def test_failed_progress_clears_nothing(session: Session) -> None:
    for _ in range(2):
        again(session, **FAILED)
    again(session, "edit", **FAILED)
    assert not session.peek("shell").allowed


def test_the_callers_word_clears_a_streak(session: Session) -> None:
    for _ in range(2):
        again(session, **FAILED)
    session.note_progress()
    assert session.peek("shell").allowed


def test_a_changed_result_begins_a_new_streak(session: Session) -> None:
    same = ("shell", {"cmd": "make"})
    for result in ("one error", "two errors"):
        call(session, same, result=result, ok=False)
    assert session.peek("shell").allowed
    call(session, same, result="two errors", ok=False)
    assert session.peek("shell").streak == 2


def test_a_poll_at_its_pace_clears_the_streak_of_its_tool() -> None:
    guard, clock = clocked(failures=3, tools={"shell": ToolRule(pace=5)})
    for _ in range(2):
        call(guard, ("shell", None), **FAILED)
    assert not guard.peek("shell").allowed
    clock.now += 5.1
    assert guard.peek("shell").allowed
    assert call(guard, ("shell", None), **FAILED).allowed
    assert call(guard, ("shell", None), **FAILED).streak == 0


def test_a_poll_clears_the_streak_on_every_store(store: StoreUnderTest) -> None:
    session = store.guard(failures=3, tools={"shell": ToolRule(pace=1e-6)}).session("run")
    one, another = ("shell", {"n": 1}), ("shell", {"n": 2})
    for named in (one, another):
        call(session, named, **FAILED)
    assert not session.peek("shell", {"n": 3}).allowed
    assert session.peek(*one).allowed
    assert call(session, one, **FAILED).allowed
    assert session.snapshot().failing == {"shell": 1}


def test_a_blocked_attempt_neither_lengthens_nor_refreshes_a_streak(session: Session) -> None:
    for _ in range(2):
        again(session, **FAILED)
    blocked = [again(session, **FAILED) for _ in range(5)]
    assert [verdict.streak for verdict in blocked] == [2] * 5
    # By now the second failed call is the oldest of six, and leaves.
    assert again(session).allowed


def test_a_streak_lapses_when_its_latest_reported_call_has_left_the_window(session: Session) -> None:
    for _ in range(2):
        again(session, **FAILED)
    for _ in range(4):
        again(session, "fetch")
    assert session.snapshot().failing == {"shell": 2}
    # The next call will be the one that pushes the first failure out; the second holds the streak.
    assert not session.peek("shell").allowed
    again(session, "fetch")
    assert session.peek("shell").allowed
    assert again(session, **FAILED).allowed
    assert again(session, **FAILED).allowed


def test_a_streak_lapses_when_its_latest_reported_call_is_too_old() -> None:
    guard, clock = clocked(failures=3, max_age=10)
    for _ in range(2):
        again(guard, **FAILED)
    clock.now += 9
    assert (guard.peek("shell").allowed, guard.snapshot().failing) == (False, {"shell": 2})
    clock.now += 1.1
    assert (guard.peek("shell").allowed, guard.snapshot().failing) == (True, {})
    assert again(guard, **FAILED).allowed
    assert again(guard, **FAILED).allowed


def test_the_calls_of_a_streak_count_until_the_latest_of_them_has_left(session: Session) -> None:
    again(session, **FAILED)
    for _ in range(4):
        again(session, "fetch")
    again(session, **FAILED)
    again(session, "fetch")
    assert not session.peek("shell").allowed


def test_a_late_report_of_an_older_call_does_not_shorten_a_streaks_life(session: Session) -> None:
    first, second = again(session), again(session)
    for verdict in (second, first):
        session.report(verdict, ok=False)
    for _ in range(5):
        again(session, "fetch")
    assert session.snapshot().failing == {"shell": 2}
    again(session, "fetch")
    assert session.snapshot().failing == {}


# -- stagnation


def test_the_nth_call_is_blocked_when_all_results_before_it_were_equal(session: Session) -> None:
    verdicts = [again(session, result="nothing found") for _ in range(4)]
    assert [verdict.allowed for verdict in verdicts] == [True, True, True, False]
    assert (verdicts[3].rule, verdicts[3].limit, verdicts[3].streak) == ("stagnation", 4, 3)


def test_stagnation_is_off_unless_asked_for(store: StoreUnderTest) -> None:
    session = store.guard().session("run")
    assert all(again(session, result="nothing found").allowed for _ in range(12))


def test_another_result_begins_a_new_streak(session: Session) -> None:
    for result in ("none", "none", "one", "none", "none"):
        again(session, result=result)
    assert session.peek("shell").allowed
    again(session, result="none")
    assert session.peek("shell").streak == 3


def test_null_and_unknown_results_are_passed_over(session: Session) -> None:
    for report in ({"result": "none"}, {"result": None}, WORKED, {"result": "none"}, {"result": "none"}):
        again(session, **report)
    assert session.peek("shell").streak == 3
    for _ in range(4):
        again(session, "fetch", result=None)
    assert session.peek("fetch").allowed


def test_the_equal_results_of_a_progress_tool_are_honest_work(store: StoreUnderTest) -> None:
    session = store.guard(stagnation=2, tools={"write": ToolRule(progress=lambda args: False)}).session("run")
    assert all(again(session, "write", result="ok").allowed for _ in range(6))


def test_progress_clears_stagnation(session: Session) -> None:
    for _ in range(3):
        again(session, result="nothing found")
    session.note_progress()
    assert session.peek("shell").allowed


def test_stagnation_lapses_with_the_window(session: Session) -> None:
    for _ in range(3):
        again(session, result="nothing found")
    blocked = [again(session) for _ in range(5)]
    assert not any(verdict.allowed for verdict in blocked)
    assert again(session).allowed

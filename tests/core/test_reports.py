"""Reports: taken once, by any worker, and only of calls that are in the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counting import EDIT, OTHER, SEARCH, call, clocked, counts

from loopfence import ToolRule

if TYPE_CHECKING:
    from conftest import StoreUnderTest


def test_the_same_report_again_changes_nothing(store: StoreUnderTest) -> None:
    session = store.guard(tools={"edit": ToolRule(progress=True)}).session("run")
    failed = call(session, result="one", ok=False)
    edited = call(session, EDIT, ok=True)
    counts(session, OTHER)
    before = session.snapshot()
    for _ in range(3):
        session.report(failed, result="one", ok=False)
        session.report(failed, result="two", ok=False)
        session.report(edited)
    after = session.snapshot()
    assert (after.repeats, after.failing) == (before.repeats, before.failing)
    assert session.peek(*OTHER).count == 2


def test_a_report_of_a_call_that_has_left_the_window_changes_nothing(store: StoreUnderTest) -> None:
    session = store.guard(window=2, threshold=2, failures=2, tools={"edit": ToolRule(progress=True)}).session("run")
    edited, failed = session.check(*EDIT), session.check("shell")
    counts(session, SEARCH, OTHER)
    session.report(edited)
    session.report(failed, ok=False)
    assert (session.peek(*OTHER).count, session.peek("shell").allowed) == (2, True)
    assert session.snapshot().failing == {}


def test_a_report_of_a_call_that_is_too_old_changes_nothing() -> None:
    guard, clock = clocked(max_age=10, tools={"edit": ToolRule(progress=True)})
    old = guard.check(*EDIT)
    clock.now += 5
    guard.check(*SEARCH)
    clock.now += 5
    guard.report(old)
    assert guard.peek(*SEARCH).count == 2


def test_another_worker_reports_by_call_id(store: StoreUnderTest) -> None:
    one, another = (store.guard(threshold=4).session("run") for _ in range(2))
    one.check(*SEARCH, call_id="job 1")
    another.report_call(*SEARCH, call_id="job 1", result="one")
    one.check(*SEARCH, call_id="a job with a long name")
    another.report_call(*SEARCH, call_id="a job with a long name", result="two")
    assert (one.peek(*SEARCH).count, [call.reported for call in one.snapshot().calls]) == (2, [True, True])


def test_a_verdict_can_be_reported_by_another_worker_and_in_any_session_object(store: StoreUnderTest) -> None:
    one, another = store.guard(), store.guard()
    verdict = one.session("run").check(*SEARCH)
    another.session("elsewhere").report(verdict, ok=False)
    assert one.session("run").snapshot().failing == {"search": 1}
    assert one.session("elsewhere").snapshot().failing == {}

"""From counts to verdicts on every store: levels, halts, ceiling, shadow mode and exempt tools."""

from __future__ import annotations

import dataclasses
import pickle
from typing import TYPE_CHECKING

import pytest
from counting import EDIT, OTHER, SEARCH, call, clocked, counts

from loopfence import Level, LoopDetectedError, LoopGuard, ToolRule

if TYPE_CHECKING:
    from conftest import StoreUnderTest
    from loopfence import Verdict


def levels(verdicts: list[Verdict]) -> list[str]:
    return [verdict.level.name for verdict in verdicts]


def test_levels_are_ordered() -> None:
    assert sorted(Level, reverse=True) == [Level.STOP, Level.BLOCK, Level.WARN, Level.ALLOW]


def test_repeats_are_allowed_then_warned_of_then_blocked_then_stopped(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=3, warn=2, stop=5).session("run")
    verdicts = [session.check(*SEARCH) for _ in range(6)]
    assert levels(verdicts) == ["ALLOW", "WARN", "BLOCK", "BLOCK", "STOP", "STOP"]
    assert [verdict.allowed for verdict in verdicts] == [True, True, False, False, False, False]
    assert [verdict.rule for verdict in verdicts] == [None, "repeat", "repeat", "repeat", "repeat", "halted"]
    assert [verdict.limit for verdict in verdicts] == [None, 2, 3, 3, 5, None]
    assert [verdict.count for verdict in verdicts] == [1, 2, 3, 4, 5, 6]


def test_a_verdict_says_what_was_counted_and_where(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=3).session("run")
    counts(session, OTHER, SEARCH)
    verdict = session.check(*SEARCH, call_id="turn 7")
    assert (verdict.count, verdict.total, verdict.size, verdict.window, verdict.threshold) == (2, 2, 3, 8, 3)
    assert (verdict.tool, verdict.session, verdict.call_id, verdict.duplicate) == ("search", "run", "turn 7", False)
    assert (verdict.source, verdict.degraded) == ("redis" if store.is_redis else "memory", False)
    assert (verdict.halted, verdict.progress, verdict.streak) == (None, False, 0)


def test_record_raises_the_offending_call_and_has_recorded_it(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=3).session("run")
    for _ in range(2):
        assert session.record(*SEARCH).allowed
    with pytest.raises(LoopDetectedError) as caught:
        session.record(*SEARCH)
    error = caught.value
    assert str(error) == "tool 'search' called 3 times in the last 8 calls (threshold=3)"
    assert (error.tool_name, error.tool_args, error.count, error.window, error.threshold, error.session) == (
        "search", {"q": "a"}, 3, 8, 3, "run",
    )  # fmt: skip
    assert error.verdict.level is Level.BLOCK
    assert len(session) == 3


def test_peek_and_would_raise_say_what_the_next_record_says_and_write_nothing(store: StoreUnderTest) -> None:
    session = store.guard(threshold=3).session("run")
    assert (session.peek(*SEARCH).count, session.would_raise(*SEARCH), len(session)) == (1, False, 0)
    counts(session, SEARCH, SEARCH)
    assert (session.peek(*SEARCH).count, session.would_raise(*SEARCH), len(session)) == (3, True, 2)
    assert not session.would_raise(*OTHER)


# -- halts


def test_a_stop_halts_every_call_of_every_tool_by_every_worker(store: StoreUnderTest) -> None:
    one, another = (store.guard(window=8, threshold=2, stop=3).session("run") for _ in range(2))
    stopped = [one.check(*SEARCH) for _ in range(3)][-1]
    assert (stopped.level, stopped.rule) == (Level.STOP, "repeat")
    assert stopped.halted == "search was called 3 times without progress"
    for verdict in (another.check("read"), another.peek(*EDIT), one.check(*OTHER)):
        assert (verdict.level, verdict.rule, verdict.allowed) == (Level.STOP, "halted", False)
        assert verdict.halted == "search was called 3 times without progress"


def test_a_halt_is_of_one_session(store: StoreUnderTest) -> None:
    guard = store.guard()
    guard.session("one").halt("enough")
    assert guard.session("two").check(*SEARCH).allowed
    assert not guard.session("one").check(*SEARCH).allowed


def test_an_operators_halt_holds_until_resume(store: StoreUnderTest) -> None:
    session = store.guard().session("run")
    session.halt("the budget is spent")
    verdict = session.check(*SEARCH)
    assert (verdict.level, verdict.rule, verdict.halted) == (Level.STOP, "halted", "the budget is spent")
    session.resume()
    verdict = session.check(*SEARCH)
    assert (verdict.level, verdict.count, verdict.halted) == (Level.ALLOW, 2, None)


def test_reset_lifts_a_halt_and_forgets_the_window(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=2, stop=3).session("run")
    counts(session, *[SEARCH] * 3)
    session.reset()
    assert session.is_empty
    assert counts(session, SEARCH) == [1]
    assert session.snapshot().halted is None


def test_after_resume_what_is_in_the_window_still_counts(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=2, stop=3).session("run")
    counts(session, *[SEARCH] * 3)
    session.resume()
    verdict = session.check(*SEARCH)
    assert (verdict.level, verdict.count, verdict.rule) == (Level.STOP, 4, "repeat")


def test_resuming_and_resetting_what_is_not_there_changes_nothing(store: StoreUnderTest) -> None:
    guard = store.guard()
    guard.session("run").resume()
    guard.session("run").reset()
    assert list(guard.sessions()) == []


def test_the_first_reason_of_a_halt_by_policy_stays_and_an_operators_replaces_it(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=2, stop=3).session("run")
    counts(session, *[SEARCH] * 3, *[EDIT] * 3)
    assert session.snapshot().halted == "search was called 3 times without progress"
    session.halt("an operator")
    assert session.snapshot().halted == "an operator"


def test_a_halted_session_is_kept_a_day() -> None:
    guard, clock = clocked(ttl=60)
    guard.halt("enough")
    clock.now += 86_399
    assert guard.check(*SEARCH).rule == "halted"
    clock.now += 86_401
    assert guard.check(*SEARCH).allowed


# -- the other rules


def test_a_ceiling_blocks_equal_calls_progress_or_not(store: StoreUnderTest) -> None:
    session = store.guard(window=8, ceiling=4).session("run")
    verdicts = []
    for _ in range(4):
        verdicts.append(session.check(*SEARCH))
        session.note_progress()
    assert levels(verdicts) == ["ALLOW", "ALLOW", "ALLOW", "BLOCK"]
    assert (verdicts[-1].rule, verdicts[-1].count, verdicts[-1].total, verdicts[-1].limit) == ("ceiling", 1, 4, 4)


def test_rules_of_single_tools_hold_for_these_only(store: StoreUnderTest) -> None:
    tools = {"pay": ToolRule(threshold=2), "look": ToolRule(threshold=4, warn=3)}
    session = store.guard(tools=tools).session("run")
    for tool, expected in {
        "pay": ["ALLOW", "BLOCK"],
        "look": ["ALLOW", "ALLOW", "WARN", "BLOCK"],
        "else": ["ALLOW", "ALLOW", "BLOCK"],
    }.items():
        assert levels([session.check(tool) for _ in expected]) == expected


def test_an_exempt_tool_is_never_counted_nor_recorded(store: StoreUnderTest) -> None:
    session = store.guard(window=4, threshold=2, tools={"think": ToolRule(exempt=True)}).session("run")
    counts(session, SEARCH, OTHER)
    verdicts = [session.check("think", {"about": "it"}) for _ in range(5)]
    assert levels(verdicts) == ["ALLOW"] * 5
    assert {(verdict.count, verdict.total, verdict.size) for verdict in verdicts} == {(0, 0, 2)}
    assert len(session) == 2


def test_an_exempt_tool_takes_no_place_in_a_full_window(store: StoreUnderTest) -> None:
    session = store.guard(window=2, threshold=2, tools={"think": ToolRule(exempt=True)}).session("run")
    counts(session, SEARCH, OTHER)
    assert session.check("think").size == 2


def test_an_exempt_tool_is_stopped_in_a_halted_session(store: StoreUnderTest) -> None:
    session = store.guard(tools={"think": ToolRule(exempt=True)}).session("run")
    session.halt("enough")
    verdict = session.check("think")
    assert (verdict.level, verdict.rule, verdict.allowed) == (Level.STOP, "halted", False)


def test_an_exempt_tool_can_make_progress(store: StoreUnderTest) -> None:
    session = store.guard(tools={"edit": ToolRule(exempt=True, progress=True)}).session("run")
    counts(session, SEARCH, SEARCH)
    call(session, EDIT, ok=False)
    assert session.peek(*SEARCH).count == 3
    call(session, EDIT, ok=True)
    assert counts(session, SEARCH) == [1]
    session.report_call(*EDIT, call_id="elsewhere")
    assert counts(session, SEARCH, SEARCH) == [1, 2]
    session.report_call(*EDIT, call_id="elsewhere")
    assert counts(session, SEARCH) == [3]


def test_two_exempt_calls_of_one_turn_are_two_notes_of_progress(store: StoreUnderTest) -> None:
    session = store.guard(tools={"edit": ToolRule(exempt=True, progress=True)}).session("run")
    session.report(session.check("edit", {"file": "x"}, call_id="turn 7"))
    counts(session, SEARCH)
    session.report(session.check("edit", {"file": "y"}, call_id="turn 7"))
    assert counts(session, SEARCH) == [1]


# -- shadow mode


def test_shadow_mode_says_what_would_happen_and_lets_every_call_run(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=2, stop=3, enforce=False).session("run")
    verdicts = [session.check(*SEARCH) for _ in range(4)]
    assert levels(verdicts) == ["ALLOW", "BLOCK", "STOP", "STOP"]
    assert [verdict.allowed for verdict in verdicts] == [True] * 4
    assert [verdict.rule for verdict in verdicts] == [None, "repeat", "repeat", "repeat"]
    assert session.snapshot().halted is None
    assert session.record(*SEARCH).count == 5


def test_in_shadow_mode_a_call_that_would_be_blocked_has_a_result(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=2, enforce=False).session("run")
    assert [call(session, result=result).count for result in ("one", "one", "two", "two")] == [1, 2, 3, 2]


def test_an_operators_halt_holds_in_shadow_mode(store: StoreUnderTest) -> None:
    session = store.guard(enforce=False).session("run")
    session.halt("enough")
    verdict = session.check(*SEARCH)
    assert (verdict.level, verdict.allowed) == (Level.STOP, False)


# -- verdicts and errors as values


def test_verdicts_are_frozen() -> None:
    verdict = LoopGuard("memory://").check(*SEARCH)
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.allowed = False  # type: ignore[misc]


def test_verdicts_and_errors_survive_pickle(store: StoreUnderTest) -> None:
    session = store.guard(window=8, threshold=2, stop=4).session("run")
    for _ in range(5):
        verdict = session.check(*SEARCH)
        assert pickle.loads(pickle.dumps(verdict)) == verdict
        error = verdict.error({"q": "a"})
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.args, vars(again)) == (type(error), str(error), error.args, vars(error))

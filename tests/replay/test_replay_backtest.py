"""A backtest says what a guard in shadow mode says, and counts whether it was right."""

import tracemalloc
from itertools import groupby

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loopfence import Level, LoopGuard, Policy
from loopfence.replay import sessions
from loopfence.replay.backtest import Backtest
from loopfence.replay.calls import UNKNOWN, Call, Problems, Turn
from loopfence.replay.history import MARK
from loopfence.replay.sessions import follow
from loopfence.replay.summary import Totals


def backtest(items, **policy):
    """The histories of all sessions under a policy."""
    histories, problems = [], Problems()
    follow(items, Backtest(Policy(**policy), histories.append, problems))
    assert problems.examples == []
    return histories


def one(items, **policy):
    [history] = backtest(items, **policy)
    return history


def call(result=UNKNOWN, args=None, tool="f", **more):
    return Call("s", tool, args, result, **more)


POLICIES = st.builds(
    Policy,
    window=st.sampled_from([4, 8, 20]),
    threshold=st.sampled_from([2, 3]),
    ceiling=st.sampled_from([None, 4]),
    failures=st.sampled_from([None, 3]),
    stagnation=st.sampled_from([None, 3]),
    max_age=st.sampled_from([None, 5.0]),
    tools=st.sampled_from(
        [{}, {"a": {"progress": True}}, {"a": {"exempt": True, "progress": True}}, {"b": {"pace": 3}}]
    ),
)
ITEMS = st.lists(
    st.one_of(
        st.builds(
            Call,
            session=st.just("s"),
            tool=st.sampled_from("ab"),
            args=st.sampled_from([None, {"n": 1}]),
            result=st.sampled_from([UNKNOWN, None, "x", "y"]),
            ok=st.booleans(),
            ts=st.sampled_from([None, 1.0, 2.0, 4.0]),
            batch=st.sampled_from([None, None, "t"]),
        ),
        st.builds(Turn, session=st.just("s")),
    ),
    max_size=30,
)


def by_hand(items, policy):
    """The same through the public names: a batch is checked as a whole before it is reported."""
    now = [1e9]
    start = next((item.ts for item in items if item.ts is not None), 0.0)
    guard = LoopGuard("memory://", policy=policy.override(enforce=False), clock=lambda: now[0])
    session, flagged, number = guard.session("s"), [], 0
    for batch, group in groupby(items, key=lambda item: getattr(item, "batch", None)):
        waiting = []
        for item in group:
            now[0] = now[0] if item.ts is None else 1e9 + item.ts - start
            if isinstance(item, Turn):
                session.note_progress()
                continue
            number += 1
            verdict = session.check(item.tool, item.args, call_id=batch)
            if verdict.level >= Level.BLOCK:
                flagged.append((number, verdict.rule))
            waiting.append((verdict, item))
            if batch is None:
                report(session, *waiting.pop())
        for verdict, item in waiting:
            report(session, verdict, item)
    return flagged


def report(session, verdict, item):
    known = {} if item.result is UNKNOWN else {"result": item.result}
    session.report(verdict, ok=item.ok, **known)


A_BATCH_BEFORE_A_GAP = [
    Call("s", "a", None, ok=False),
    Call("s", "b", None, "x", ok=False, ts=1.0),
    Call("s", "b", None, "x", ok=False, ts=4.0, batch="t"),
    Call("s", "b", {"n": 1}, ok=False, ts=2.0),
]


@given(ITEMS, POLICIES)
@example(A_BATCH_BEFORE_A_GAP, Policy(window=4, threshold=2, failures=None, stagnation=3, max_age=5.0))
def test_it_flags_what_a_guard_in_shadow_mode_flags(items, policy):
    # time does not run backwards within a session
    latest = 0.0
    for item in items:
        if item.ts is not None:
            latest = item.ts = latest + item.ts
    histories, problems = [], Problems()
    follow(items, Backtest(policy, histories.append, problems))
    found = [(flag.call, flag.rule) for history in histories for flag in history.flags]
    assert found == by_hand(items, policy)


def test_a_flagged_call_is_redundant_when_its_result_is_that_of_the_call_before():
    history = one([call("x"), call("x"), call("x"), call("y"), call("y"), call("y"), call("y")])
    assert [(flag.call, flag.redundant) for flag in history.flags] == [(3, True), (4, False), (6, True), (7, True)]
    assert (history.flagged, history.redundant, history.wrong, history.unknown) == (4, 3, 1, 0)
    assert history.precision == 0.75


def test_a_call_that_was_not_run_is_reported_all_the_same_for_it_did_run():
    # were the 4th call's new result withheld, the 5th would be flagged as the 5th in a row
    history = one([call("x"), call("x"), call("x"), call("y"), call("z")])
    assert [flag.call for flag in history.flags] == [3, 4]


def test_what_the_recording_does_not_tell_is_neither_right_nor_wrong():
    history = one([call(), call(), call(), call("x"), call("x")])
    assert [flag.redundant for flag in history.flags] == [None, None, True]
    assert (history.unknown, history.redundant, history.wrong, history.precision) == (2, 1, 0, 1.0)


def test_due_are_the_third_and_later_equal_calls_that_brought_nothing_new():
    history = one([call("x"), call("x"), call("y"), call("y"), call("y"), call("y", {"n": 2})], threshold=4)
    assert (history.due, history.caught) == (2, 0)
    assert [flag.call for flag in history.flags] == []
    history = one([call("x"), call("x"), call("y"), call("y"), call("y"), call("y")])
    assert (history.due, history.caught) == (3, 2)


def test_calls_of_one_batch_are_one_occurrence_and_never_due():
    history = one([call("x", batch="t") for _ in range(5)] + [call("x", batch="u")])
    assert (history.calls, history.duplicates, history.due, history.flagged) == (6, 4, 0, 0)


def test_equal_means_equal_under_the_policy():
    jobs = [call(f"job {n} done") for n in range(4)]
    assert one(jobs).flagged == 0
    masked = one(jobs, tools={"f": {"result_mask": [r"\d+"]}})
    assert [(flag.call, flag.redundant) for flag in masked.flags] == [(3, True), (4, True)]


def test_a_failing_streak_is_redundant_where_the_call_failed_again():
    items = [call("no", {"n": n}, ok=False) for n in range(3)] + [call("yes", {"n": 9}), call("no", {"n": 8}, ok=False)]
    history = one(items, failures=4)
    assert [(flag.call, flag.rule, flag.count, flag.redundant) for flag in history.flags] == [(4, "failures", 4, False)]
    history = one([*items[:3], *items[4:]], failures=4)
    assert [(flag.call, flag.redundant) for flag in history.flags] == [(4, True)]


def test_stagnation_is_redundant_where_the_result_stayed():
    items = [call("same", {"n": n}) for n in range(4)] + [call("new", {"n": 9})]
    history = one(items, stagnation=4)
    assert [(f.call, f.rule, f.count, f.redundant) for f in history.flags] == [
        (4, "stagnation", 4, True),
        (5, "stagnation", 5, False),
    ]


def test_a_ceiling_counts_all_equal_calls():
    history = one([call(str(n)) for n in range(5)], ceiling=4)
    assert [(flag.call, flag.rule, flag.count) for flag in history.flags] == [(4, "ceiling", 4), (5, "ceiling", 5)]


def test_after_a_stop_nothing_of_the_session_would_have_run():
    items = [call("x") for _ in range(5)] + [call("y", tool="g"), Turn("s"), call("x")]
    history = one(items, stop=5)
    assert [flag.call for flag in history.flags] == [3, 4, 5]
    assert (history.stopped, history.flagged, history.halted, history.saved) == (5, 3, 2, 5)


def test_a_turn_moves_things_and_stands_in_the_timeline_once():
    items = [call("x"), call("x"), Turn("s"), Turn("s"), call("x"), call("x"), call("x", tool="g")]
    history = one(items)
    assert history.flagged == 0
    assert history.cells == [0, 0, MARK, 0, 0, 1]


def test_a_warning_is_no_flag():
    assert one([call("x"), call("x")], warn=2).flagged == 0


def test_sessions_have_their_own_time():
    hour = 3600.0
    items = [Call(name, "f", {}, "x", ts=ts) for ts in (0.0, 10.0, 20.0) for name in ("late", "early")]
    for item in items:
        item.ts += 9 * hour if item.session == "late" else 0.0
    assert [history.flagged for history in backtest(items, max_age=60.0)] == [1, 1]


def test_time_never_runs_backwards():
    times = [100.0, 0.0, 150.0, 130.0, 161.0]
    items = [call("x", {"n": n} if n in (1, 3) else None, ts=ts) for n, ts in enumerate(times)]
    assert [flag.call for flag in one(items, max_age=60.0).flags] == []
    assert [flag.call for flag in one(items, max_age=62.0).flags] == [5]


@pytest.mark.parametrize("start", [0.0, 1.7e9, -6e10, 9e10])
def test_the_first_call_counts_whatever_its_time(start):
    assert one([call("x", ts=start), call("y", ts=start), call("y", ts=start)]).flagged == 0


def test_a_call_that_has_no_signature_is_named_and_the_rest_judged():
    deep = []
    for _ in range(1500):
        deep = [deep]
    histories, problems = [], Problems()
    items = [call("x", deep), call("x", tool="t" * 600), *[call("x") for _ in range(3)]]
    follow(items, Backtest(Policy(), histories.append, problems))
    assert [(history.calls, history.flagged) for history in histories] == [(3, 1)]
    assert [example.split(":")[:2] for example in problems.examples] == [["s", "0"], ["s", "0"]]
    assert problems.examples[0].endswith("more than 1000 levels have no canonical JSON")
    assert "no signature: tool must be at most 512 bytes" in problems.examples[1]


def test_names_too_long_for_a_session_are_names_like_others():
    long = "x" * 5000
    [history] = backtest([Call(long, "f", {}, "x") for _ in range(3)])
    assert (history.label, history.flagged) == (long, 1)


def test_memory_does_not_grow_with_the_sessions(monkeypatch):
    monkeypatch.setattr(sessions, "OPEN_SESSIONS", 20)

    def peak(count):
        items = (Call(f"s{n}", "f", {"k": k % 9}, f"r{n}") for n in range(count) for k in range(20))
        tracemalloc.start()
        follow(items, Backtest(Policy(), lambda _: None, Problems()))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(50)
    assert peak(600) < 1.2 * peak(60)


@given(ITEMS, POLICIES)
def test_without_timelines_everything_else_is_the_same(items, policy):
    with_them, without = Totals(), Totals()
    follow(items, Backtest(policy, with_them.add, Problems()))
    follow(items, Backtest(policy, without.add, Problems(), timelines=False))
    assert without == with_them


def test_a_session_in_which_no_rule_could_apply_has_a_timeline_where_it_is_asked_for():
    items = [call("x", {"n": n}) for n in range(3)] + [Turn("s"), call("y", {"n": 9}, outcome="resolved")]
    history = one(items)
    assert history.cells == [0, 1, 2, MARK, 3]
    assert [signature.text for signature in history.signatures.values()][-1] == '{"n":9}'
    assert (history.calls, history.outcome) == (4, "resolved")
    histories = []
    follow(items, Backtest(Policy(), histories.append, Problems(), timelines=False))
    assert (histories[0].calls, histories[0].outcome, histories[0].cells) == (4, "resolved", [])


def test_a_long_session_is_kept_short():
    history = one([call("x", {"n": n % 3000}, tool="f") for n in range(9000)], window=10_000)
    assert history.calls == 9000
    assert history.flagged == 3000
    assert (len(history.cells), len(history.flags)) == (2000, 2000)
    assert all(flag.cell is None for flag in history.flags)

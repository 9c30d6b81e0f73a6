"""Random traces: memory, fakeredis and every real server, sync and async, say what the naive oracle says."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import UNKNOWN, Oracle, Said

from loopfence import LoopGuard, Policy, ToolRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import StoreUnderTest

EXAMPLES = {"memory": 50, "fakeredis": 12}
EVER, NEVER = 1e-6, 1e8
"""Seconds that have always passed between two calls, and that never have: exact on a server's own clock as well."""

ids = itertools.count()
names = st.sampled_from(["search", "search", "search", "read", "edit", "poll", "ping", "strict"])
arguments = st.sampled_from(["a", "a", "b"])
call_ids = st.sampled_from([None, None, None, None, "turn 1", "a call id of more than sixteen characters"])
results = st.sampled_from([UNKNOWN, None, "one", "one", "two"])
seconds = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 5.0])
which = st.integers(0, 3)

steps = st.one_of(
    st.tuples(st.just("check"), names, arguments, call_ids),
    st.tuples(st.just("check"), st.just("search"), st.just("a"), st.none()),
    st.tuples(st.just("report"), which, results, st.booleans()),
    st.tuples(st.just("report_call"), which, results, st.booleans()),
    st.tuples(st.just("wait"), seconds),
    st.sampled_from([("note_progress",), ("reset",), ("halt", "an operator"), ("resume",)]),
)
traces = st.lists(steps, min_size=8, max_size=30)


@st.composite
def policies(draw: Any, *, paces: list[float], ages: list[float | None]) -> Policy:
    """Every field in its small values, so that all rules meet in one trace."""
    window = draw(st.integers(2, 6))
    threshold = draw(st.integers(2, window))
    return Policy(
        window=window,
        threshold=threshold,
        warn=draw(st.one_of(st.none(), st.integers(1, threshold - 1))),
        stop=draw(st.one_of(st.none(), st.integers(threshold + 1, window))) if threshold < window else None,
        ceiling=draw(st.one_of(st.none(), st.integers(2, window))),
        failures=draw(st.one_of(st.none(), st.integers(2, 4))),
        stagnation=draw(st.one_of(st.none(), st.integers(2, 4))),
        max_age=draw(st.sampled_from(ages)),
        enforce=draw(st.booleans()),
        tools={
            "edit": ToolRule(progress=True),
            "poll": ToolRule(pace=draw(st.sampled_from(paces))),
            "ping": ToolRule(exempt=True, progress=draw(st.booleans())),
            "strict": ToolRule(threshold=2, warn=1, stop=None),
        },
    )


timed = policies(paces=[0.5, 1.0, 2.0], ages=[None, 1.0, 2.0, 5.0])
untimed = policies(paces=[EVER, NEVER], ages=[None, None, NEVER, EVER])


async def settle(answer: Any) -> Any:
    """The answer of a sync or of an async session."""
    return await answer if inspect.isawaitable(answer) else answer


async def play(session: Any, oracle: Oracle, trace: list[Any], set_clock: Callable[[float], None]) -> None:
    """Let the same happen to both; what they say, and what they hold in the end, is equal."""
    said: list[Any] = []
    for step in trace:
        match step:
            case ("check", tool, args, call_id):
                seen = Said.by(await settle(session.peek(tool, args)))
                assert seen == oracle.peek(tool, args), step
                verdict = await settle(session.check(tool, args, call_id=call_id))
                expected = oracle.check(tool, args, verdict.call_id)
                assert Said.by(verdict) == expected, step
                assert expected.duplicate or expected == seen, "peek is the next record"
                said.append((verdict, tool, args))
            case ("report", number, result, ok) if said:
                verdict, tool, args = said[-1 - number % len(said)]
                await settle(session.report(verdict, ok=ok, **({} if result is UNKNOWN else {"result": result})))
                if verdict.allowed:
                    oracle.report(tool, args, verdict.call_id, result, ok)
            case ("report_call", number, result, ok) if said:
                verdict, tool, args = said[-1 - number % len(said)]
                known = {} if result is UNKNOWN else {"result": result}
                await settle(session.report_call(tool, args, call_id=verdict.call_id, ok=ok, **known))
                oracle.report(tool, args, verdict.call_id, result, ok)
            case ("wait", passed):
                oracle.now += passed
                set_clock(oracle.now)
            case ("note_progress" | "reset" | "halt" | "resume" as name, *arguments):
                await settle(getattr(session, name)(*arguments))
                getattr(oracle, name)(*arguments)
    await compare_contents(session, oracle)


async def compare_contents(session: Any, oracle: Oracle) -> None:
    """Window, counts, repeats, streaks and halt, as a snapshot shows them."""
    snapshot = await settle(session.snapshot())
    world = oracle.seen()
    calls = world.calls
    signatures = {(call.tool, call.digest): call.signature for call in snapshot.calls}
    assert [call.tool for call in snapshot.calls] == [one.call[0] for one in calls]
    assert [call.reported for call in snapshot.calls] == [bool(one.reported) for one in calls]
    equal = [[one.call for one in calls].count(one.call) for one in calls]
    assert [snapshot.counts[call.signature] for call in snapshot.calls] == equal
    assert len(signatures) == len({one.call for one in calls})
    repeats = [len([other for other in world.equal(one.call) if not other.moved]) for one in calls]
    assert [snapshot.repeats[call.signature] for call in snapshot.calls] == repeats
    tools = {one.call[0] for one in calls}
    assert snapshot.failing == {tool: world.failing(tool) for tool in tools if world.failing(tool)}
    assert snapshot.stagnant == {tool: world.stagnant(tool) for tool in tools if world.stagnant(tool)}
    assert snapshot.halted == world.halted
    limits = [oracle.rule(one.call[0]).threshold or oracle.policy.threshold for one in calls]
    assert await settle(session.is_looping()) == any(n >= limit for n, limit in zip(repeats, limits, strict=True))
    assert len(await settle(session.recent_keys())) == len(calls)


BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@BOTH
def test_every_store_says_what_the_oracle_says(store: StoreUnderTest, asynchronous: bool) -> None:
    make = store.async_guard if asynchronous else store.guard

    async def compare(policy: Policy, trace: list[Any]) -> None:
        guard = make(policy=policy)
        # A server's clock cannot be set, nor need it be: EVER and NEVER do not depend on it.
        await play(guard.session(f"trace {next(ids)}"), Oracle(policy), trace, lambda _: None)
        await settle(guard.close())

    with asyncio.Runner() as runner:

        @settings(max_examples=EXAMPLES.get(store.name, 60))
        @given(policy=untimed, trace=traces)
        def holds(policy: Policy, trace: list[Any]) -> None:
            runner.run(compare(policy, trace))

        holds()


@BOTH
@settings(max_examples=100)
@given(policy=timed, trace=traces)
def test_memory_says_what_the_oracle_says_when_time_passes(
    asynchronous: bool, policy: Policy, trace: list[Any]
) -> None:
    clock = [0.0]
    guard = LoopGuard("memory://", policy=policy, clock=lambda: 1000 + clock[0])
    session = (guard.as_async() if asynchronous else guard).session("a trace")
    oracle = Oracle(policy)
    asyncio.run(play(session, oracle, trace, lambda now: clock.__setitem__(0, now)))

"""The names that users write: guards as context managers, the call block, reports, threads and twins."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from counting import OTHER, SEARCH, call, clocked, counts

import loopfence
from loopfence import AsyncLoopGuard, AsyncSession, ConfigError, LoopDetectedError, LoopGuard, Session, ToolRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import StoreUnderTest


def test_importing_loopfence_loads_neither_redis_nor_anything_slow() -> None:
    code = (
        "import sys, loopfence; loopfence.LoopGuard('memory://').record('search', {'q': 1});"
        "print(sorted({'redis', 'typer', 'rich', 'asyncio', 'fakeredis', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_all_public_names_are_there() -> None:
    for name in loopfence.__all__:
        assert getattr(loopfence, name) is not None, name
    assert sorted(loopfence.__all__) == list(loopfence.__all__)


# -- guards and sessions as values


def test_guards_and_sessions_are_true_whatever_their_length(store: StoreUnderTest) -> None:
    guard = store.guard()
    session = guard.session("run")
    assert (len(guard), len(session), bool(guard), bool(session)) == (0, 0, True, True)
    assert (bool(AsyncLoopGuard()), bool(AsyncLoopGuard().session("run"))) == (True, True)


def test_a_guard_is_a_context_manager_and_may_be_closed_twice(store: StoreUnderTest) -> None:
    with store.guard() as guard:
        assert isinstance(guard, LoopGuard)
        assert guard.check(*SEARCH).allowed
    guard.close()


async def test_an_async_guard_is_a_context_manager_and_may_be_closed_twice(store: StoreUnderTest) -> None:
    async with store.async_guard() as guard:
        assert isinstance(guard, AsyncLoopGuard)
        assert (await guard.check(*SEARCH)).allowed
        assert (await guard.size(), await guard.is_empty()) == (1, False)
    await guard.close()
    await guard.aclose()


def test_an_empty_default_session_is_refused() -> None:
    for kind in (LoopGuard, AsyncLoopGuard):
        with pytest.raises(ConfigError, match="session must not be empty"):
            kind("memory://", session="")


def test_sessions_say_who_they_are() -> None:
    session = LoopGuard("memory://", window=8, threshold=4).session("run")
    assert repr(session) == "Session(id='run', window=8, threshold=4)"
    assert (session.id, session.window, session.threshold) == ("run", 8, 4)


@pytest.mark.parametrize(("kind", "twin"), [(Session, AsyncSession), (LoopGuard, AsyncLoopGuard)])
def test_both_flavours_have_the_same_methods_with_the_same_words(kind: type, twin: type) -> None:
    async_only, sync_only = {"size", "aclose", "as_sync"}, {"as_async"}
    mine, theirs = ({name for name in dir(one) if not name.startswith("_")} for one in (kind, twin))
    assert mine - theirs == sync_only & mine
    assert theirs - mine == async_only & theirs
    for name in mine & theirs - {"is_empty"}:
        assert inspect.getdoc(getattr(kind, name)), name
        assert inspect.getdoc(getattr(kind, name)) == inspect.getdoc(getattr(twin, name)), name
        if callable(getattr(kind, name)):
            assert str(inspect.signature(getattr(kind, name)).parameters) == str(
                inspect.signature(getattr(twin, name)).parameters
            ), name


async def test_the_twins_of_a_guard_in_memory_share_its_windows() -> None:
    guard = LoopGuard("memory://", threshold=4, session="run")
    twin = guard.as_async()
    assert [guard.check(*SEARCH).count, (await twin.check(*SEARCH)).count] == [1, 2]
    assert twin.as_sync().check(*SEARCH).count == 3
    assert (twin.id, twin.threshold, twin.policy) == ("run", 4, guard.policy)


async def test_the_twins_of_a_guard_on_redis_share_its_windows(newest_server: Any) -> None:
    with LoopGuard(newest_server.url, session="run", timeout=10, on_outage="raise") as guard:
        async with guard.as_async() as twin:
            assert [guard.check(*SEARCH).count, (await twin.check(*SEARCH)).count] == [1, 2]


def test_memory_is_of_one_guard_unless_it_has_a_name() -> None:
    own = [LoopGuard("memory://", session="run") for _ in range(2)]
    shared = [LoopGuard("memory://fleet-of-test-api", session="run") for _ in range(2)]
    assert [guard.check(*SEARCH).count for guard in own + shared] == [1, 1, 1, 2]


def test_memory_keeps_ten_thousand_sessions_the_longest_untouched_out_first() -> None:
    guard = LoopGuard("memory://")
    for number in range(10_000):
        guard.session(f"run {number}").check(*SEARCH)
    guard.session("run 0").check(*SEARCH)
    guard.session("one more").check(*SEARCH)
    assert guard.tracked_sessions() == 10_000
    assert (len(guard.session("run 0")), len(guard.session("run 1"))) == (2, 0)


# -- many calls in one trip


def test_record_many_is_many_checks_in_their_order(store: StoreUnderTest) -> None:
    guard = store.guard(threshold=2)
    calls = [("one", *SEARCH), ("two", *SEARCH), ("one", *SEARCH), ("one", *OTHER), ("two", *SEARCH)]
    verdicts = guard.record_many(calls)
    assert [verdict.session for verdict in verdicts] == ["one", "two", "one", "one", "two"]
    assert [verdict.count for verdict in verdicts] == [1, 1, 2, 1, 2]
    assert [verdict.allowed for verdict in verdicts] == [True, True, False, True, False]
    assert guard.record_many([]) == []


async def test_record_many_is_the_same_on_asyncio(store: StoreUnderTest) -> None:
    async with store.async_guard(tools={"think": ToolRule(exempt=True)}) as guard:
        verdicts = await guard.record_many([("one", *SEARCH), ("one", "think", None), ("one", *SEARCH)])
        assert [(verdict.count, verdict.size) for verdict in verdicts] == [(1, 1), (0, 1), (2, 2)]


def test_record_many_sends_nothing_where_any_of_it_is_bad(store: StoreUnderTest) -> None:
    guard = store.guard()
    for bad in (("", *SEARCH), ("one", "", None), ("one", "search", {"f": open})):
        with pytest.raises((ConfigError, loopfence.ArgsError)):
            guard.record_many([("one", *SEARCH), bad])
    assert list(guard.sessions()) == []


# -- the call block


def test_the_call_block_records_runs_and_reports(store: StoreUnderTest) -> None:
    session = store.guard(threshold=3).session("run")
    for result in ("one", "two"):
        with session.call(*SEARCH) as running:
            assert (running.verdict.allowed, len(session)) == (True, 1 if result == "one" else 2)
            running.result = result
    assert session.peek(*SEARCH).count == 2
    assert all(one.reported for one in session.snapshot().calls)


def test_an_exception_in_the_call_block_is_a_failed_call(store: StoreUnderTest) -> None:
    session = store.guard().session("run")
    with pytest.raises(KeyError, match="the tool's own"), session.call(*SEARCH):
        raise KeyError("the tool's own")
    assert session.snapshot().failing == {"search": 1}


def test_a_blocked_call_block_does_not_run(store: StoreUnderTest) -> None:
    session = store.guard(threshold=2).session("run")
    counts(session, SEARCH)
    ran = []
    with pytest.raises(LoopDetectedError), session.call(*SEARCH):
        ran.append(1)
    assert (ran, len(session)) == ([], 2)


def test_the_call_block_takes_a_call_id(store: StoreUnderTest) -> None:
    session = store.guard().session("run")
    for _ in range(2):
        with session.call(*SEARCH, call_id="job 1") as running:
            pass
    assert (running.verdict.duplicate, len(session)) == (True, 1)


async def test_the_call_block_on_asyncio(store: StoreUnderTest) -> None:
    async with store.async_guard(threshold=3) as guard:
        session = guard.session("run")
        async with session.call(*SEARCH) as running:
            running.result = "one"
        with pytest.raises(KeyError):
            async with session.call(*SEARCH):
                raise KeyError
        snapshot = await session.snapshot()
        assert ([one.reported for one in snapshot.calls], snapshot.failing) == ([True, True], {"search": 1})
        with pytest.raises(LoopDetectedError):
            async with session.call(*SEARCH):
                raise AssertionError("it ran")


# -- snapshots


def test_a_snapshot_shows_the_session_as_it_stands() -> None:
    guard, clock = clocked(ttl=60, failures=3)
    first = call(guard, ok=False)
    clock.now += 2
    counts(guard, SEARCH)
    clock.now += 3
    snapshot = guard.snapshot()
    assert snapshot.session == guard.id
    assert [(one.at, one.tool, one.text, one.reported) for one in snapshot.calls] == [
        (1000.0, "search", '{"q":"a"}', True),
        (1002.0, "search", '{"q":"a"}', False),
    ]
    assert (snapshot.counts, snapshot.repeats) == ({first.signature: 2}, {first.signature: 2})
    assert (snapshot.idle, snapshot.ttl, snapshot.halted, snapshot.degraded) == (3.0, 57.0, None, False)
    assert snapshot.failing == {"search": 1}


def test_a_snapshot_of_nothing_is_empty(store: StoreUnderTest) -> None:
    snapshot = store.guard().session("run").snapshot()
    assert (snapshot.calls, snapshot.counts, snapshot.halted, snapshot.idle, snapshot.ttl) == ((), {}, None, None, None)


def test_is_looping_goes_by_repeats_without_progress_and_the_tools_own_threshold(store: StoreUnderTest) -> None:
    session = store.guard(threshold=3, tools={"pay": ToolRule(threshold=2)}).session("run")
    assert not session.is_looping()
    counts(session, SEARCH, SEARCH, ("pay", None))
    assert not session.is_looping()
    counts(session, ("pay", None))
    assert session.is_looping()
    session.note_progress()
    assert not session.is_looping()


# -- threads


def in_threads(number: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_one_session_serves_many_threads(store: StoreUnderTest) -> None:
    session = store.guard(window=400, threshold=400).session("run")
    seen: list[int] = []
    in_threads(8, lambda _: seen.extend(session.check(*SEARCH).count for _ in range(25)))
    assert sorted(seen) == list(range(1, 201))
    assert len({one.call_id for one in session.snapshot().calls}) == 200


def test_threads_with_more_tools_than_are_remembered_do_not_disturb_each_other() -> None:
    session = LoopGuard("memory://", window=10_000, tools={"tool 1*": ToolRule(threshold=2)}).session("run")

    def work(index: int) -> None:
        for number in range(1500):
            tool = f"tool {number}"
            assert session.check(tool, index).threshold == (2 if tool.startswith("tool 1") else 3)

    in_threads(4, work)
    assert len(session) == 6000


def test_a_batch_of_any_size_is_recorded_in_round_trips_that_keep_to_the_timeout(store: Any) -> None:
    guard = store.guard(threshold=4, window=1000, session="run")
    verdicts = guard.record_many([("run", "read", {"page": number % 100}) for number in range(350)])
    assert [verdict.count for verdict in verdicts] == [number // 100 + 1 for number in range(350)]
    assert len(guard) == 350

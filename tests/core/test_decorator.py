"""`guard.tool` and the session of the code that runs: checked before, reported after, for every kind of function."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

import pytest
from counting import SEARCH

import loopfence
from loopfence import AsyncLoopGuard, LoopDetectedError, LoopGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import StoreUnderTest
    from servers import RedisServer


@pytest.fixture
def guard() -> LoopGuard:
    return LoopGuard("memory://", threshold=3, failures=3)


def test_a_sync_tool_is_checked_before_and_reported_after(store: StoreUnderTest) -> None:
    guard = store.guard(threshold=3, session="run")
    ran = []

    @guard.tool
    def search(query: str, limit: int = 10) -> str:
        ran.append((query, limit))
        return "nothing"

    assert [search("x"), search(query="x", limit=10)] == ["nothing", "nothing"]
    with pytest.raises(LoopDetectedError) as caught:
        search("x", 10)
    assert caught.value.tool_args == {"query": "x", "limit": 10}
    assert ran == [("x", 10)] * 2
    assert [(one.tool, one.reported) for one in guard.snapshot().calls] == [
        ("search", True), ("search", True), ("search", False),
    ]  # fmt: skip


def test_the_results_of_a_tool_are_known(guard: LoopGuard) -> None:
    answers = iter("ababab")

    @guard.tool
    def status() -> str:
        return next(answers)

    assert [status() for _ in range(6)] == list("ababab")
    assert (guard.peek("status").count, guard.peek("status").total) == (2, 7)


def test_a_tool_that_raises_has_failed_and_its_error_passes(guard: LoopGuard) -> None:
    @guard.tool
    def shell(number: int) -> None:
        raise OSError(f"no shell {number}")

    for number in range(2):
        with pytest.raises(OSError, match=f"no shell {number}"):
            shell(number)
    assert guard.snapshot().failing == {"shell": 2}
    with pytest.raises(LoopDetectedError, match="failed 2 times in a row"):
        shell(3)


def test_what_ends_the_program_is_no_failure_of_the_tool(guard: LoopGuard) -> None:
    @guard.tool
    def wait() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert [one.reported for one in guard.snapshot().calls] == [False]


async def test_an_async_tool_is_checked_before_and_reported_after(store: StoreUnderTest) -> None:
    async with store.async_guard(threshold=3, session="run") as guard:

        @guard.tool
        async def fetch(url: str) -> str:
            await asyncio.sleep(0)
            return "page"

        assert inspect.iscoroutinefunction(fetch)
        assert [await fetch("x"), await fetch("x")] == ["page", "page"]
        with pytest.raises(LoopDetectedError):
            await fetch("x")
        assert [one.reported for one in (await guard.snapshot()).calls] == [True, True, False]


def test_either_guard_takes_either_kind_of_function() -> None:
    guard = LoopGuard("memory://", threshold=2)

    @guard.tool
    async def fetch() -> int:
        return 1

    assert asyncio.run(fetch()) == 1
    with pytest.raises(LoopDetectedError):
        asyncio.run(fetch())
    assert len(guard) == 2

    aguard = AsyncLoopGuard("memory://", threshold=2)

    @aguard.tool
    def search() -> int:
        return 1

    assert search() == 1
    with pytest.raises(LoopDetectedError):
        search()
    assert asyncio.run(aguard.size()) == 2


def test_an_async_tool_of_a_sync_guard_on_redis_survives_loop_after_loop(newest_server: RedisServer) -> None:
    with LoopGuard(newest_server.url, threshold=4, timeout=10, on_outage="raise") as guard:

        @guard.tool
        async def fetch() -> int:
            return 1

        assert [asyncio.run(fetch()) for _ in range(3)] == [1, 1, 1]
        assert guard.peek("fetch").count == 4


def test_a_generator_is_passed_through_unread(guard: LoopGuard) -> None:
    read = []

    @guard.tool
    def pages(url: str) -> Iterator[str]:
        for page in "abc":
            read.append(page)
            got = yield page
            if got:
                read.append(got)

    assert inspect.isgeneratorfunction(pages)
    stream = pages("x")
    assert (len(guard), read) == (0, [])
    assert (next(stream), read, len(guard)) == ("a", ["a"], 1)
    assert (stream.send("more"), read) == ("b", ["a", "more", "b"])
    assert list(stream) == ["c"]
    assert [one.reported for one in guard.snapshot().calls] == [True]
    assert list(pages("x")) == ["a", "b", "c"]
    with pytest.raises(LoopDetectedError):
        next(pages("x"))


def test_a_generator_that_is_left_early_is_not_reported(guard: LoopGuard) -> None:
    @guard.tool
    def pages() -> Iterator[int]:
        yield 1
        yield 2

    stream = pages()
    next(stream)
    stream.close()
    assert [one.reported for one in guard.snapshot().calls] == [False]


async def test_an_async_generator_is_passed_through_unread(guard: LoopGuard) -> None:
    @guard.tool
    async def lines(url: str) -> AsyncIterator[str]:
        for line in "ab":
            yield line

    assert inspect.isasyncgenfunction(lines)
    stream = lines("x")
    assert len(guard) == 0
    assert [line async for line in stream] == ["a", "b"]
    assert [one.reported for one in guard.snapshot().calls] == [True]


def test_the_arguments_of_a_method_are_those_without_self(guard: LoopGuard) -> None:
    class Tools:
        @guard.tool
        def search(self, query: str) -> str:
            return query

        @classmethod
        @guard.tool(name="made")
        def make(cls, query: str) -> str:
            return query

    assert [Tools().search("x"), Tools().search(query="x"), Tools.make("y")] == ["x", "x", "y"]
    assert guard.recent_keys() == [
        ("search", '{"query":"x"}'), ("search", '{"query":"x"}'), ("made", '{"query":"y"}'),
    ]  # fmt: skip


def test_all_ways_to_pass_arguments_are_the_same_call(guard: LoopGuard) -> None:
    @guard.tool
    def search(first: int, /, second: int = 2, *rest: int, third: int = 3, **more: int) -> int:
        return 1

    for ask in (lambda: search(1), lambda: search(1, second=2), lambda: search(1, 2, third=3)):
        guard.note_progress()
        ask()
    assert (
        guard.recent_keys()
        == [
            ("search", '{"first":1,"more":{},"rest":[],"second":2,"third":3}'),
        ]
        * 3
    )
    with pytest.raises(TypeError, match="missing a required argument"):
        search()  # type: ignore[call-arg]
    assert len(guard) == 3


def test_a_tool_keeps_its_name_doc_and_signature(guard: LoopGuard) -> None:
    def search(query: str) -> str:
        """Look for it."""
        return query

    decorated = guard.tool(search)
    assert (decorated.__name__, decorated.__doc__) == ("search", "Look for it.")
    assert inspect.signature(decorated) == inspect.signature(search)


def test_a_tool_may_have_another_name(guard: LoopGuard) -> None:
    @guard.tool(name="web search")
    def search() -> int:
        return 1

    search()
    assert [one.tool for one in guard.snapshot().calls] == ["web search"]


# -- which session


def test_a_tool_runs_in_the_session_that_is_named_for_it(guard: LoopGuard) -> None:
    @guard.tool(session="fixed")
    def one() -> int:
        return 1

    @guard.tool(session=lambda run, **_: f"run {run}")
    def another(run: int, *, query: str) -> int:
        return 1

    one()
    another(7, query="x")
    with loopfence.session("current"):
        one()
    assert (len(guard.session("fixed")), len(guard.session("run 7")), len(guard)) == (2, 1, 0)
    assert list(guard.session("current").snapshot().calls) == []


def test_else_in_the_current_session_else_in_the_guards_own(guard: LoopGuard) -> None:
    @guard.tool
    def search() -> int:
        return 1

    search()
    with loopfence.session("outer") as name:
        search()
        with loopfence.session("inner"):
            search()
            assert loopfence.current_session() == "inner"
        search()
    search()
    assert (name, loopfence.current_session()) == ("outer", None)
    assert (len(guard), len(guard.session("outer")), len(guard.session("inner"))) == (2, 2, 1)


def test_the_current_session_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), loopfence.session("run"):
        raise KeyError
    assert loopfence.current_session() is None


async def test_tasks_inherit_the_current_session_and_keep_their_own() -> None:
    async def named(name: str | None) -> str | None:
        if name is None:
            await asyncio.sleep(0)
            return loopfence.current_session()
        with loopfence.session(name):
            await asyncio.sleep(0)
            return loopfence.current_session()

    with loopfence.session("outer"):
        tasks = [asyncio.create_task(named(name)) for name in (None, "one", "two", None)]
    assert await asyncio.gather(*tasks) == ["outer", "one", "two", "outer"]
    assert loopfence.current_session() is None


def test_threads_do_not_inherit_the_current_session() -> None:
    seen: list[Any] = []
    with loopfence.session("run"):
        thread = threading.Thread(target=lambda: seen.append(loopfence.current_session()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_the_session_methods_of_a_guard_stay_with_its_own_session(guard: LoopGuard) -> None:
    with loopfence.session("run"):
        assert guard.check(*SEARCH).session == guard.id

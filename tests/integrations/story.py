"""The story every framework adapter is told with: a real agent, a scripted model, tools that really run.

A test module subclasses `Story` and says in `app` how its framework builds a guarded agent. All the rest,
what is called, what must run and what the model must see, stands here once.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
from abc import ABC, abstractmethod
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import loopfence
from loopfence.policy import Policy, ToolRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from servers import RedisServer

DONE = "I am done."
SAME = "the same text"
NOT_RUN = "This call was not run."
READ = ("read", {"path": "a.txt"})
READ_OTHER = ("read", {"path": "b.txt"})
WRITE = ("write", {"path": "a.txt"})

Turn = list[tuple[str, dict[str, Any]]]


def each(*calls: tuple[str, dict[str, Any]]) -> list[Turn]:
    """One turn of the model for each call."""
    return [[call] for call in calls]


class Tools:
    """The agent's tools `read(path)` and `write(path)`: they count and answer what the test wants."""

    def __init__(self, answer: Callable[[int], str] = lambda run: SAME) -> None:
        self.ran: list[str] = []
        self._answer = answer

    def run(self, name: str) -> str:
        self.ran.append(name)
        return self._answer(len(self.ran))


def failing(run: int) -> str:
    raise ValueError(f"no such file ({run})")


@dataclass
class Run:
    """How one run of an agent went."""

    seen: list[str] = field(default_factory=list)
    """The tool results that stand in the history, in order: what the model saw."""
    final: str | None = None
    """What the agent said last."""
    stop: str | None = None
    """The reason that the application was given for a stopped run."""
    model_turns: int = 0
    """How often the model was asked."""
    orphans: int = 0
    """Tool calls in the history that have no result."""


class App(ABC):
    """A guarded agent of some framework with the tools of `Tools`."""

    @abstractmethod
    def run(self, turns: Sequence[Turn], *, thread: str | None = None, mode: str = "async") -> Run:
        """Say something to the agent; its model makes the calls of each turn and then says DONE."""


@contextmanager
def an_event_loop() -> Iterator[None]:
    """For `run_sync` of a framework, which takes the thread's loop, or makes one that it never closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def run_elsewhere(story: type[Story], url: str, session: str, turns: Sequence[Turn]) -> tuple[list[str], Run]:
    """One run in a process of its own, under a session id that came from outside."""
    tools = Tools()
    app = story().app(tools, url)
    with loopfence.session(session):
        return tools.ran, app.run(turns)


class Story:
    """The tests (a) to (h), and what else holds for every adapter."""

    modes: ClassVar[tuple[str, ...]] = ("sync", "async")

    def app(self, tools: Tools, url: str | None = None, **options: Any) -> App:
        """The framework's agent with the guard plugged in as its documentation says."""
        raise NotImplementedError

    @pytest.fixture(params=["sync", "async"])
    def mode(self, request: pytest.FixtureRequest) -> str:
        if request.param not in self.modes:
            pytest.skip(f"this framework has no {request.param} side")
        return str(request.param)

    # -- a
    def test_the_third_equal_call_is_not_run_and_the_model_reads_why(self, mode: str) -> None:
        tools = Tools()
        run = self.app(tools, "memory://").run(each(READ, READ, READ, READ), mode=mode)
        assert tools.ran == ["read", "read"]
        assert run.seen[:2] == [SAME, SAME]
        assert all(text.startswith(NOT_RUN) for text in run.seen[2:])
        assert "'read' was called 3 times with the same arguments" in run.seen[2]
        assert "'read' was called 4 times with the same arguments" in run.seen[3]
        assert "a.txt" not in run.seen[2]
        assert (run.final, run.stop, run.orphans) == (DONE, None, 0)

    # -- b
    def test_equal_calls_with_changing_results_are_never_blocked(self, mode: str) -> None:
        tools = Tools(answer=lambda run: f"line {run}")
        run = self.app(tools, "memory://").run(each(*[READ] * 6), mode=mode)
        assert run.seen == [f"line {number}" for number in range(1, 7)]
        assert len(tools.ran) == 6

    # -- c
    def test_two_processes_share_one_view_of_a_session(self, newest_server: RedisServer) -> None:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=spawn, max_tasks_per_child=1) as pool:
            runs = [
                pool.submit(run_elsewhere, type(self), newest_server.url, "job-7", each(*calls)).result(60)
                for calls in ([READ, READ], [READ, READ_OTHER])
            ]
        (ran_first, first), (ran_second, second) = runs
        assert (ran_first, first.seen) == (["read", "read"], [SAME, SAME])
        assert second.seen[0].startswith(NOT_RUN)
        assert second.seen[1] == SAME
        assert ran_second == ["read"]

    # -- d
    def test_parallel_equal_calls_of_one_turn_are_one_occurrence(self, mode: str) -> None:
        tools = Tools()
        run = self.app(tools, "memory://").run([[READ] * 3, [READ], [READ]], mode=mode)
        assert len(tools.ran) == 4
        assert run.seen[:4] == [SAME] * 4
        assert run.seen[4].startswith(NOT_RUN)
        assert "called 3 times" in run.seen[4]

    # -- e
    def test_a_stop_ends_the_run_with_a_reason_and_a_whole_history(self, mode: str) -> None:
        tools = Tools()
        app = self.app(tools, "memory://", policy=Policy(threshold=2, stop=3))
        run = app.run([[READ], [READ], [READ_OTHER, READ], [READ], [READ]], mode=mode)
        assert tools.ran.count("read") in (1, 2)  # the sibling of the stopped call may be cancelled
        assert run.model_turns == 3
        assert run.stop is not None
        assert "'read'" in run.stop
        assert "3 times" in run.stop
        assert run.orphans == 0

    def test_a_stopped_session_stays_stopped_for_every_tool(self, mode: str) -> None:
        tools = Tools()
        app = self.app(tools, "memory://", policy=Policy(threshold=2, stop=3))
        with loopfence.session("job-8"):
            app.run(each(READ, READ, READ), mode=mode)
            run = app.run(each(WRITE, WRITE), mode=mode)
        assert tools.ran == ["read"]
        assert run.stop is not None
        assert "halted" in run.stop
        assert run.model_turns == 1

    def test_after_a_stop_the_chat_goes_on_with_the_next_thing_the_user_says(self, mode: str) -> None:
        tools = Tools()
        app = self.app(tools, "memory://", policy=Policy(threshold=2, stop=3))
        assert app.run(each(READ, READ, READ), thread="chat-2", mode=mode).stop is not None
        run = app.run(each(READ), thread="chat-2", mode=mode)
        assert (run.seen, run.final, run.stop) == ([SAME], DONE, None)

    # -- f
    @pytest.mark.parametrize(("on_outage", "ran"), [("local", 4), ("allow", 8), ("block", 2), ("raise", 8)])
    def test_the_agent_survives_redis_being_killed_in_mid_run(
        self, mode: str, on_outage: str, ran: int, start_server: Callable[..., RedisServer]
    ) -> None:
        server = start_server()

        def answer(run: int) -> str:
            if run == 2:
                server.kill()
            return SAME

        tools = Tools(answer)
        run = self.app(tools, server.url, on_outage=on_outage).run(each(*[READ] * 8), mode=mode)
        assert (run.final, run.stop, run.orphans) == (DONE, None, 0)
        assert len(tools.ran) == ran
        assert [text.startswith(NOT_RUN) for text in run.seen] == [False] * ran + [True] * (8 - ran)

    # -- g
    def test_two_sessions_do_not_mix(self, mode: str) -> None:
        tools = Tools()
        app = self.app(tools, "memory://")
        for session in ("customer-1", "customer-2"):
            with loopfence.session(session):
                assert app.run(each(READ, READ), mode=mode).seen == [SAME, SAME]
        with loopfence.session("customer-1"):
            assert app.run(each(READ), mode=mode).seen[0].startswith(NOT_RUN)

    # -- h
    def test_the_same_read_in_three_user_turns_of_one_chat_is_no_loop(self, mode: str) -> None:
        tools = Tools()
        app = self.app(tools, "memory://")
        runs = [app.run(each(READ), thread="chat-1", mode=mode) for _ in range(3)]
        assert [run.seen for run in runs] == [[SAME]] * 3

    def test_an_explicit_session_wins_over_the_context_and_the_framework(self, mode: str) -> None:
        guard = loopfence.LoopGuard("memory://")
        app = self.app(Tools(), guard=guard, session=lambda source: "mine")
        with loopfence.session("context"):
            app.run(each(READ), thread="chat-1", mode=mode)
        assert list(guard.sessions()) == ["mine"]

    def test_a_session_callable_that_gives_none_falls_back_on_the_context(self, mode: str) -> None:
        guard = loopfence.LoopGuard("memory://")
        app = self.app(Tools(), guard=guard, session=lambda source: None)
        with loopfence.session("context"):
            app.run(each(READ), thread="chat-1", mode=mode)
        assert list(guard.sessions()) == ["context"]

    def test_one_guard_serves_the_sync_and_the_async_side(self) -> None:
        app, views = self.app(Tools(), "memory://"), itertools.cycle(self.modes)
        with loopfence.session("job-9"):
            seen = [app.run(each(READ), mode=next(views)).seen[0] for _ in range(3)]
        assert seen[:2] == [SAME, SAME]
        assert seen[2].startswith(NOT_RUN)

    def test_a_failing_tool_is_blocked_by_its_failures_whatever_its_arguments(self, mode: str) -> None:
        tools = Tools(failing)
        calls = [("read", {"path": f"{number}.txt"}) for number in range(4)]
        app = self.app(tools, "memory://", policy=Policy(failures=3))
        run = app.run(each(*calls), mode=mode)
        assert len(tools.ran) == 2
        assert [text.startswith(NOT_RUN) for text in run.seen] == [False, False, True, True]
        assert "failed" in run.seen[2]

    def test_a_success_of_a_progress_tool_lets_the_other_calls_start_anew(self, mode: str) -> None:
        tools = Tools()
        policy = Policy(tools={"write": ToolRule(progress=True)})
        run = self.app(tools, "memory://", policy=policy).run(each(READ, READ, WRITE, READ, READ, READ), mode=mode)
        assert [text.startswith(NOT_RUN) for text in run.seen] == [False] * 5 + [True]

    def test_blocked_calls_are_not_reported_as_results(self, mode: str) -> None:
        """Were the guard's text a result, the result would have changed and the fourth call be let through."""
        tools = Tools()
        app = self.app(tools, "memory://")
        run = app.run(each(*[READ] * 6), mode=mode)
        assert len(tools.ran) == 2
        assert all(text.startswith(NOT_RUN) for text in run.seen[2:])

    def test_shadow_mode_changes_nothing_that_the_model_sees(self, mode: str) -> None:
        guarded, plain = Tools(), Tools()
        policy = Policy(threshold=2, stop=3, enforce=False)
        shadow = self.app(guarded, "memory://", policy=policy).run(each(*[READ] * 5), mode=mode)
        free = self.app(plain, "memory://", policy=Policy(threshold=20)).run(each(*[READ] * 5), mode=mode)
        assert shadow == free
        assert guarded.ran == plain.ran == ["read"] * 5

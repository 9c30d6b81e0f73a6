"""The story of the MCP adapters: real servers over HTTP on loopback, real clients, tools that really run."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from story import NOT_RUN, SAME, Tools, failing

from loopfence import LoopGuard, Policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from servers import RedisServer

A, B = {"path": "a.txt"}, {"path": "b.txt"}
USERS = {"token-of-ann": "ann", "token-of-ben": "ben"}
"""The bearer tokens that a server with users knows."""


@dataclass
class Answer:
    """What the model sees of a call."""

    text: str
    failed: bool

    @property
    def ran(self) -> bool:
        return not self.text.startswith(NOT_RUN)


class Client(ABC):
    """One connected client; `session` names its run in the request's `_meta`."""

    @abstractmethod
    async def call(self, tool: str, args: dict[str, Any], session: Any = None) -> Answer: ...

    async def ran(self, *calls: tuple[str, dict[str, Any]], session: str | None = None) -> list[bool]:
        return [(await self.call(*call, session=session)).ran for call in calls]


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve an ASGI app over a socket; gives its MCP URL."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", ws="none", lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await task
        listener.close()


class McpStory(ABC):
    """The tests (a) to (h) as far as a server can know: it is told of calls, not of turns, and cannot end a run."""

    @abstractmethod
    def server(self, tools: Tools, url: str | None = None, *, users: bool = False, **options: Any) -> Any:
        """A server with the tools `read(path)`, `write(path)` and `ask(path)`, which asks the user, as an ASGI app."""

    @abstractmethod
    def connect(
        self, url: str, *, headers: dict[str, str] | None = None, mode: str = "auto", answers: list[str] | None = None
    ) -> contextlib.AbstractAsyncContextManager[Client]:
        """A client; `answers` are what its user says when asked."""

    @contextlib.asynccontextmanager
    async def client(
        self, tools: Tools, url: str | None = "memory://", *, headers: dict[str, str] | None = None, **options: Any
    ) -> AsyncIterator[Client]:
        """One client of one server."""
        async with serving(self.server(tools, url, **options)) as mcp, self.connect(mcp, headers=headers) as client:
            yield client

    # -- a
    async def test_the_third_equal_call_is_not_run_and_the_model_reads_why(self) -> None:
        tools = Tools()
        async with self.client(tools) as client:
            answers = [await client.call("read", A, session="run-1") for _ in range(4)]
        assert tools.ran == ["read", "read"]
        assert [answer.text for answer in answers[:2]] == [SAME, SAME]
        assert [answer.failed for answer in answers] == [False, False, True, True]
        assert answers[2].text.startswith(f"{NOT_RUN} 'read' was called 3 times with the same arguments")
        assert "a.txt" not in answers[2].text

    # -- b
    async def test_equal_calls_with_changing_results_are_never_blocked(self) -> None:
        tools = Tools(answer=lambda run: f"line {run}")
        async with self.client(tools) as client:
            answers = [await client.call("read", A, session="run-1") for _ in range(6)]
        assert [answer.text for answer in answers] == [f"line {number}" for number in range(1, 7)]

    # -- c
    async def test_two_clients_of_two_servers_share_one_view_of_a_run(self, redis_server: RedisServer) -> None:
        first, second = Tools(), Tools()
        async with self.client(first, redis_server.url) as one, self.client(second, redis_server.url) as two:
            assert await one.ran(("read", A), session="run-1") == [True]
            assert await two.ran(("read", A), session="run-1") == [True]
            assert await one.ran(("read", A), ("read", B), session="run-1") == [False, True]
        assert (first.ran, second.ran) == (["read", "read"], ["read"])

    # -- d
    async def test_parallel_equal_calls_count_each_for_the_protocol_tells_no_turn(self) -> None:
        tools = Tools()
        async with self.client(tools) as client:
            answers = await asyncio.gather(*[client.call("read", A, session="run-1") for _ in range(4)])
        assert sorted(answer.ran for answer in answers) == [False, False, True, True]
        assert tools.ran == ["read", "read"]

    # -- e
    async def test_a_stop_halts_the_run_for_every_tool(self) -> None:
        tools, guard = Tools(), LoopGuard("memory://", threshold=2, stop=3)
        async with self.client(tools, None, guard=guard) as client:
            assert await client.ran(*[("read", A)] * 3, session="run-1") == [True, False, False]
            answer = await client.call("write", A, session="run-1")
            assert "halted" in answer.text
            assert await client.ran(("write", A), session="run-2") == [True]
        assert tools.ran == ["read", "write"]
        assert guard.session("run-1").snapshot().halted == "read was called 3 times without progress"

    # -- f
    @pytest.mark.parametrize(("on_outage", "ran"), [("local", 4), ("allow", 8), ("block", 2), ("raise", 8)])
    async def test_the_server_survives_redis_being_killed(
        self, on_outage: str, ran: int, start_server: Callable[..., RedisServer]
    ) -> None:
        server, tools = start_server(), Tools()
        async with self.client(tools, server.url, on_outage=on_outage) as client:
            before = await client.ran(*[("read", A)] * 2, session="run-1")
            server.kill()
            after = await client.ran(*[("read", A)] * 6, session="run-1")
        assert before + after == [True] * ran + [False] * (8 - ran)

    # -- g
    async def test_two_runs_of_one_client_do_not_mix(self) -> None:
        async with self.client(Tools()) as client:
            assert await client.ran(*[("read", A)] * 2, session="run-1") == [True, True]
            assert await client.ran(*[("read", A)] * 2, session="run-2") == [True, True]
            assert await client.ran(("read", A), session="run-1") == [False]

    async def test_two_clients_that_name_their_runs_in_a_header_do_not_mix(self) -> None:
        async with serving(self.server(Tools(), "memory://")) as url:
            for run in ("run-1", "run-2"):
                async with self.connect(url, headers={"Loopfence-Session": run}) as client:
                    assert await client.ran(*[("read", A)] * 3) == [True, True, False]

    async def test_two_users_never_share_a_run_whatever_they_call_it(self) -> None:
        guard = LoopGuard("memory://")
        async with serving(self.server(Tools(), None, users=True, guard=guard)) as url:
            for token in USERS:
                async with self.connect(url, headers={"Authorization": f"Bearer {token}"}) as client:
                    assert await client.ran(*[("read", A)] * 3, session="run-1") == [True, True, False]
        sessions = list(guard.sessions())
        assert len(sessions) == 2
        for session in sessions:
            assert session.startswith("user-")
            assert session.endswith("/run-1")
            assert "ann" not in session
            assert "ben" not in session

    async def test_a_user_who_names_no_run_is_one_session(self) -> None:
        async with serving(self.server(Tools(), "memory://", users=True)) as url:
            async with self.connect(url, headers={"Authorization": "Bearer token-of-ann"}) as client:
                assert await client.ran(*[("read", A)] * 2) == [True, True]
            async with self.connect(url, headers={"Authorization": "Bearer token-of-ann"}) as client:
                assert await client.ran(("read", A)) == [False]

    # -- h
    async def test_the_same_read_in_three_runs_is_no_loop(self) -> None:
        async with self.client(Tools()) as client:
            for turn in range(3):
                assert await client.ran(("read", A), ("read", A), session=f"chat-1/{turn}") == [True, True]

    # -- who is it?
    async def test_http_clients_that_nothing_tells_apart_are_not_guarded(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        tools = Tools()
        async with self.client(tools) as client:
            assert await client.ran(*[("read", A)] * 5) == [True] * 5
            assert await client.ran(("read", A), session="") == [True]
            assert (await client.call("read", A, session=7)).ran
        warnings = [record.getMessage() for record in caplog.records if record.name.startswith("loopfence")]
        assert len(warnings) == 1
        assert "'loopfence/session'" in warnings[0]

    async def test_an_explicit_session_wins_over_what_the_client_says(self) -> None:
        guard = LoopGuard("memory://")
        async with self.client(Tools(), None, guard=guard, session=lambda source: "mine") as client:
            assert await client.ran(("read", A), session="run-1") == [True]
        assert list(guard.sessions()) == ["mine"]

    async def test_a_handshake_client_is_known_by_its_mcp_session(self) -> None:
        guard = LoopGuard("memory://")
        async with serving(self.server(Tools(), None, guard=guard)) as url:
            for _ in range(2):
                async with self.connect(url, mode="legacy") as client:
                    assert await client.ran(*[("read", A)] * 3) == [True, True, False]
        assert guard.tracked_sessions() == 2

    async def test_a_run_with_a_name_that_is_too_long_is_let_through(self, caplog: pytest.LogCaptureFixture) -> None:
        async with self.client(Tools()) as client:
            assert await client.ran(*[("read", A)] * 4, session="x" * 600) == [True] * 4
        assert "not guarded" in caplog.text

    # -- what came of it
    async def test_a_failing_tool_is_blocked_by_its_failures_whatever_its_arguments(self) -> None:
        tools = Tools(failing)
        async with self.client(tools, policy=Policy(failures=3)) as client:
            answers = [await client.call("read", {"path": str(number)}, session="run-1") for number in range(4)]
        assert [answer.ran for answer in answers] == [True, True, False, False]
        assert all(answer.failed for answer in answers)
        assert len(tools.ran) == 2

    async def test_a_success_of_a_progress_tool_lets_the_other_calls_start_anew(self) -> None:
        policy = Policy.from_mapping({"tools": {"write": {"progress": True}}})
        async with self.client(Tools(), policy=policy) as client:
            calls = [("read", A), ("read", A), ("write", A), ("read", A), ("read", A), ("read", A)]
            assert await client.ran(*calls, session="run-1") == [True] * 5 + [False]

    async def test_shadow_mode_changes_nothing_that_the_client_sees(self) -> None:
        tools = Tools()
        async with self.client(tools, policy=Policy(threshold=2, stop=3, enforce=False)) as client:
            answers = [await client.call("read", A, session="run-1") for _ in range(5)]
        assert answers == [Answer(SAME, failed=False)] * 5
        assert len(tools.ran) == 5

    async def test_masks_work_on_plain_texts(self) -> None:
        policy = Policy.from_mapping({"tools": {"read": {"result_mask": [r"\d+ ms$"]}}})
        async with self.client(Tools(lambda run: f"done in {run} ms"), policy=policy) as client:
            assert await client.ran(*[("read", A)] * 3, session="run-1") == [True, True, False]

    # -- a tool that asks the user is called again with the answer: that is the same call
    async def test_a_call_that_is_sent_again_with_the_users_answer_counts_once(self) -> None:
        guard, tools = LoopGuard("memory://"), Tools()
        app = self.server(tools, None, guard=guard)
        async with serving(app) as url, self.connect(url, answers=["yes"]) as client:
            assert await client.call("ask", A, session="run-1") == Answer("yes", failed=False)
        (call,) = guard.session("run-1").snapshot().calls
        assert not call.reported, "a question is no result"

    async def test_a_users_answer_is_news_from_outside(self) -> None:
        app = self.server(Tools(), "memory://")
        async with serving(app) as url, self.connect(url, answers=["yes"] * 9) as client:
            assert await client.ran(*[("ask", A)] * 4, session="run-1") == [True] * 4
            assert await client.ran(*[("read", A)] * 2, session="run-1") == [True, True]
            assert await client.ran(("ask", A), ("read", A), session="run-1") == [True, True]

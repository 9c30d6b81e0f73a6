"""FastMCP servers under the guard, over HTTP and within the process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fastmcp", reason="needs the extra: pip install 'loopfence[fastmcp]'")

import mcp_types as mt
from fastmcp import Client, Context, FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.tools.base import ToolResult
from mcp_story import USERS, A, Answer, McpStory
from mcp_story import Client as StoryClient
from story import NOT_RUN, SAME, Tools

from loopfence import LoopGuard
from loopfence.integrations.fastmcp import LoopGuardMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastmcp_server.py"


def make_server(tools: Tools, url: str | None = None, *, users: bool = False, **options: Any) -> FastMCP:
    tokens = {token: {"client_id": "app", "sub": name, "scopes": []} for token, name in USERS.items()}
    auth = StaticTokenVerifier(tokens) if users else None
    server = FastMCP("story", middleware=[LoopGuardMiddleware(url, **options)], auth=auth)

    @server.tool
    def read(path: str) -> str:
        return tools.run("read")

    @server.tool
    def write(path: str) -> str:
        return tools.run("write")

    @server.tool
    async def ask(path: str, ctx: Context) -> str | mt.InputRequiredResult:
        if ctx.input_responses is not None:
            return str(ctx.input_responses["q"].content["answer"])
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
        question = mt.ElicitRequest(params=mt.ElicitRequestFormParams(message="Sure?", requested_schema=schema))
        return mt.InputRequiredResult(input_requests={"q": question})

    return server


class _Client(StoryClient):
    def __init__(self, client: Client[Any]) -> None:
        self.client = client

    async def call(self, tool: str, args: dict[str, Any], session: Any = None) -> Answer:
        meta = None if session is None else {"loopfence/session": session}
        result = await self.client.call_tool(tool, args, meta=meta, raise_on_error=False)
        return Answer("".join(block.text for block in result.content), result.is_error)


class TestFastMCP(McpStory):
    def server(self, tools: Tools, url: str | None = None, *, users: bool = False, **options: Any) -> Any:
        return make_server(tools, url, users=users, **options).http_app()

    @contextlib.asynccontextmanager
    async def connect(
        self, url: str, *, headers: dict[str, str] | None = None, mode: str = "auto", answers: list[str] | None = None
    ) -> AsyncIterator[StoryClient]:
        said = iter(answers or [])

        async def answer(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult[Any]:
            return ElicitResult(action="accept", content={"answer": next(said)})

        transport = StreamableHttpTransport(url, headers=headers)
        async with Client(transport, mode=mode, elicitation_handler=answer if answers else None) as client:
            yield _Client(client)


async def test_within_the_process_the_server_is_one_session(caplog: pytest.LogCaptureFixture) -> None:
    async with Client(make_server(Tools(), "memory://")) as client:
        assert await _Client(client).ran(*[("read", A)] * 3) == [True, True, False]
    assert sum("made-up session" in record.getMessage() for record in caplog.records) == 1


async def test_a_result_that_says_it_is_an_error_is_a_failure() -> None:
    server = make_server(Tools(), "memory://", failures=3, session=lambda context: "run-1")

    @server.tool
    def broken(number: int) -> ToolResult:
        return ToolResult(content="no such file", is_error=True)

    async with Client(server) as client:
        answers = [await _Client(client).call("broken", {"number": number}) for number in range(3)]
    assert [answer.text.startswith(NOT_RUN) for answer in answers] == [False, False, True]


async def test_a_call_by_the_servers_own_code_is_guarded_too() -> None:
    server = make_server(Tools(), "memory://", session=lambda context: "batch")
    texts = [(await server.call_tool("read", A)).content[0].text for _ in range(3)]
    assert texts[:2] == [SAME, SAME]
    assert texts[2].startswith(NOT_RUN)


async def test_the_session_callable_gets_the_middleware_context() -> None:
    guard = LoopGuard("memory://")
    server = make_server(Tools(), guard=guard, session=lambda context: context.message.arguments["path"])
    async with Client(server) as client:
        await client.call_tool("read", A)
    assert list(guard.sessions()) == ["a.txt"]


def test_the_example_shows_a_loop_being_cut() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.count("the search tool runs") == 2
    assert done.stdout.count(NOT_RUN) == 2

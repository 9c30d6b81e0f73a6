"""Servers of the `mcp` SDK under the guard, over HTTP, over stdio and within the process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("mcp.server.extension", reason="needs the extra: pip install 'loopfence[mcp]'")

import httpx2
import mcp_types as mt
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp_story import USERS, A, Answer, McpStory
from mcp_story import Client as StoryClient
from story import NOT_RUN, Tools

from loopfence import LoopGuard
from loopfence.integrations.mcp import LoopGuardExtension, result_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "mcp_server.py"


class _Users:
    async def verify_token(self, token: str) -> AccessToken | None:
        name = USERS.get(token)
        return AccessToken(token=token, client_id="app", subject=name, scopes=[]) if name else None


def make_server(tools: Tools, url: str | None = None, *, users: bool = False, **options: Any) -> MCPServer:
    auth: dict[str, Any] = {}
    if users:
        settings = AuthSettings(issuer_url="http://127.0.0.1:1", resource_server_url=None)
        auth = {"token_verifier": _Users(), "auth": settings}
    server = MCPServer("story", extensions=[LoopGuardExtension(url, **options)], **auth)

    @server.tool()
    def read(path: str) -> str:
        return tools.run("read")

    @server.tool()
    def write(path: str) -> str:
        return tools.run("write")

    @server.tool()
    async def ask(path: str, ctx: Context[Any]) -> str | mt.InputRequiredResult:
        if ctx.input_responses is not None:
            return str(ctx.input_responses["q"].content["answer"])
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
        question = mt.ElicitRequest(params=mt.ElicitRequestFormParams(message="Sure?", requested_schema=schema))
        return mt.InputRequiredResult(input_requests={"q": question})

    return server


class _Client(StoryClient):
    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, args: dict[str, Any], session: Any = None) -> Answer:
        meta = None if session is None else {"loopfence/session": session}
        result = await self.client.call_tool(tool, args, meta=meta)
        return Answer("".join(block.text for block in result.content), result.is_error)


class TestMcp(McpStory):
    def server(self, tools: Tools, url: str | None = None, *, users: bool = False, **options: Any) -> Any:
        return make_server(tools, url, users=users, **options).streamable_http_app()

    @contextlib.asynccontextmanager
    async def connect(
        self, url: str, *, headers: dict[str, str] | None = None, mode: str = "auto", answers: list[str] | None = None
    ) -> AsyncIterator[StoryClient]:
        said = iter(answers or [])

        async def answer(context: Any, params: Any) -> mt.ElicitResult:
            return mt.ElicitResult(action="accept", content={"answer": next(said)})

        callback = answer if answers else None
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=callback) as client:
                yield _Client(client)


async def test_within_the_process_the_server_is_one_session(caplog: pytest.LogCaptureFixture) -> None:
    async with Client(make_server(Tools(), "memory://")) as client:
        assert await _Client(client).ran(*[("read", A)] * 3) == [True, True, False]
    assert sum("made-up session" in record.getMessage() for record in caplog.records) == 1


async def test_over_stdio_the_process_is_one_session() -> None:
    command = StdioServerParameters(command=sys.executable, args=[str(EXAMPLE), "serve"])
    async with Client(stdio_client(command)) as client:
        results = [await client.call_tool("search", {"query": "x"}) for _ in range(3)]
    assert [result.is_error for result in results] == [False, False, True]
    assert results[2].content[0].text.startswith(NOT_RUN)


async def test_the_session_callable_gets_the_request_context() -> None:
    guard = LoopGuard("memory://")
    server = make_server(Tools(), guard=guard, session=lambda ctx: ctx.method)
    async with Client(server) as client:
        await client.call_tool("read", A)
    assert list(guard.sessions()) == ["tools/call"]


@pytest.mark.parametrize(
    ("content", "structured", "result"),
    [
        ([mt.TextContent(type="text", text="a")], None, "a"),
        ([mt.TextContent(type="text", text="a"), mt.TextContent(type="text", text="b")], None, "a\nb"),
        ([], None, ""),
        ([mt.TextContent(type="text", text="[1]")], {"result": [1]}, [1]),
        ([mt.TextContent(type="text", text="{}")], {"result": 1, "took": 2}, {"result": 1, "took": 2}),
        ([mt.TextContent(type="text", text="1")], [1, 2], [1, 2]),
    ],
)
def test_what_is_compared_is_what_the_tool_returned(content: Any, structured: Any, result: Any) -> None:
    assert result_of(content, structured) == result


def test_a_picture_is_compared_by_its_data() -> None:
    first, second = (mt.ImageContent(type="image", data=data, mime_type="image/png") for data in ("AAAA", "BBBB"))
    assert result_of([first], None) == result_of([first.model_copy()], None)
    assert result_of([first], None) != result_of([second], None)


def test_the_example_shows_a_loop_being_cut() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.count("tool -> model: No results.") == 2
    assert done.stdout.count(NOT_RUN) == 2

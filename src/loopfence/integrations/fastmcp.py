"""FastMCP servers: a middleware that refuses looping tool calls.

    server = FastMCP("files", middleware=[LoopGuardMiddleware("redis://localhost:6379/0")])

How a client names its run, and what happens where it does not, is told in `loopfence.integrations.mcp`; with
FastMCP's own client: `client.call_tool(name, args, meta={"loopfence/session": run_id})`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopfence.integrations._adapter import Hooks, missing

try:
    from fastmcp.server.dependencies import get_access_token
    from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
    from fastmcp.tools.base import InputRequiredToolResult, ToolResult
except ImportError as error:
    raise missing("fastmcp", error) from error

from loopfence.integrations.mcp import ToolCalls, caller, result_of

if TYPE_CHECKING:
    import mcp_types as mt


class LoopGuardMiddleware(Middleware):
    """Put it first among a server's middleware. A call in a loop gets an error result that says why it was not run.

    The settings are those of LoopGuard, or give a ready `guard`. `session` takes the MiddlewareContext and returns
    the session's id, or None to fall back on what the client told.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self._calls = ToolCalls("fastmcp", url, **settings)

    async def on_call_tool(
        self,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """Called by FastMCP around each `tools/call`."""
        fastmcp = context.fastmcp_context
        # Without a request the server's own code calls the tool.
        request = fastmcp.request_context if fastmcp is not None else None
        http = request.request if request is not None else None
        ids = caller(get_access_token(), (request.meta if request is not None else None) or {}, http)
        hooks: Hooks[ToolResult] = Hooks(run=lambda: call_next(context), refuse=_refuse, outcome=_outcome)
        return await self._calls.answer(context, context.message, ids, hooks, http=http is not None)


def _refuse(verdict: Any) -> ToolResult:
    return ToolResult(content=verdict.message, is_error=True)


def _outcome(result: ToolResult) -> dict[str, Any] | None:
    if isinstance(result, InputRequiredToolResult):
        return None
    return {"result": result_of(result.content, result.structured_content), "ok": not result.is_error}

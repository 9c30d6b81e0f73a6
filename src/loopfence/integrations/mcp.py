"""MCP servers made with the `mcp` SDK: an extension that refuses looping tool calls.

    server = MCPServer("files", extensions=[LoopGuardExtension("redis://localhost:6379/0")])

A server sees calls, but not whose agent run they belong to: protocol 2026-07-28 knows no sessions. So the client
names its run, in the request's `_meta` as "loopfence/session" or in the HTTP header "Loopfence-Session". Users that
are authenticated never share a session. An HTTP client that nothing tells apart is not guarded.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loopfence.integrations._adapter import Adapter, Hooks, T, missing

try:
    import mcp_types as mt
    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.provider import AccessToken, principal_components
    from mcp.server.extension import Extension
except ImportError as error:
    raise missing("mcp", error) from error

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

SESSION_META = "loopfence/session"
SESSION_HEADER = "loopfence-session"
_LEGACY_SESSION_HEADER = "mcp-session-id"
log = logging.getLogger("loopfence.integrations")


class ToolCalls(Adapter):
    """The guard of one server's tool calls, for the `mcp` SDK and for FastMCP."""

    _warned = False

    async def answer(
        self, source: Any, params: mt.CallToolRequestParams, ids: Sequence[str | None], hooks: Hooks[T], *, http: bool
    ) -> T:
        """Check and run one `tools/call`; `http` says that many clients share this server."""
        if http and self.named(source, ids) is None:
            if not self._warned:
                self._warned = True
                log.warning(
                    "not guarded: an MCP client over HTTP named no session; have it send _meta %r or the header %r, "
                    "or pass session=",
                    SESSION_META,
                    SESSION_HEADER,
                )
            return await hooks.run()  # type: ignore[no-any-return]
        call = self.call(source, params.name, params.arguments, ids=ids)
        if params.input_responses is None and params.request_state is None:
            return await self.aaround(call, hooks)
        # The client sends a call again to answer what the tool has asked: that is the same call, and a user's
        # answer is news from outside.
        if any(isinstance(answer, mt.ElicitResult) for answer in (params.input_responses or {}).values()):
            await self.anote_progress(call.session)
        return await hooks.run()  # type: ignore[no-any-return]


class LoopGuardExtension(Extension):
    """Put it into `MCPServer(extensions=[...])`. A call in a loop gets an error result that says why it was not run.

    The settings are those of LoopGuard, or give a ready `guard`. `session` takes the ServerRequestContext and returns
    the session's id, or None to fall back on what the client told.
    """

    identifier = "io.loopfence/guard"

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self._calls = ToolCalls("mcp", url, **settings)

    async def intercept_tool_call(
        self, params: mt.CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Called by the server around each `tools/call`."""
        ids = caller(get_access_token(), params.meta or {}, ctx.request)
        hooks: Hooks[HandlerResult] = Hooks(run=lambda: call_next(ctx), refuse=_refuse, outcome=_outcome)
        return await self._calls.answer(ctx, params, ids, hooks, http=ctx.request is not None)


def caller(token: AccessToken | None, meta: Mapping[str, Any], request: Any) -> tuple[str | None, str | None]:
    """The principal of a request (hashed: it may be a person's name) and the run that it names."""
    principal = None
    if token is not None:
        who = json.dumps(principal_components(token)).encode()
        principal = f"user-{hashlib.sha256(who).hexdigest()[:16]}"
    headers = {} if request is None else request.headers
    run = meta.get(SESSION_META) or headers.get(SESSION_HEADER) or headers.get(_LEGACY_SESSION_HEADER)
    return principal, run if isinstance(run, str) else None


def result_of(content: Sequence[mt.ContentBlock], structured: Any) -> Any:
    """The result to compare: structured content (plain values come as {"result": value}), else text, else blocks."""
    if isinstance(structured, Mapping):
        return structured["result"] if structured.keys() == {"result"} else structured
    if structured is None and all(isinstance(block, mt.TextContent) for block in content):
        return "\n".join(block.text for block in content if isinstance(block, mt.TextContent))
    return structured if structured is not None else [block.model_dump() for block in content]


def _refuse(verdict: Any) -> HandlerResult:
    return mt.CallToolResult(content=[mt.TextContent(type="text", text=verdict.message)], is_error=True)


def _outcome(result: HandlerResult) -> dict[str, Any] | None:
    if not isinstance(result, mt.CallToolResult):
        return None
    return {"result": result_of(result.content, result.structured_content), "ok": not result.is_error}

"""LangChain and LangGraph: a middleware for `create_agent`, and wrappers for a plain ToolNode."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

from loopfence.integrations._adapter import Adapter, Call, Hooks, StopReason, missing, stop_reason, stops

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.errors import GraphBubbleUp
except ImportError as error:
    raise missing("langchain", error) from error

if TYPE_CHECKING:
    from loopfence.verdict import Verdict

_MARK = "loopfence_stop"  # in response_metadata, which no provider is sent


class _GuardedState(AgentState[Any], total=False):  # type: ignore[call-arg]  # without LangChain its base is Any
    loopfence_run: Annotated[str, PrivateStateAttr]


class LoopGuardMiddleware(AgentMiddleware[_GuardedState, Any, Any]):
    """Guards every tool call of an agent: `create_agent(model, tools, middleware=[LoopGuardMiddleware(url)])`.

    Takes what `LoopGuard` takes, or `guard=`; `session=` is a callable of the ToolCallRequest. Without it a
    session is one run of one thread, interrupts and resumes included. Put it before retry middleware.
    A STOP ends the run with an AIMessage after all the tool messages: `stopped(result)` gives the reason.
    """

    state_schema = _GuardedState

    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__()
        self._adapter = Adapter("langchain", url, **options)

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Name the run; a run that is resumed finds its name in the checkpoint."""
        return {"loopfence_run": uuid.uuid4().hex}

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """End the run after a STOP: here every tool call has its answer."""
        if (reason := stopped(state)) is None:
            return None
        return {
            "jump_to": "end",
            "messages": [AIMessage(reason["message"], response_metadata={_MARK: reason})],
        }

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Run the tool, or answer in its place."""
        return self._adapter.around(self._call(request), _hooks(request, handler))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Run the tool, or answer in its place."""
        return await self._adapter.aaround(self._call(request), _hooks(request, handler))

    def _call(self, request: Any) -> Call:
        call, state, info = request.tool_call, request.state, request.runtime.execution_info
        run = _field(state, "loopfence_run") or info.run_id or _user_turn(state)
        # The calls of one step come from one checkpoint, and so do those of a step that is resumed or retried.
        turn = info.checkpoint_id
        return self._adapter.call(request, call["name"], call["args"], ids=(info.thread_id, run), turn=turn)


def tool_wrappers(url: str | None = None, **options: Any) -> dict[str, Any]:
    """Guard a plain graph: `ToolNode(tools, **tool_wrappers(url))`; takes what `LoopGuardMiddleware` takes.

    After a STOP `stopped(state)` gives the reason to the edge that decides where the graph goes on.
    """
    guard = LoopGuardMiddleware(url, **options)
    return {"wrap_tool_call": guard.wrap_tool_call, "awrap_tool_call": guard.awrap_tool_call}


def stopped(state: Any) -> StopReason | None:
    """Why the guard ended this run, or None; `state` is an agent's result, a graph's state or its messages."""
    for message in reversed(_messages(state)):
        reason: StopReason | None = message.response_metadata.get(_MARK)
        if reason is not None or not isinstance(message, ToolMessage):
            return reason
    return None


def _hooks(request: Any, handler: Any) -> Hooks[Any]:
    name, call_id = request.tool_call["name"], request.tool_call["id"]

    def refuse(verdict: Verdict) -> ToolMessage:
        mark = {_MARK: stop_reason(verdict)} if stops(verdict) else {}
        text = verdict.message
        return ToolMessage(text, tool_call_id=call_id, name=name, status="error", response_metadata=mark)

    def outcome(answer: Any) -> dict[str, Any]:
        messages = [answer] if isinstance(answer, ToolMessage) else _messages(getattr(answer, "update", None))
        for message in messages:
            if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
                return {"result": message.content, "ok": message.status != "error"}
        return {}  # a Command without a message of this call: it ran, its result is unknown

    return Hooks(lambda: handler(request), refuse, outcome, not_a_failure=(GraphBubbleUp,))


def _user_turn(state: Any) -> str | None:
    """A plain graph names no run: what the user said last stands for it."""
    return next((m.id for m in reversed(_messages(state)) if isinstance(m, HumanMessage)), None)


def _messages(state: Any) -> list[Any]:
    return state if isinstance(state, list) else _field(state, "messages") or []


def _field(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, dict) else getattr(state, name, None)

"""OpenAI Agents SDK: guardrails on every function tool of an agent."""

from __future__ import annotations

import uuid
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loopfence.integrations._adapter import Adapter, missing, refused, stops

try:
    from agents import (
        Agent,
        FunctionTool,
        ToolInputGuardrail,
        ToolOutputGuardrail,
        default_tool_error_function,
        get_current_span,
    )
    from agents import ToolGuardrailFunctionOutput as Output
except ImportError as error:
    raise missing("openai-agents", error) from error

if TYPE_CHECKING:
    from agents import ToolInputGuardrailData, ToolOutputGuardrailData
    from agents.tool_context import ToolContext
    from agents.usage import Usage

    from loopfence.verdict import Verdict

AgentT = TypeVar("AgentT", bound=Agent[Any])
_NAME = "loopfence"
# The SDK names no run: its usage record, one object a run, stands for it, over handoffs too.
_runs: dict[int, str] = {}


def guard_agent(agent: AgentT, url: str | None = None, **options: Any) -> AgentT:
    """Guard every function tool of an agent: `agent = guard_agent(agent, url)`.

    Takes what `LoopGuard` takes, or `guard=`; `session=` is a callable of the ToolContext. Without it a session
    is one run of one `RunConfig.group_id`. Gives a clone; MCP servers get their guardrails in place. Guard the agents
    it hands over to as well, with the same `guard=`. A STOP raises ToolInputGuardrailTripwireTriggered, whose
    `output.output_info` is the Verdict; the stopped turn is not in the history.
    """
    before, after = tool_guardrails(url, **options)
    tools = [replace(tool) if isinstance(tool, FunctionTool) else tool for tool in agent.tools]
    targets: list[Any] = [*agent.mcp_servers, *(tool for tool in tools if isinstance(tool, FunctionTool))]
    for target in targets:
        others = target.tool_input_guardrails or []
        if all(guardrail.name != _NAME for guardrail in others):
            # First of all: a call that another guardrail rejects again and again is a loop too.
            target.tool_input_guardrails = [before, *others]
            target.tool_output_guardrails = [after, *(target.tool_output_guardrails or [])]
    return cast("AgentT", agent.clone(tools=tools))


def tool_guardrails(url: str | None = None, **options: Any) -> tuple[ToolInputGuardrail[Any], ToolOutputGuardrail[Any]]:
    """Make the pair of guardrails that `guard_agent` attaches, for tools and MCP servers of your own."""
    adapter = Adapter("openai-agents", url, **options)
    verdicts: weakref.WeakKeyDictionary[ToolContext[Any], Verdict] = weakref.WeakKeyDictionary()

    async def check(data: ToolInputGuardrailData) -> Output:
        context = data.context
        run, turns = _run(context.usage), context.usage.requests
        group = context.run_config.group_id if context.run_config else None
        # A model that reports no usage tells no turn: then every call counts for itself.
        turn = f"{run}:{turns}" if turns else None
        call = adapter.call(context, context.tool_name, context.tool_arguments, ids=(group, run), turn=turn)
        verdict = await adapter.acheck(call)
        if stops(verdict):
            return Output.raise_exception(verdict)
        if refused(verdict):
            return Output.reject_content(verdict.message, verdict)
        if verdict is not None:
            verdicts[context] = verdict
        return Output.allow()

    async def report(data: ToolOutputGuardrailData) -> Output:
        await adapter.areport(verdicts.pop(data.context, None), result=data.output, ok=not _failed(data))
        return Output.allow()

    return ToolInputGuardrail(check, _NAME), ToolOutputGuardrail(report, _NAME)


def _run(usage: Usage) -> str:
    if (name := _runs.get(id(usage))) is None:
        name = _runs[id(usage)] = uuid.uuid4().hex
        weakref.finalize(usage, _runs.pop, id(usage), None)
    return name


def _failed(data: ToolOutputGuardrailData) -> bool:
    """The SDK turns exceptions into a text for the model, and marks the tool's span where tracing is on."""
    span, usual = get_current_span(), default_tool_error_function(data.context, Exception())
    return bool(span and span.error) or (isinstance(data.output, str) and data.output.startswith(usual))

"""Pydantic AI: a capability that guards every tool call of an agent."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from loopfence.integrations._adapter import Adapter, Hooks, missing, stops

try:
    from pydantic_ai import ApprovalRequired, CallDeferred, ToolFailed, ToolReturn
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import SkipToolExecution
except ImportError as error:
    raise missing("pydantic-ai", error) from error

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models import ModelRequestContext

    from loopfence.verdict import Verdict


class LoopGuardCapability(AbstractCapability[Any]):
    """Guards every tool call of an agent: `Agent(model, capabilities=[LoopGuardCapability(url)])`.

    Takes what `LoopGuard` takes, or `guard=`; `session=` is a callable of the RunContext. Without it a
    session is one run of one conversation. A STOP raises LoopDetectedError out of the run when all the
    tools of the turn have their answer; its `verdict` says why, `capture_run_messages` holds the history.
    """

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self._adapter = Adapter("pydantic-ai", url, **options)
        self._stop: Verdict | None = None

    async def for_run(self, ctx: RunContext[Any]) -> LoopGuardCapability:
        """Keep one run's stop apart from another's."""
        return copy(self)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Run the tool, or fail it with the guard's message."""

        def refuse(verdict: Verdict) -> Any:
            if stops(verdict):
                self._stop = verdict
            raise ToolFailed(verdict.message)

        # The model's own arguments: the validated ones may hold defaults that differ at every call.
        guarded = self._adapter.call(
            ctx,
            call.tool_name,
            call.args_as_dict(),
            ids=(ctx.conversation_id, ctx.run_id),
            turn=f"{ctx.run_id}:{ctx.run_step}",
        )
        passing = (ApprovalRequired, CallDeferred, SkipToolExecution)
        return await self._adapter.aaround(
            guarded, Hooks(lambda: handler(args), refuse, _outcome, not_a_failure=passing)
        )

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """End the run after a STOP: here every tool call has its answer."""
        if self._stop is not None:
            raise self._stop.error()
        return request_context


def _outcome(answer: Any) -> dict[str, Any]:
    return {"result": answer.return_value if isinstance(answer, ToolReturn) else answer}

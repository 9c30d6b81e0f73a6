"""The Claude Agent SDK: hooks for ClaudeAgentOptions.

    guard = LoopGuardHooks("redis://localhost:6379/0")
    options = ClaudeAgentOptions(hooks=guard)

Where a run was stopped, `guard.stopped(message.session_id)` of its ResultMessage says why.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loopfence.integrations import hooks
from loopfence.integrations._adapter import Adapter, StopReason, missing, stop_reason, stops
from loopfence.integrations.presets import combine

try:
    from claude_agent_sdk import HookContext, HookInput, HookJSONOutput, HookMatcher
    from claude_agent_sdk.types import HookEvent
except ImportError as error:
    raise missing("claude-agent", error) from error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loopfence.policy import Policy
    from loopfence.verdict import Verdict

K = TypeVar("K")
V = TypeVar("V")
_AGENT = hooks.DIALECTS["claude-code"]
_REMEMBERED = 1024
"""How many calls that never end (a user refused them), and stopped runs, are kept in mind."""


class LoopGuardHooks(dict[HookEvent, list[HookMatcher]]):
    """The `hooks` of ClaudeAgentOptions; lists of your own may be added: `guard["PreToolUse"].append(...)`.

    The settings are those of LoopGuard; `presets.CLAUDE_CODE` is laid under the tool rules of `policy` or `tools`.
    Or give a ready `guard`, which is taken as it is. `session` takes a hook's input and returns the run's id, or None
    to fall back on `with loopfence.session(id)`, then on the SDK's session id. Each sub-agent counts for itself.
    """

    def __init__(self, url: str | None = None, *, policy: Policy | None = None, **settings: Any) -> None:
        if settings.get("guard") is None:
            own: Mapping[str, Any] = settings.get("tools") or (policy.tools if policy is not None else {})
            settings["tools"] = combine(own, _AGENT.tools)
        self._adapter = Adapter("claude-agent-sdk", url, policy=policy, **settings)
        self._running: OrderedDict[tuple[str, str | None], Verdict | None] = OrderedDict()
        self._stopped: OrderedDict[str, StopReason] = OrderedDict()
        super().__init__({cast("HookEvent", event): [HookMatcher(hooks=[self._on])] for event in _AGENT.events})

    def stopped(self, session_id: str) -> StopReason | None:
        """Why the guard ended the run with this `ResultMessage.session_id`; None where it did not."""
        return self._stopped.get(session_id)

    async def _on(self, payload: HookInput, tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
        event = hooks.read(_AGENT, cast("Mapping[str, Any]", payload))
        if event is None:
            return {}
        call = self._adapter.call(payload, event.tool, event.args, ids=(event.session,), turn=event.call_id)
        call = replace(call, session=hooks.of_agent(call.session, event.agent))
        if event.step in (hooks.Step.TURN, hooks.Step.COMPACTED):
            # In a session that the application named a prompt may come from another worker of the same run.
            if event.step is hooks.Step.COMPACTED or self._adapter.named(payload) is None:
                await self._adapter.anote_progress(call.session)
        elif event.step is hooks.Step.REPORT:
            await self._adapter.areport(self._running.pop((call.session, tool_use_id), None), **event.outcome)
        else:
            verdict = await self._adapter.acheck(call)
            if stops(verdict):
                _remember(self._stopped, event.session, stop_reason(verdict))
            if verdict is not None and (refusal := hooks.answer(_AGENT, verdict)) is not None:
                # The SDK spells it with an underscore, for `continue` is a word of Python.
                return cast("HookJSONOutput", {f"{k}_" if k == "continue" else k: v for k, v in refusal.items()})
            _remember(self._running, (call.session, tool_use_id), verdict)
        return {}


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> None:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)

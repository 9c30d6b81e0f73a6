"""What the command hooks of coding agents say, and how each wants to be answered. Pure: payload in, answer out.

Read off Claude Code 2.1.332, Codex CLI 0.171.0 and Gemini CLI 0.61.0 as they ran.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from loopfence.integrations import presets
from loopfence.verdict import Level, Verdict

if TYPE_CHECKING:
    from loopfence.policy import ToolRule

Answer = dict[str, Any]
Outcome = dict[str, Any]
"""What `report_call` takes: `result` (left out where it is not known) and `ok`."""


class Step(Enum):
    """What an event is to the guard."""

    CHECK = auto()
    REPORT = auto()
    TURN = auto()
    """The user said something (Claude Code: or a background command ended): news from outside, progress."""
    COMPACTED = auto()
    """The agent's context was compacted, so that it may have to look again: progress."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a coding agent. `call_id` is None where the agent tells no id that is surely used once."""

    step: Step
    session: str
    agent: str | None
    """The sub-agent that it is about."""
    tool: str = ""
    args: Any = None
    call_id: str | None = None
    outcome: Outcome = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One coding agent: its event names, its way of being refused, and what its tools mean."""

    tools: Mapping[str, ToolRule]
    before: str
    after: frozenset[str]
    turn: str
    compacted: str | None
    outcome: Callable[[Mapping[str, Any]], Outcome]
    refuse: Callable[[Verdict], Answer]

    @property
    def events(self) -> list[str]:
        """All events that matter."""
        return [self.turn, self.before, *sorted(self.after), *([self.compacted] if self.compacted else [])]


def read(dialect: Dialect, payload: Mapping[str, Any]) -> Event | None:
    """The event that a hook's payload tells of, None for one that does not matter; KeyError for a missing field."""
    name, session, agent = payload["hook_event_name"], payload["session_id"], payload.get("agent_id")
    if name in (dialect.turn, dialect.compacted):
        return Event(Step.TURN if name == dialect.turn else Step.COMPACTED, session, agent)
    if name != dialect.before and name not in dialect.after:
        return None
    tool, args, call_id = payload["tool_name"], payload.get("tool_input"), _used_once(payload.get("tool_use_id"))
    if name == dialect.before:
        return Event(Step.CHECK, session, agent, tool, args, call_id)
    return Event(Step.REPORT, session, agent, tool, args, call_id, dialect.outcome(payload))


def of_agent(session: str, agent: str | None) -> str:
    """The session that a sub-agent's calls count in: one of its own, next to the main one's."""
    return f"{session}/{agent}" if agent else session


def answer(dialect: Dialect, verdict: Verdict) -> Answer | None:
    """What to print for a verdict. None = nothing: an explicit "allow" would skip the user's own permission rules."""
    return None if verdict.allowed else dialect.refuse(verdict)


# Ids that a server draws end in something long and random; some models number their calls (call_0) in every turn.
_RANDOM_END = re.compile(r"[A-Za-z0-9]{8}$")


def _used_once(call_id: Any) -> str | None:
    return call_id if isinstance(call_id, str) and _RANDOM_END.search(call_id) else None


def _claude_outcome(payload: Mapping[str, Any]) -> Outcome:
    if payload["hook_event_name"] == "PostToolUseFailure":
        return {"result": payload.get("error"), "ok": False}
    response = payload.get("tool_response")
    if isinstance(response, Mapping):
        if response.get("type") == "file_unchanged":
            # The agent's own short cut for a file it has read before: no news, and no other result either.
            return {"ok": True}
        if response.get("interrupted"):
            return {"ok": False}
    return {"result": response, "ok": True}


def _codex_outcome(payload: Mapping[str, Any]) -> Outcome:
    # No exit code is told, and a patch that did not apply is not told of at all.
    return {"result": payload.get("tool_response"), "ok": True}


def _gemini_outcome(payload: Mapping[str, Any]) -> Outcome:
    response = payload.get("tool_response")
    if not isinstance(response, Mapping):
        return {"result": response, "ok": True}
    seen = response.get("llmContent")
    failed = response.get("error") is not None
    if payload["tool_name"] == "run_shell_command" and isinstance(seen, str):
        failed = failed or "\nExit Code: " in seen
    return {"result": seen, "ok": not failed}


def _deny(verdict: Verdict) -> Answer:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": verdict.message,
        }
    }


def _ending(verdict: Verdict) -> Answer:
    if verdict.level is not Level.STOP:
        return {}
    # The user reads this; the model reads the reason of the denial.
    resume = f"To let it go on: loopfence resume {shlex.quote(verdict.session)}"
    return {"continue": False, "stopReason": f"{verdict.message} {resume}"}


def _claude_refuse(verdict: Verdict) -> Answer:
    return {**_deny(verdict), **_ending(verdict)}


def _gemini_refuse(verdict: Verdict) -> Answer:
    return {"decision": "deny", "reason": verdict.message, **_ending(verdict)}


DIALECTS = {
    "claude-code": Dialect(
        tools=presets.CLAUDE_CODE,
        before="PreToolUse",
        after=frozenset({"PostToolUse", "PostToolUseFailure"}),
        turn="UserPromptSubmit",
        compacted="PreCompact",
        outcome=_claude_outcome,
        refuse=_claude_refuse,
    ),
    "codex": Dialect(
        tools=presets.CODEX,
        before="PreToolUse",
        after=frozenset({"PostToolUse"}),
        turn="UserPromptSubmit",
        compacted="PreCompact",
        outcome=_codex_outcome,
        # Codex takes no stop before a tool: with Claude's stop fields the whole answer would be void.
        refuse=_deny,
    ),
    "gemini": Dialect(
        tools=presets.GEMINI,
        before="BeforeTool",
        after=frozenset({"AfterTool"}),
        turn="BeforeAgent",
        # Its PreCompress comes before every request to the model, compressed or not.
        compacted=None,
        outcome=_gemini_outcome,
        refuse=_gemini_refuse,
    ),
}
"""Name on the command line -> dialect."""

"""Coding agents as their command hooks see them: what each sends, as recorded, and how each reads an answer."""

from __future__ import annotations

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

LOOPFENCE = Path(sys.executable).with_name("loopfence")
_ids = count(1)


@dataclass
class CodingAgent(ABC):
    """One chat of an agent; every event starts the hook as a process of its own."""

    url: str
    session: str = "01a22b2c-2f4d-7680-b8a7-649dc31f541d"
    options: tuple[str, ...] = ()
    subagent: str | None = None
    stderr: list[str] = field(default_factory=list)

    name: ClassVar[str]
    shell: ClassVar[str]
    """The agent's own names: of its shell,"""
    edit: ClassVar[tuple[str, dict[str, Any]]]
    """and of an edit, with its arguments."""

    def send(self, payload: Any, *, env: dict[str, str] | None = None) -> dict[str, Any] | None:
        """Run the hook; it must always succeed, and print JSON or nothing."""
        text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        done = subprocess.run(
            [LOOPFENCE, "hook", self.name, *self.options],
            input=text,
            capture_output=True,
            env={"LOOPFENCE_URL": self.url} if env is None else env,
            timeout=60,
        )
        self.stderr += done.stderr.decode().splitlines()
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def call(self, tool: str, args: Any, result: str | None = "the same", call_id: str | None = None) -> str | None:
        """One call as the agent makes it: asked for, run, told of. Returns why it was denied. No result = it failed."""
        call_id = call_id or f"call_{next(_ids):024d}"
        answer = self.send(self.before(tool, args, call_id))
        if answer is not None:
            return self.denied(answer)
        told = self.after(tool, args, result, call_id)
        assert told is None or self.send(told) is None
        return None

    def user_says(self, text: str) -> None:
        assert self.send(self.turn(text)) is None

    def _event(self, name: str, **fields: Any) -> dict[str, Any]:
        by = {} if self.subagent is None else {"agent_id": self.subagent, "agent_type": "worker"}
        return {"session_id": self.session, **by, "cwd": "/src", "hook_event_name": name, **fields}

    @abstractmethod
    def before(self, tool: str, args: Any, call_id: str) -> dict[str, Any]: ...

    @abstractmethod
    def after(self, tool: str, args: Any, result: str | None, call_id: str) -> dict[str, Any] | None: ...

    @abstractmethod
    def turn(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def denied(self, answer: dict[str, Any]) -> str: ...


def _pre_tool_use_denied(answer: dict[str, Any]) -> str:
    said = answer["hookSpecificOutput"]
    assert (said["hookEventName"], said["permissionDecision"]) == ("PreToolUse", "deny")
    return str(said["permissionDecisionReason"])


class ClaudeCode(CodingAgent):
    """Claude Code 2.1.332."""

    name = "claude-code"
    shell = "Bash"
    edit = ("Edit", {"file_path": "/src/a.py", "old_string": "a", "new_string": "b"})
    _common: ClassVar = {"transcript_path": "/t.jsonl", "prompt_id": "a0401e00", "permission_mode": "default"}

    def before(self, tool: str, args: Any, call_id: str) -> dict[str, Any]:
        return self._event("PreToolUse", **self._common, tool_name=tool, tool_input=args, tool_use_id=call_id)

    def after(self, tool: str, args: Any, result: str | None, call_id: str) -> dict[str, Any]:
        common = {
            **self._common,
            "tool_name": tool,
            "tool_input": args,
            "tool_use_id": call_id,
            "duration_ms": next(_ids),
        }
        if result is None:
            return self._event("PostToolUseFailure", **common, error="Exit code 3")
        response = {"stdout": result, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
        return self._event("PostToolUse", **common, tool_response=response)

    def turn(self, text: str) -> dict[str, Any]:
        return self._event("UserPromptSubmit", **self._common, prompt=text)

    def denied(self, answer: dict[str, Any]) -> str:
        return _pre_tool_use_denied(answer)


class Codex(CodingAgent):
    """Codex CLI 0.171.0: no event for a patch that does not apply, no exit code in the one for a command."""

    name = "codex"
    shell = "Bash"
    edit = ("apply_patch", {"command": "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch\n"})
    _common: ClassVar = {
        "turn_id": "01a22b2c-2f78",
        "transcript_path": None,
        "model": "m",
        "permission_mode": "default",
    }

    def before(self, tool: str, args: Any, call_id: str) -> dict[str, Any]:
        return self._event("PreToolUse", **self._common, tool_name=tool, tool_input=args, tool_use_id=call_id)

    def after(self, tool: str, args: Any, result: str | None, call_id: str) -> dict[str, Any] | None:
        if result is None and tool == "apply_patch":
            return None
        told = {"tool_name": tool, "tool_input": args, "tool_response": result or "", "tool_use_id": call_id}
        return self._event("PostToolUse", **self._common, **told)

    def turn(self, text: str) -> dict[str, Any]:
        return self._event("UserPromptSubmit", **self._common, prompt=text)

    def denied(self, answer: dict[str, Any]) -> str:
        assert answer.keys() == {"hookSpecificOutput"}, "with any field of a stop Codex takes no denial"
        return _pre_tool_use_denied(answer)


class Gemini(CodingAgent):
    """Gemini CLI 0.61.0: no call ids, and a process group in each result of the shell."""

    name = "gemini"
    shell = "run_shell_command"
    edit = ("replace", {"file_path": "a.py", "old_string": "a", "new_string": "b", "instruction": "i"})
    _common: ClassVar = {"transcript_path": "/t.jsonl", "timestamp": "2026-11-30T06:40:07.546Z"}

    def before(self, tool: str, args: Any, call_id: str) -> dict[str, Any]:
        return self._event("BeforeTool", **self._common, tool_name=tool, tool_input=args)

    def after(self, tool: str, args: Any, result: str | None, call_id: str) -> dict[str, Any]:
        response: dict[str, Any] = {"llmContent": result, "returnDisplay": result}
        if tool == self.shell:
            code = "\nExit Code: 3" if result is None else ""
            response["llmContent"] = f"Output: {result or '(empty)'}{code}\nProcess Group PGID: {next(_ids)}"
        elif result is None:
            error = {"message": "Could not find it.", "type": "edit_no_occurrence_found"}
            response = {"llmContent": "Could not find it.", "returnDisplay": "Error", "error": error}
        return self._event("AfterTool", **self._common, tool_name=tool, tool_input=args, tool_response=response)

    def turn(self, text: str) -> dict[str, Any]:
        return self._event("BeforeAgent", **self._common, prompt=text)

    def denied(self, answer: dict[str, Any]) -> str:
        assert answer["decision"] == "deny"
        return str(answer["reason"])


AGENTS = [ClaudeCode, Codex, Gemini]

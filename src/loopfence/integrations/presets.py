"""What the tools of coding agents mean to the loop guard: which make progress, which poll, what is only noise.

`CLAUDE_CODE`, `CODEX` and `GEMINI` go into `Policy(tools=...)`, your own rules over them:
`Policy(tools=combine({"Bash": ToolRule(pace=30)}, CLAUDE_CODE))`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from loopfence.integrations.shell import writes
from loopfence.policy import ToolRule

POLL_SECONDS: Final = 5.0
"""Looks at a background command that are at least this far apart are polls, not repeats."""

_SHORTEST_WAKEUP: Final = 60.0

# "3 passed in 0.05s" and "Wall time: 1.2 seconds": equal runs differ in nothing but how long they took.
_DURATION: Final = r"\b\d+(?:\.\d+)?\s?(?:ms|s|secs?|seconds?)\b"
_PROCESS_GROUP: Final = r"Process Group PGID: \d+"


def _writing_command(args: Any) -> bool:
    return isinstance(args, Mapping) and isinstance(args.get("command"), str) and writes(args["command"])


def _shell(*masks: str, noise: tuple[str, ...] = ()) -> ToolRule:
    # The description is the model's own comment on the command, worded anew each time.
    return ToolRule(
        progress=_writing_command, ignore=("description",), result_ignore=noise, result_mask=(_DURATION, *masks)
    )


def _each(names: str, rule: ToolRule) -> dict[str, ToolRule]:
    return dict.fromkeys(names.split(), rule)


# Other in every result of Claude Code's tools: how long it took, and the name of what goes on in the background.
_CLAUDE_NOISE: Final = ("backgroundTaskId", "durationMs", "durationSeconds", "taskId")
_PROGRESS: Final = ToolRule(progress=True)
_POLL: Final = ToolRule(pace=POLL_SECONDS)

CLAUDE_CODE: Final[Mapping[str, ToolRule]] = {
    "Bash": _shell(noise=_CLAUDE_NOISE),
    **_each("Edit MultiEdit NotebookEdit Write", _PROGRESS),
    # A sub-agent works in a session of its own; that it may have edited files is known here only.
    **_each("Agent Task Workflow", _PROGRESS),
    # What the user answers comes from outside, like a new turn.
    **_each("AskUserQuestion ExitPlanMode", _PROGRESS),
    **_each("AgentOutputTool BashOutput ListAgents TaskOutput", _POLL),
    "ScheduleWakeup": ToolRule(pace=_SHORTEST_WAKEUP),
    "*": ToolRule(result_ignore=_CLAUDE_NOISE),
}
CODEX: Final[Mapping[str, ToolRule]] = {
    "Bash": _shell(),
    "apply_patch": ToolRule(progress=True, result_mask=(_DURATION,)),
}
GEMINI: Final[Mapping[str, ToolRule]] = {
    "run_shell_command": _shell(_PROCESS_GROUP),
    **_each("invoke_agent replace write_file", _PROGRESS),
    "ask_user": _PROGRESS,
    **_each("list_background_processes read_background_output", _POLL),
}


def combine(own: Mapping[str, ToolRule], preset: Mapping[str, ToolRule]) -> dict[str, ToolRule]:
    """The rules of `own`, then those of `preset` that it does not replace: the first match wins."""
    return {**own, **{glob: rule for glob, rule in preset.items() if glob not in own}}

"""What a command hook adds to each tool call of a coding agent: its process against `python -c 'import redis'`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Row, in_turns, row

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPFENCE = Path(sys.executable).with_name("loopfence")
IMPORT = [sys.executable, "-c", "import redis"]
EVENTS = {
    "claude-code": {"before": "PreToolUse", "after": "PostToolUse"},
    "codex": {"before": "PreToolUse", "after": "PostToolUse"},
    "gemini": {"before": "BeforeTool", "after": "AfterTool"},
}


def hook_rows(url: str, *, quick: bool) -> Iterator[Row]:
    """Both hooks of a call, for each agent."""
    repeats = 11 if quick else 31
    # Compiled modules are what every later hook finds.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["LOOPFENCE_URL"] = url
    for agent, events in EVENTS.items():
        for when, event in events.items():
            hook = partial(_milliseconds, [str(LOOPFENCE), "hook", agent], env, _payload(event))
            ours, theirs = in_turns([hook, partial(_milliseconds, IMPORT, env, {})], repeats)
            yield row(f"hook {agent}, {when} a call", ours, "ms", "python -c 'import redis'", theirs, "<= 1.3")


def _payload(event: str) -> dict[str, Any]:
    return {
        "session_id": "bench",
        "hook_event_name": event,
        "tool_name": "Read",
        "tool_input": {"file_path": "/src/a.py"},
        "tool_response": {"llmContent": "x" * 2000},
    }


def _milliseconds(command: list[str], env: dict[str, str], payload: dict[str, Any]) -> float:
    text = json.dumps({**payload, "tool_use_id": f"toolu_{uuid.uuid4().hex}"}).encode()
    start = time.perf_counter()
    subprocess.run(command, input=text, env=env, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000

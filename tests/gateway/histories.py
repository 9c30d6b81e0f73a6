"""Histories as agents send them, told as steps, in the form of each API."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopfence import Level
    from loopfence.integrations.transcript import TranscriptGuard


@dataclass(frozen=True)
class Ran:
    """A tool call with its result, and the id that the model gave it."""

    tool: str = "search"
    args: Any = field(default_factory=lambda: {"q": "x"})
    result: Any = "nothing found"
    id: str | None = None
    failed: bool = False


Step = str | Ran | list[Ran]
"""What a user said, a call, or several calls of one turn of the model."""


def numbered(steps: list[Step]) -> list[Step]:
    """The steps with a different id for each call, as the large providers make them."""
    count = iter(range(10_000))

    def named(call: Ran) -> Ran:
        return call if call.id else Ran(call.tool, call.args, call.result, f"call_{next(count):024d}", call.failed)

    def step(each: Step) -> Step:
        return each if isinstance(each, str) else [named(call) for call in _calls(each)]

    return [step(each) for each in steps]


def chat(steps: list[Step]) -> dict[str, Any]:
    """An OpenAI chat completions request."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are an agent."}]
    for step in steps:
        if isinstance(step, str):
            messages.append({"role": "user", "content": step})
            continue
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.tool, "arguments": json.dumps(c.args)}}
            for c in _calls(step)
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.extend({"role": "tool", "tool_call_id": c.id, "content": c.result} for c in _calls(step))
    return {"model": "gpt-5", "messages": messages}


def anthropic(steps: list[Step]) -> dict[str, Any]:
    """An Anthropic messages request."""
    messages: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, str):
            messages.append({"role": "user", "content": step})
            continue
        uses = [{"type": "tool_use", "id": c.id, "name": c.tool, "input": c.args} for c in _calls(step)]
        results = [
            {"type": "tool_result", "tool_use_id": c.id, "content": c.result, "is_error": c.failed}
            for c in _calls(step)
        ]
        messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    return {"model": "claude-sonnet-5", "max_tokens": 100, "messages": messages}


def responses(steps: list[Step]) -> dict[str, Any]:
    """An OpenAI responses request."""
    items: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, str):
            items.append({"role": "user", "content": [{"type": "input_text", "text": step}]})
            continue
        items.extend(
            {"type": "function_call", "call_id": c.id, "name": c.tool, "arguments": json.dumps(c.args)}
            for c in _calls(step)
        )
        items.extend({"type": "function_call_output", "call_id": c.id, "output": c.result} for c in _calls(step))
    return {"model": "gpt-5", "input": items}


def ollama(steps: list[Step]) -> dict[str, Any]:
    """An Ollama chat request: its calls and results have no ids."""
    messages: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, str):
            messages.append({"role": "user", "content": step})
            continue
        calls = [{"function": {"name": c.tool, "arguments": c.args}} for c in _calls(step)]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages.extend({"role": "tool", "tool_name": c.tool, "content": c.result} for c in _calls(step))
    return {"model": "llama3.2", "messages": messages}


def _calls(step: Ran | list[Ran]) -> list[Ran]:
    return step if isinstance(step, list) else [step]


LOOP: list[Step] = ["Find it.", Ran(), Ran(), Ran()]


async def sent(guard: TranscriptGuard, steps: list[Step], form: Any = chat) -> list[Level]:
    """The levels of a growing history's requests, one after each step."""
    history = numbered(steps)
    verdicts = [await guard.check("s", form(history[: n + 1])) for n in range(len(history))]
    return [verdict.level for verdict in verdicts if verdict is not None]


async def window(guard: TranscriptGuard) -> list[str]:
    """The call ids in the session's window, oldest first."""
    return [call.call_id for call in (await guard._guard.session("s").snapshot()).calls]

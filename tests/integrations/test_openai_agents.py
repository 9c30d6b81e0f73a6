"""Agents of the OpenAI Agents SDK, really run, under the guard."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import loopfence
from story import DONE, NOT_RUN, READ, SAME, App, Run, Story, Tools, each

pytest.importorskip("agents", reason="needs the extra: pip install 'loopfence[openai-agents]'")

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailTripwireTriggered,
    Usage,
    function_tool,
    handoff,
    trace,
)
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from loopfence.integrations.openai_agents import guard_agent, tool_guardrails

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from story import Turn


class ScriptedModel(Model):
    """Makes the calls of one turn after the other; its call ids start anew in every run, as models' do."""

    def __init__(self, usage: Usage | None = None) -> None:
        self.turns: list[Any] = []
        self._usage = usage or Usage(requests=1)

    def say(self, turns: Sequence[Turn]) -> None:
        ids = count()
        self.turns = [[tool_call(name, json.dumps(args), f"call_{next(ids)}") for name, args in turn] for turn in turns]
        text = ResponseOutputText(type="output_text", text=DONE, annotations=[])
        self.turns.append(
            [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])]
        )

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        return ModelResponse(output=self.turns.pop(0), usage=self._usage, response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


def tool_call(name: str, arguments: str, call_id: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(type="function_call", name=name, arguments=arguments, call_id=call_id)


@contextmanager
def an_event_loop() -> Iterator[None]:
    """`run_sync` takes the thread's loop, or makes one that it never closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class OpenAIAgent(App):
    def __init__(self, *tools: Any, url: str | None = None, usage: Usage | None = None, **options: Any) -> None:
        self.model = ScriptedModel(usage)
        agent = Agent(name="Agent", model=self.model, tools=[function_tool(tool) for tool in tools])
        self.agent = guard_agent(agent, url, **options)
        self.chats: dict[str | None, SQLiteSession] = {}

    def run(self, turns: Sequence[Turn], *, thread: str | None = None, mode: str = "async") -> Run:
        self.model.say(turns)
        return self.go(thread, mode, len(turns))

    def go(self, thread: str | None, mode: str, turns: int) -> Run:
        chat = self.chats[thread] = self.chats.get(thread if thread else "", None) or SQLiteSession(thread or "chat")
        config = RunConfig(group_id=thread)
        run = Run()
        before = len(asyncio.run(chat.get_items()))
        try:
            if mode == "sync":
                with an_event_loop():
                    run.final = Runner.run_sync(self.agent, "go on", session=chat, run_config=config).final_output
            else:
                run.final = asyncio.run(Runner.run(self.agent, "go on", session=chat, run_config=config)).final_output
        except ToolInputGuardrailTripwireTriggered as stop:
            run.stop = stop.output.output_info.text
        new: list[Any] = asyncio.run(chat.get_items())[before:]
        answers = [item for item in new if item.get("type") == "function_call_output"]
        run.seen = [item["output"] for item in answers]
        run.model_turns = turns + 1 - len(self.model.turns)
        made = {item["call_id"] for item in new if item.get("type") == "function_call"}
        run.orphans = len(made - {item["call_id"] for item in answers})
        return run


class TestOpenAIAgents(Story):
    def app(self, tools: Tools, url: str | None = None, **options: Any) -> OpenAIAgent:
        def read(path: str) -> str:
            return tools.run("read")

        def write(path: str) -> str:
            return tools.run("write")

        return OpenAIAgent(read, write, url=url, **options)

"""Pydantic AI agents, really run, under the guard."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from story import DONE, NOT_RUN, READ, SAME, App, Run, Story, Tools, an_event_loop, each

import loopfence

pytest.importorskip("pydantic_ai", reason="needs the extra: pip install 'loopfence[pydantic-ai]'")

from pydantic import Field
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    capture_run_messages,
)
from pydantic_ai.messages import RetryPromptPart
from pydantic_ai.models.function import FunctionModel

from loopfence import LoopDetectedError
from loopfence.integrations.pydantic_ai import LoopGuardCapability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from story import Turn


class Script:
    """A model that makes the calls of one turn after the other; its call ids start anew in every run."""

    def __init__(self) -> None:
        self.turns: list[ModelResponse] = []

    def say(self, turns: Sequence[Turn]) -> None:
        ids = count()
        made = [[ToolCallPart(name, args, f"call_{next(ids)}") for name, args in turn] for turn in turns]
        self.turns = [*map(ModelResponse, made), ModelResponse([TextPart(DONE)])]

    def answer(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
        return self.turns.pop(0)


class PydanticAgent(App):
    def __init__(self, capability: LoopGuardCapability, *tools: Any, **options: Any) -> None:
        self.script = Script()
        self.agent = Agent(
            FunctionModel(self.script.answer), tools=tools, capabilities=[capability], retries=9, **options
        )
        self.chats: dict[str | None, list[ModelMessage]] = {}

    def run(self, turns: Sequence[Turn], *, thread: str | None = None, mode: str = "async") -> Run:
        self.script.say(turns)
        history = self.chats.get(thread, []) if thread else []
        run = Run()
        with capture_run_messages() as messages:
            try:
                if mode == "sync":
                    with an_event_loop():
                        run.final = self.agent.run_sync("go on", message_history=history).output
                else:
                    run.final = asyncio.run(self.agent.run("go on", message_history=history)).output
            except LoopDetectedError as stop:
                run.stop = str(stop)
        self.chats[thread] = list(messages)
        new = messages[len(history) :]
        parts = [part for message in new for part in message.parts]
        answers = [part for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        run.seen = [str(part.content) for part in answers]
        run.model_turns = len(turns) + 1 - len(self.script.turns)
        made = {part.tool_call_id for part in parts if isinstance(part, ToolCallPart)}
        run.orphans = len(made - {part.tool_call_id for part in answers})
        return run


class TestPydanticAI(Story):
    def app(self, tools: Tools, url: str | None = None, **options: Any) -> PydanticAgent:
        def run(name: str) -> str:
            try:
                return tools.run(name)
            except ValueError as error:
                raise ModelRetry(str(error)) from error

        def read(path: str) -> str:
            return run("read")

        def write(path: str) -> str:
            return run("write")

        return PydanticAgent(LoopGuardCapability(url, **options), read, write)


# -- besides the story


def read_same(path: str) -> str:
    return SAME


def test_the_parallel_siblings_of_a_stopped_call_are_not_cancelled() -> None:
    ended = []

    async def slow(path: str) -> str:
        await asyncio.sleep(0.05)
        ended.append(path)
        return SAME

    app = PydanticAgent(LoopGuardCapability("memory://", threshold=2, stop=3), slow, read_same)
    read = ("read_same", {"path": "a"})
    run = app.run([[read], [read], [("slow", {"path": "b"}), read]])
    assert run.stop is not None
    assert ended == ["b"]
    assert run.orphans == 0


def test_the_value_inside_a_tool_return_is_the_result() -> None:
    numbers = count()

    def read(path: str) -> ToolReturn[str]:
        return ToolReturn(SAME, metadata={"took": next(numbers)})

    run = PydanticAgent(LoopGuardCapability("memory://"), read).run(each(*[READ] * 5))
    assert [text.startswith(NOT_RUN) for text in run.seen] == [False, False, True, True, True]


def test_a_default_that_differs_at_every_call_does_not_hide_the_loop() -> None:
    numbers = count()

    def read(path: str, request: int = Field(default_factory=lambda: next(numbers))) -> str:
        return SAME

    run = PydanticAgent(LoopGuardCapability("memory://"), read).run(each(*[READ] * 3))
    assert run.seen[2].startswith(NOT_RUN)


def test_an_exception_that_ends_the_run_is_reported_as_a_failure() -> None:
    ran = []

    def read(path: str) -> str:
        ran.append(path)
        raise OSError("gone")

    app = PydanticAgent(LoopGuardCapability("memory://", failures=3), read)
    with loopfence.session("job"):
        for path in ("a", "b"):
            with pytest.raises(OSError, match="gone"):
                app.run(each(("read", {"path": path})))
        run = app.run(each(("read", {"path": "c"})))
    assert ran == ["a", "b"]
    assert run.seen[0].startswith(NOT_RUN)


def test_a_call_that_waits_for_approval_is_no_failure() -> None:
    ran = []

    def book(ctx: RunContext, path: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        ran.append(path)
        return SAME

    guard = loopfence.LoopGuard("memory://", failures=2)
    app = PydanticAgent(LoopGuardCapability(guard=guard), book, output_type=[str, DeferredToolRequests])
    with loopfence.session("job"), an_event_loop():
        app.script.say([[("book", {"path": "Oslo"})]])
        asked = app.agent.run_sync("go on")
        assert isinstance(asked.output, DeferredToolRequests)
        [call] = asked.output.approvals
        answer = DeferredToolResults(approvals={call.tool_call_id: True})
        done = app.agent.run_sync(message_history=asked.all_messages(), deferred_tool_results=answer)
    assert (done.output, ran) == (DONE, ["Oslo"])


def test_the_example_shows_a_loop_being_cut() -> None:
    example = Path(__file__).parents[2] / "examples" / "pydantic_ai_agent.py"
    shown = subprocess.run([sys.executable, example], check=True, capture_output=True, text=True, timeout=60).stdout
    assert shown.count("the read_file tool runs") == 2
    assert shown.count("tool -> model: buy milk") == 2
    assert shown.count("tool -> model: This call was not run.") == 2
    assert "ended by the rule 'repeat'" in shown

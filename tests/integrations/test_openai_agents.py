"""Agents of the OpenAI Agents SDK, really run, under the guard."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from story import DONE, NOT_RUN, READ, SAME, App, Run, Story, Tools, an_event_loop, each, failing

import loopfence

pytest.importorskip("agents", reason="needs the extra: pip install 'loopfence[openai-agents]'")

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolCallOutputItem,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailTripwireTriggered,
    Usage,
    function_tool,
    set_tracing_disabled,
    trace,
)
from agents.mcp import MCPServerStdio
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseUsage,
)

from loopfence.integrations.openai_agents import guard_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

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

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[ResponseCompletedEvent]:
        response = Response.model_construct(id="r", output=self.turns.pop(0), usage=STREAM_USAGE)
        yield ResponseCompletedEvent.model_construct(type="response.completed", sequence_number=0, response=response)


STREAM_USAGE = ResponseUsage.model_construct(
    input_tokens=1, output_tokens=1, total_tokens=2, input_tokens_details=None, output_tokens_details=None
)


def tool_call(name: str, arguments: str, call_id: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(type="function_call", name=name, arguments=arguments, call_id=call_id)


class OpenAIAgent(App):
    def __init__(self, *tools: Any, url: str | None = None, usage: Usage | None = None, **options: Any) -> None:
        self.model = ScriptedModel(usage)
        agent = Agent(name="Agent", model=self.model, tools=[function_tool(tool) for tool in tools])
        self.agent = guard_agent(agent, url, **options)
        self.chats: dict[str, SQLiteSession] = {}

    def run(self, turns: Sequence[Turn], *, thread: str | None = None, mode: str = "async") -> Run:
        self.model.say(turns)
        return self.go(thread, mode, len(turns))

    def go(self, thread: str | None, mode: str, turns: int) -> Run:
        chat = SQLiteSession(thread or "chat")
        if thread:
            chat = self.chats.setdefault(thread, chat)
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


# -- besides the story


def read(path: str) -> str:
    return SAME


def refused(run: Run) -> list[bool]:
    return [text.startswith(NOT_RUN) for text in run.seen]


@pytest.fixture
def no_tracing() -> Iterator[None]:
    set_tracing_disabled(disabled=True)
    yield
    set_tracing_disabled(disabled=False)


def test_a_model_that_reports_no_usage_is_guarded_call_by_call() -> None:
    assert refused(OpenAIAgent(read, usage=Usage()).run([[READ, READ], [READ]])) == [False, False, True]


def test_a_streamed_run_is_guarded_turn_by_turn() -> None:
    async def stream() -> list[Any]:
        app = OpenAIAgent(read)
        app.model.say([[READ, READ], [READ], [READ]])
        result = Runner.run_streamed(app.agent, "go on")
        items = [event.item async for event in result.stream_events() if event.type == "run_item_stream_event"]
        return [item.output for item in items if isinstance(item, ToolCallOutputItem)]

    assert [text.startswith(NOT_RUN) for text in asyncio.run(stream())] == [False, False, False, True]


def test_runs_inside_one_trace_are_still_runs_of_their_own() -> None:
    app = OpenAIAgent(read)
    with trace("chat"):
        assert [app.run(each(READ), thread="chat").seen for _ in range(3)] == [[SAME]] * 3


def test_arguments_that_are_no_json_are_compared_as_they_stand() -> None:
    app = OpenAIAgent(read)
    app.model.say([])
    app.model.turns[:0] = [[tool_call("read", '{"path": ', f"call_{n}")] for n in range(3)]
    assert refused(app.go(None, "async", 3)) == [False, False, True]


@pytest.mark.usefixtures("no_tracing")
def test_a_failure_is_told_from_a_result_without_tracing() -> None:
    app = TestOpenAIAgents().app(Tools(failing), "memory://", failures=3)
    calls = [("read", {"path": f"{number}.txt"}) for number in range(3)]
    assert refused(app.run(each(*calls))) == [False, False, True]


def test_a_failure_with_a_text_of_its_own_is_told_by_its_span() -> None:
    @function_tool(failure_error_function=lambda context, error: f"Sorry: {error}")
    def broken(path: str) -> str:
        raise OSError(path)

    app = OpenAIAgent(failures=3)
    app.agent = guard_agent(app.agent.clone(tools=[broken]), failures=3)
    calls = [("broken", {"path": f"{number}.txt"}) for number in range(3)]
    run = app.run(each(*calls))
    assert run.seen[:2] == ["Sorry: 0.txt", "Sorry: 1.txt"]
    assert refused(run) == [False, False, True]


def test_agents_that_hand_over_to_one_another_share_the_run() -> None:
    guard = loopfence.LoopGuard("memory://")
    app = OpenAIAgent(read, guard=guard)
    second = guard_agent(Agent(name="Second", model=app.model, tools=[function_tool(read)]), guard=guard)
    app.agent = app.agent.clone(handoffs=[second])
    run = app.run([[READ], [READ], [("transfer_to_second", {})], [READ]])
    assert run.seen[:2] == [SAME, SAME]
    assert run.seen[3].startswith(NOT_RUN)
    assert len(list(guard.sessions())) == 1


def test_the_tools_of_an_mcp_server_are_guarded(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(MCP_SERVER)

    async def main() -> list[Any]:
        async with MCPServerStdio({"command": sys.executable, "args": [str(script)]}) as server:
            model = ScriptedModel()
            model.say(each(*[("now", {})] * 4))
            agent = guard_agent(guard_agent(Agent(name="Agent", model=model, mcp_servers=[server])))
            assert len(server.tool_input_guardrails or []) == 1
            result = await Runner.run(agent, "go on")
            return [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]

    seen = [str(output) for output in asyncio.run(main())]
    assert ["noon" in text for text in seen] == [True, True, False, False]
    assert seen[2].startswith(NOT_RUN)


MCP_SERVER = """
try:
    from mcp.server import MCPServer
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("clock")

@server.tool()
def now() -> str:
    return "noon"

server.run()
"""


def test_the_given_agent_keeps_its_tools_and_a_tool_its_own_guardrails() -> None:
    async def look(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("not today")

    tool = function_tool(read, tool_input_guardrails=[ToolInputGuardrail(look, "mine")])
    app = OpenAIAgent()
    agent = app.agent.clone(tools=[tool])
    app.agent = guard_agent(agent)
    assert agent.tools == [tool]
    assert [guardrail.name for guardrail in tool.tool_input_guardrails or []] == ["mine"]
    run = app.run(each(READ, READ, READ))
    assert run.seen[:2] == ["not today", "not today"]
    assert run.seen[2].startswith(NOT_RUN)


def test_the_session_may_come_from_the_applications_own_context() -> None:
    guard = loopfence.LoopGuard("memory://")
    app = OpenAIAgent(read, guard=guard, session=lambda context: context.context["order"])
    app.model.say(each(READ))
    asyncio.run(Runner.run(app.agent, "go on", context={"order": "order-17"}))
    assert list(guard.sessions()) == ["order-17"]


def test_the_example_shows_a_loop_being_cut() -> None:
    example = Path(__file__).parents[2] / "examples" / "openai_agents_agent.py"
    shown = subprocess.run([sys.executable, example], check=True, capture_output=True, text=True, timeout=60).stdout
    assert shown.count("the look_up_order tool runs") == 2
    assert shown.count("tool -> model: pending") == 2
    assert shown.count("tool -> model: This call was not run.") == 2
    assert "ended by the rule 'repeat'" in shown

"""LangChain's create_agent and LangGraph's ToolNode, really run, under the guard."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from story import DONE, NOT_RUN, READ, SAME, App, Run, Story, Tools, each

import loopfence

pytest.importorskip("langchain", reason="needs the extra: pip install 'loopfence[langchain]'")

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from loopfence.integrations.langchain import LoopGuardMiddleware, stopped, tool_wrappers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from story import Turn


class ScriptedModel(GenericFakeChatModel):
    """Says what it was given, whatever it is asked."""

    def bind_tools(self, tools: Any, **options: Any) -> ScriptedModel:
        return self


def scripted(turns: Sequence[Turn], *, final: str = DONE) -> list[AIMessage]:
    """The messages of a model that makes these calls; its call ids start anew in every run, as models' do."""
    ids = count()
    calls = [[{"name": name, "args": args, "id": f"call_{next(ids)}"} for name, args in turn] for turn in turns]
    return [*(AIMessage("", tool_calls=made) for made in calls), AIMessage(final)]


def tools_of(tools: Tools) -> list[StructuredTool]:
    def run(name: str) -> str:
        try:
            return tools.run(name)
        except ValueError as error:
            raise ToolException(str(error)) from error

    def read(path: str) -> str:
        """Read a file."""
        return run("read")

    def write(path: str) -> str:
        """Write a file."""
        return run("write")

    return [StructuredTool.from_function(tool, handle_tool_error=True) for tool in (read, write)]


class Agent(App):
    """`create_agent` with a checkpointer, so that a thread is one chat."""

    def __init__(self, tools: list[StructuredTool], *middleware: Any) -> None:
        self._messages: list[AIMessage] = []
        self._graph = self._build(tools, middleware)

    def _build(self, tools: list[StructuredTool], middleware: Sequence[Any]) -> Any:
        return create_agent(self._model(), tools, middleware=middleware, checkpointer=InMemorySaver())

    def _model(self) -> ScriptedModel:
        def said() -> Any:
            while True:
                yield self._messages.pop(0)

        return ScriptedModel(messages=said())

    def run(self, turns: Sequence[Turn], *, thread: str | None = None, mode: str = "async") -> Run:
        self._messages[:] = scripted(turns)
        return self.go({"messages": [("user", "go on")]}, thread or f"thread-{id(turns)}", mode)

    def go(self, given: Any, thread: str, mode: str) -> Run:
        config: Any = {"configurable": {"thread_id": thread}}
        script, before = len(self._messages), len(self._history(config))
        if mode == "sync":
            result = self._graph.invoke(given, config)
        else:
            result = asyncio.run(self._graph.ainvoke(given, config))
        new = self._history(config)[before:]
        answered = {message.tool_call_id for message in new if isinstance(message, ToolMessage)}
        made = {call["id"] for message in new if isinstance(message, AIMessage) for call in message.tool_calls}
        reason = stopped(result)
        return Run(
            seen=[message.text for message in new if isinstance(message, ToolMessage)],
            final=new[-1].text,
            stop=reason and reason["message"],
            model_turns=script - len(self._messages),
            orphans=len(made - answered),
        )

    def _history(self, config: Any) -> list[AnyMessage]:
        return self._graph.get_state(config).values.get("messages", [])


class PlainGraph(Agent):
    """A graph of one's own with a ToolNode."""

    def _build(self, tools: list[StructuredTool], wrappers: Any) -> Any:
        model = self._model()
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode(tools, **wrappers[0]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
        graph.add_conditional_edges("tools", lambda state: END if stopped(state) else "model")
        return graph.compile(checkpointer=InMemorySaver())


class TestCreateAgent(Story):
    def app(self, tools: Tools, url: str | None = None, **options: Any) -> Agent:
        return Agent(tools_of(tools), LoopGuardMiddleware(url, **options))


class TestToolNode(Story):
    def app(self, tools: Tools, url: str | None = None, **options: Any) -> PlainGraph:
        return PlainGraph(tools_of(tools), tool_wrappers(url, **options))


def agent_of(tool: Any, *middleware: Any) -> Agent:
    return Agent([StructuredTool.from_function(tool)], *middleware)


def read_same(path: str) -> str:
    """Read a file."""
    return SAME


def test_an_interrupted_call_is_no_failure_and_counts_once_when_it_is_resumed() -> None:
    guard, ran = loopfence.LoopGuard("memory://", failures=2), []

    def book(path: str) -> str:
        """Book a flight."""
        answer = interrupt("really?")
        ran.append(path)
        return str(answer)

    agent = agent_of(book, LoopGuardMiddleware(guard=guard))
    agent.run([[("book", {"path": "Oslo"})]], thread="chat")
    assert ran == []
    agent._messages[:] = [AIMessage(DONE)]
    assert agent.go(Command(resume="yes"), "chat", "sync").final == DONE
    assert ran == ["Oslo"]
    [session] = guard.sessions()
    assert session.startswith("chat/")
    [call] = guard.session(session).snapshot().calls
    assert call.tool == "book"


def test_an_exception_that_ends_the_run_is_reported_as_a_failure() -> None:
    ran = []

    def read(path: str) -> str:
        """Read a file."""
        ran.append(path)
        raise OSError("gone")

    agent = agent_of(read, LoopGuardMiddleware("memory://", failures=3))
    with loopfence.session("job"):
        for path in ("a", "b"):
            with pytest.raises(OSError, match="gone"):
                agent.run(each(("read", {"path": path})), mode="sync")
        run = agent.run(each(("read", {"path": "c"})), mode="sync")
    assert ran == ["a", "b"]
    assert run.seen[0].startswith(NOT_RUN)


def test_a_tool_node_that_is_resumed_runs_its_calls_again_and_counts_them_once() -> None:
    guard, ran = loopfence.LoopGuard("memory://"), []

    def note(path: str) -> str:
        """Note something."""
        ran.append(path)
        return SAME

    def book(path: str) -> str:
        """Book a flight."""
        return str(interrupt("really?"))

    tools = [StructuredTool.from_function(tool) for tool in (note, book)]
    graph = PlainGraph(tools, tool_wrappers(guard=guard))
    graph.run([[("note", {"path": "Oslo"}), ("book", {"path": "Oslo"})]], thread="chat")
    graph._messages[:] = [AIMessage(DONE)]
    assert graph.go(Command(resume="yes"), "chat", "sync").final == DONE
    assert ran == ["Oslo", "Oslo"]
    [session] = guard.sessions()
    assert sorted(call.tool for call in guard.session(session).snapshot().calls) == ["book", "note"]


class Nudge(AgentMiddleware[Any, Any, Any]):
    """Says something in the user's name before every step, as middleware that steers a model does."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [HumanMessage("Go on.")]}


def test_words_put_into_the_users_mouth_in_mid_run_do_not_hide_the_loop() -> None:
    run = agent_of(read_same, LoopGuardMiddleware("memory://"), Nudge()).run(each(*[("read_same", {"path": "a"})] * 3))
    assert [text.startswith(NOT_RUN) for text in run.seen] == [False, False, True]


def test_the_attempts_of_a_retry_middleware_are_one_call() -> None:
    ran = []

    def read(path: str) -> str:
        """Read a file."""
        ran.append(path)
        if len(ran) % 3:
            raise OSError("try again")
        return SAME

    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    run = agent_of(read, LoopGuardMiddleware("memory://"), retry).run(each(READ, READ, READ))
    assert len(ran) == 6
    assert [text.startswith(NOT_RUN) for text in run.seen] == [False, False, True]


@pytest.mark.parametrize(("texts", "ran"), [("12345", 5), ("11111", 2)])
def test_the_message_inside_a_command_is_the_result(texts: str, ran: int) -> None:
    left = list(texts)

    def read(path: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Read a file."""
        return Command(update={"messages": [ToolMessage(left.pop(0), tool_call_id=tool_call_id)]})

    agent_of(read, LoopGuardMiddleware("memory://")).run(each(*[READ] * 5))
    assert len(left) == 5 - ran


def test_a_tool_the_model_made_up_is_cut_as_well() -> None:
    run = agent_of(read_same, LoopGuardMiddleware("memory://")).run(each(*[("fetch", {"url": "x"})] * 3))
    assert "fetch is not a valid tool" in run.seen[0]
    assert run.seen[2].startswith(NOT_RUN)


def test_the_example_shows_a_loop_being_cut() -> None:
    example = Path(__file__).parents[2] / "examples" / "langchain_agent.py"
    shown = subprocess.run([sys.executable, example], check=True, capture_output=True, text=True, timeout=60).stdout
    assert shown.count("the search tool runs") == 2
    assert shown.count("tool -> model: No results.") == 2
    assert shown.count("tool -> model: This call was not run.") == 3
    assert "ended by the rule 'repeat'" in shown

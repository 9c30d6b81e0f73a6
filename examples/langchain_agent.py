"""A LangChain agent that keeps searching for the same thing, and the guard that cuts the loop.

    pip install 'loopfence[langchain]'
    python examples/langchain_agent.py [redis://localhost:6379/0]

The model is a script, so nothing else is needed; with a Redis URL every worker of a fleet shares the view.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from loopfence.integrations.langchain import LoopGuardMiddleware, stopped


class StubbornModel(GenericFakeChatModel):
    """Asks for the same search over and over; a real model goes here: `init_chat_model("…")`."""

    def bind_tools(self, tools: Any, **options: Any) -> StubbornModel:
        return self


def search(query: str) -> str:
    """Search the web."""
    print("   the search tool runs")
    return "No results."


def main(url: str) -> None:
    asks = (
        AIMessage("", tool_calls=[{"name": "search", "args": {"query": "flights to Oslo"}, "id": f"call_{n}"}])
        for n in count(1)
    )
    agent = create_agent(
        StubbornModel(messages=asks),
        tools=[search],
        middleware=[LoopGuardMiddleware(url, threshold=3, stop=5)],
    )
    state: dict[str, Any] = {}
    for state in agent.stream({"messages": [("user", "Find me a flight to Oslo.")]}, stream_mode="values"):
        message = state["messages"][-1]
        if isinstance(message, ToolMessage):
            print(f"   tool -> model: {message.text}")
        elif isinstance(message, AIMessage) and message.tool_calls:
            print(f"model -> tool: {message.tool_calls[0]['name']}({message.tool_calls[0]['args']})")

    if reason := stopped(state):
        print(f"\nThe run was ended by the rule {reason['rule']!r} of session {reason['session']}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://")

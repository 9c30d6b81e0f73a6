"""A Pydantic AI agent that keeps reading the same file, and the guard that cuts the loop.

    pip install 'loopfence[pydantic-ai]'
    python examples/pydantic_ai_agent.py [redis://localhost:6379/0]

The model is a script, so nothing else is needed; with a Redis URL every worker of a fleet shares the view.
"""

from __future__ import annotations

import sys

from pydantic_ai import Agent, ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from loopfence import LoopDetectedError
from loopfence.integrations.pydantic_ai import LoopGuardCapability


def stubborn(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for the same file over and over; a real model goes in its place: `Agent("openai:…")`."""
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            print(f"   tool -> model: {part.content}")
    call = ToolCallPart("read_file", {"path": "todo.txt"})
    print(f"model -> tool: {call.tool_name}({call.args})")
    return ModelResponse([call])


def main(url: str) -> None:
    agent = Agent(FunctionModel(stubborn), capabilities=[LoopGuardCapability(url, threshold=3, stop=5)])

    @agent.tool_plain
    def read_file(path: str) -> str:
        """Read a file."""
        print("   the read_file tool runs")
        return "buy milk"

    try:
        agent.run_sync("What is left to do?")
    except LoopDetectedError as stop:
        print(f"\nThe run was ended by the rule {stop.verdict.rule!r} of session {stop.session}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://")

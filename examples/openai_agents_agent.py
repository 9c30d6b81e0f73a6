"""An agent of the OpenAI Agents SDK that keeps asking for the same order, and the guard that cuts the loop.

    pip install 'loopfence[openai-agents]'
    python examples/openai_agents_agent.py [redis://localhost:6379/0]

The model is a script, so nothing else is needed; with a Redis URL every worker of a fleet shares the view.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    ToolInputGuardrailTripwireTriggered,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import ResponseFunctionToolCall

from loopfence.integrations.openai_agents import guard_agent


class StubbornModel(Model):
    """Asks for the same order over and over; a real model goes in its place: `Agent(model="…")`."""

    def __init__(self) -> None:
        self._numbers = count(1)

    async def get_response(self, *args: Any, **request: Any) -> ModelResponse:
        said = request["input"][-1]
        if said.get("type") == "function_call_output":
            print(f"   tool -> model: {said['output']}")
        call = ResponseFunctionToolCall(
            type="function_call",
            name="look_up_order",
            arguments='{"number": 1042}',
            call_id=f"call_{next(self._numbers)}",
        )
        print(f"model -> tool: {call.name}({call.arguments})")
        return ModelResponse(output=[call], usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


@function_tool
def look_up_order(number: int) -> str:
    """Look up an order."""
    print("   the look_up_order tool runs")
    return "pending"


def main(url: str) -> None:
    set_tracing_disabled(disabled=True)
    agent = guard_agent(Agent(name="Support", model=StubbornModel(), tools=[look_up_order]), url, threshold=3, stop=5)
    try:
        Runner.run_sync(agent, "Has order 1042 arrived?")
    except ToolInputGuardrailTripwireTriggered as stop:
        verdict = stop.output.output_info
        print(f"\nThe run was ended by the rule {verdict.rule!r} of session {verdict.session}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://")

"""An agent of the Claude Agent SDK that keeps searching for the same thing, and the guard that cuts the loop.

    pip install 'loopfence[claude-agent]'
    python examples/claude_agent.py [redis://localhost:6379/0]

It runs the real Claude Code offline: its model is a script on loopback. Leave `env=` out to talk to a real model.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from itertools import repeat
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)
from scripted_claude import ScriptedClaude

from loopfence.integrations.claude_agent import LoopGuardHooks


@tool("search", "Search the web.", {"query": str})
async def search(args: dict[str, Any]) -> dict[str, Any]:
    print(f"   (the search tool runs: {args['query']!r})")
    return {"content": [{"type": "text", "text": "No results."}]}


async def main(url: str) -> None:
    guard = LoopGuardHooks(url, threshold=3, stop=5)
    stubborn = repeat([("mcp__web__search", {"query": "flights to Oslo"})])
    with ScriptedClaude(stubborn) as model, tempfile.TemporaryDirectory() as home:
        options = ClaudeAgentOptions(
            hooks=guard,
            mcp_servers={"web": create_sdk_mcp_server("web", tools=[search])},
            allowed_tools=["mcp__web__search"],
            setting_sources=[],
            env=model.env(Path(home)),
            cwd=home,
        )
        async for message in query(prompt="Find me a flight to Oslo.", options=options):
            if isinstance(message, UserMessage) and isinstance(message.content, list):
                for block in message.content:
                    if isinstance(block, ToolResultBlock):
                        print(f"tool -> model: {block.content}")
            if isinstance(message, ResultMessage):
                reason = guard.stopped(message.session_id)
                assert reason is not None
                print(f"\nThe run was ended by the rule {reason['rule']!r} of session {reason['session']}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))

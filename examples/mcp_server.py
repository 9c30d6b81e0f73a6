"""A server of the `mcp` SDK whose client keeps searching for the same thing, and the guard that cuts the loop.

    pip install 'loopfence[mcp]'
    python examples/mcp_server.py [redis://localhost:6379/0]

The client starts the server as a process of its own (`mcp_server.py serve`) and talks to it over stdio. It names its
agent's run with each call, for the protocol tells a server of no run.
"""

from __future__ import annotations

import asyncio
import sys

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.mcpserver import MCPServer

from loopfence.integrations.mcp import LoopGuardExtension


def make_server(url: str) -> MCPServer:
    server = MCPServer("web", extensions=[LoopGuardExtension(url, threshold=3)])

    @server.tool()
    def search(query: str) -> str:
        """Search the web."""
        return "No results."

    return server


async def main(url: str) -> None:
    command = StdioServerParameters(command=sys.executable, args=[__file__, "serve", url])
    async with Client(stdio_client(command)) as client:
        for _ in range(4):
            result = await client.call_tool("search", {"query": "flights to Oslo"}, meta={"loopfence/session": "run-1"})
            print(f"tool -> model: {result.content[0].text}")


if __name__ == "__main__":
    chosen = sys.argv[-1] if "://" in sys.argv[-1] else "memory://"
    if "serve" in sys.argv:
        make_server(chosen).run()
    else:
        asyncio.run(main(chosen))

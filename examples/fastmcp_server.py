"""A FastMCP server whose client keeps searching for the same thing, and the guard that cuts the loop.

    pip install 'loopfence[fastmcp]'
    python examples/fastmcp_server.py [redis://localhost:6379/0]

Server and client run in one process here; `server.run(transport="http")` serves it to the world. The client names
its agent's run with each call, for the protocol tells a server of no run.
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client, FastMCP

from loopfence.integrations.fastmcp import LoopGuardMiddleware


def make_server(url: str) -> FastMCP:
    server = FastMCP("web", middleware=[LoopGuardMiddleware(url, threshold=3)])

    @server.tool
    def search(query: str) -> str:
        """Search the web."""
        print(f"   (the search tool runs: {query!r})")
        return "No results."

    return server


async def main(url: str) -> None:
    async with Client(make_server(url)) as client:
        for _ in range(4):
            result = await client.call_tool(
                "search", {"query": "flights to Oslo"}, meta={"loopfence/session": "run-1"}, raise_on_error=False
            )
            print(f"tool -> model: {result.content[0].text}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))

"""A stand-in for the Anthropic API on loopback, so that Claude Code runs offline with a model that is a script.

with ScriptedClaude([[("Bash", {"command": "ls"})], [("Bash", {"command": "ls"})]]) as model:
    ... run Claude Code, or the Claude Agent SDK, with the environment `model.env(home)` ...
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

DONE = "I am done."


class ScriptedClaude:
    """Answers each request with the tool calls of the next turn of the script: `DONE` for none, and after the last."""

    def __init__(self, turns: Iterable[list[tuple[str, dict[str, Any]]]]) -> None:
        self.turns = iter(turns)
        self.asked = 0
        """How many turns the model was asked for."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": self}))

    def env(self, home: Path) -> dict[str, str]:
        """The environment for a Claude Code that asks this model and keeps its files in the folder `home`."""
        return {
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self._server.server_port}",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def blocks(self) -> list[dict[str, Any]]:
        """The content of the next answer."""
        self.asked += 1
        calls = next(self.turns, [])
        if not calls:
            return [{"type": "text", "text": DONE}]
        return [{"type": "tool_use", "id": f"toolu_{uuid4().hex}", "name": n, "input": args} for n, args in calls]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    model: ScriptedClaude
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        # Without tools it is a side question, such as a title for the chat.
        blocks = self.model.blocks() if request.get("tools") else [{"type": "text", "text": "A title"}]
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(blocks)).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _events(blocks: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant", "model": "script", "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty: dict[str, Any] = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    yield {"type": "message_stop"}

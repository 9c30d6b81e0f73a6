"""Real HTTP servers on loopback for the tests: any ASGI app, and an LLM provider that notes all that reaches it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    """Serve an ASGI app on a free port of 127.0.0.1, in a thread; yields its URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        thread.join(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the server did not stop"


class Provider:
    """An LLM provider: answers in the dialect of the path, and notes what reached it.

    `script` are the messages that a chat completion answers with, one after the other; the last is repeated.
    A streamed answer sends one piece, then waits until `go_on` is set before it sends the rest.
    """

    def __init__(self, script: list[dict[str, Any]] | None = None) -> None:
        self.script = script or [{"role": "assistant", "content": "Hello."}]
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.pieces: list[int] = []
        self.go_on = threading.Event()
        self.hung_up = threading.Event()

    @property
    def reached(self) -> int:
        """How many questions came through; proxies also look what models there are."""
        return len(self.requests)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._answered(scope, receive, send)

    async def _answered(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.hung_up.set()
                return
            piece = message.get("body", b"")
            self.pieces.append(len(piece))
            body, more = body + piece, message.get("more_body", False)
        if scope["method"] == "POST":
            self.requests.append((scope["path"], headers, body))
        if b'"stream": true' in body or b'"stream":true' in body:
            await self._stream(receive, send)
        else:
            await _start(send, b"application/json")
            await send({"type": "http.response.body", "body": json.dumps(self._answer(scope["path"], body)).encode()})

    async def _lifespan(self, receive: Any, send: Any) -> None:
        for _ in range(2):
            await send({"type": (await receive())["type"] + ".complete"})

    async def _stream(self, receive: Any, send: Any) -> None:
        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.hung_up.set()

        watching = asyncio.ensure_future(watch())
        await _start(send, b"text/event-stream")
        await send({"type": "http.response.body", "body": _event("Hel"), "more_body": True})
        while not self.go_on.is_set() and not self.hung_up.is_set():
            await asyncio.sleep(0.005)
        watching.cancel()
        await send({"type": "http.response.body", "body": _event("lo.") + b"data: [DONE]\n\n"})

    def _answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path.endswith("/messages"):
            return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                    "stop_sequence": None, "content": [{"type": "text", "text": "Hello."}],
                    "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
        if path.endswith("/responses"):
            text = {"type": "output_text", "text": "Hello.", "annotations": []}
            said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
            return {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [said],
                    "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
        if path.endswith("/chat/completions"):
            said = self.script[min(self.reached, len(self.script)) - 1]
            reason = "tool_calls" if said.get("tool_calls") else "stop"
            return {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                    "choices": [{"index": 0, "finish_reason": reason, "message": said}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}  # fmt: skip
        return {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}


async def _start(send: Any, kind: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})


def _event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()

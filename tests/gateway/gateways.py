"""A guarded provider on a real server, with the clients that agents call it by."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any, Self

import anthropic
import httpx
import openai

if TYPE_CHECKING:
    from serving import Provider

    from loopfence.integrations.asgi import LoopGuardMiddleware

CHAT = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-session-id: s\r\ncontent-length: %d\r\n\r\n"


class Gateway:
    """A provider behind the middleware, on a real server."""

    def __init__(self, url: str, provider: Provider, middleware: LoopGuardMiddleware) -> None:
        self.url, self.provider, self.middleware = url, provider, middleware
        self._open = contextlib.ExitStack()
        self.client = self._open.enter_context(httpx.Client(base_url=url, headers={"x-session-id": "run-1"}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def seen(self) -> dict[str, int]:
        return dict(self.middleware.seen)

    def openai(self, session: str | None = "run-1", key: str = "sk-1", **options: Any) -> openai.OpenAI:
        headers = {"x-session-id": session} if session else {}
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, default_headers=headers, **options)
        return self._open.enter_context(client)

    def anthropic(self) -> anthropic.Anthropic:
        client = anthropic.Anthropic(base_url=self.url, api_key="k", default_headers={"x-session-id": "run-1"})
        return self._open.enter_context(client)

    def connect(self) -> socket.socket:
        """A bare connection, to send what no client library would."""
        return socket.create_connection((self.client.base_url.host, self.client.base_url.port or 0))

    def post(self, path: str = "/v1/chat/completions", body: Any = CHAT, **options: Any) -> httpx.Response:
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        return self.client.post(path, content=content, **options)

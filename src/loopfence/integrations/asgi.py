"""ASGI middleware for LLM proxies and apps: refuses requests that go in circles before anything goes upstream."""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from loopfence.errors import ConfigError
from loopfence.integrations._dialects import error_body, status
from loopfence.integrations._requests import Refusal, RequestGuard, session_of
from loopfence.settings import resolve
from loopfence.signature import digest

if TYPE_CHECKING:
    from loopfence.classic import AsyncLoopBreaker
    from loopfence.integrations.transcript import TranscriptGuard

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LLM_PATHS: Final = (
    "*/chat/completions",
    "*/completions",
    "*/responses",
    "*/v1/messages",
    "*:generateContent",
    "*:streamGenerateContent",
    "*/api/chat",
    "*/api/generate",
)
MAX_BODY: Final = 8 * 1024 * 1024

_CREDENTIALS: Final = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")

log = logging.getLogger("loopfence.integrations")


class LoopGuardMiddleware:
    """Puts a loop guard in front of an LLM proxy, or of any app that speaks an LLM API.

    url, breaker, transcript -- what judges: a breaker and a TranscriptGuard made from the URL, or only those given.
    session_header -- names the caller's session; a request without it is not guarded.
    tenant -- a callable of the ASGI scope that says who calls, so that nobody can name another's session; None leaves
        the request unguarded. By default that is a digest of the caller's credentials, keyed with `secret`.
    secret -- one for all processes that share sessions; it also keys the digests of what is stored of a request.
        Required unless `tenant` is given, or all is in memory.
    paths -- globs of the paths that are guarded (POST only).
    max_body -- bytes; a larger body passes unjudged. A compressed one is judged by its bytes.

    A refused request gets HTTP 400 in the error shape of its API; 503 where Redis is out and `on_outage` is "block".
    `seen` counts the requests to guarded paths: passed, refused, no_session, too_large, hung_up.
    Connections are closed when the server shuts the app down.
    """

    def __init__(
        self,
        app: App,
        url: str | None = None,
        *,
        breaker: AsyncLoopBreaker | None = None,
        transcript: TranscriptGuard | None = None,
        session_header: str = "x-session-id",
        tenant: Callable[[Scope], str | None] | None = None,
        secret: str | bytes | None = None,
        paths: Sequence[str] = LLM_PATHS,
        max_body: int = MAX_BODY,
    ) -> None:
        self._app = app
        self._header = session_header.lower().encode("latin-1")
        self._tenant = tenant
        if secret is None and tenant is None:
            if breaker or transcript or not resolve(url, policy=None, given={}).in_memory:
                raise ConfigError("secret must be given where processes share sessions (or tenant=)")
            secret = secrets.token_bytes(32)
        self._secret = secret.encode() if isinstance(secret, str) else secret
        self._guard = RequestGuard(url, breaker=breaker, transcript=transcript, secret=self._secret)
        self._is_guarded = re.compile("|".join(map(translate, paths))).match
        self._max_body = max_body
        self.seen: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                await self._guard.close()
        elif scope["type"] == "http" and scope["method"] == "POST" and self._is_guarded(scope["path"]):
            await self._guarded(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(reversed(list(scope["headers"])))
        named = headers.get(self._header, b"").decode("latin-1")
        session = self._session(scope, headers, named) if named else None
        if session is None:
            self.seen["no_session"] += 1
            return await self._app(scope, receive, send)
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > self._max_body:
            self.seen["too_large"] += 1
            return await self._app(scope, receive, send)
        received, body = await self._read(receive)
        if body is not None:
            refusal = await self._guard.judge_body(session, scope["path"], body)
            if refusal is not None:
                self.seen["refused"] += 1
                log.warning("refused a request of session %r to %r: %s", named, scope["path"], refusal.reason)
                return await _refuse(send, refusal, named, scope["path"])
            self.seen["passed"] += 1

        async def replay() -> Message:
            return received.popleft() if received else await receive()

        return await self._app(scope, replay, send)

    def _session(self, scope: Scope, headers: dict[bytes, bytes], named: str) -> str | None:
        if self._tenant is None:
            return session_of(self._digest_of_credentials(scope, headers), named)
        try:
            tenant = self._tenant(scope)
        except Exception:
            log.exception("not guarded: tenant= failed")
            return None
        return None if tenant is None else session_of(tenant, named)

    def _digest_of_credentials(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        told = [name + b":" + headers[name] for name in _CREDENTIALS if name in headers]
        told += [b"key:" + key for key in parse_qs(scope.get("query_string", b"")).get(b"key", [])]
        return digest(b"\n".join(told).decode("latin-1"), self._secret)

    async def _read(self, receive: Receive) -> tuple[deque[Message], bytes | None]:
        """What was received, and the whole body; None where the caller hung up or the body is too large."""
        received: deque[Message] = deque()
        size, more = 0, True
        while more:
            message = await receive()
            received.append(message)
            size += len(message.get("body", b""))
            if message["type"] != "http.request" or size > self._max_body:
                self.seen["too_large" if size > self._max_body else "hung_up"] += 1
                return received, None
            more = message.get("more_body", False)
        return received, b"".join(message.get("body", b"") for message in received)


async def _refuse(send: Send, refusal: Refusal, session: str, path: str) -> None:
    body = json.dumps(error_body(refusal, session, path)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status(refusal), "headers": headers})
    await send({"type": "http.response.body", "body": body})

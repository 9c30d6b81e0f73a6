"""LiteLLM: refuses requests that go in circles, in the LiteLLM proxy and in `litellm.acompletion`."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from loopfence.context import current_session
from loopfence.integrations._adapter import missing
from loopfence.integrations._requests import Refusal, RequestGuard, session_of
from loopfence.signature import digest

try:
    from litellm.exceptions import BadRequestError, ModifyResponseException, ServiceUnavailableError
    from litellm.integrations.custom_logger import CustomLogger
except ImportError as error:
    raise missing("litellm", error) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loopfence.classic import AsyncLoopBreaker
    from loopfence.integrations.transcript import TranscriptGuard

log = logging.getLogger("loopfence.integrations")

GUARDED: Final = frozenset({
    "completion", "acompletion", "text_completion", "atext_completion", "responses", "aresponses",
    "anthropic_messages", "generate_content", "agenerate_content", "generate_content_stream",
    "agenerate_content_stream",
})  # fmt: skip
"""LiteLLM's call types that ask a model; embeddings, images and the like are let through."""

STREAMED: Final = frozenset({"completion", "acompletion", "text_completion", "atext_completion"})
"""Those whose made-up answers LiteLLM can stream; for the others it sends events that no client understands."""


class LoopGuardHook(CustomLogger):
    """Put it into `litellm.callbacks`, or name it under `litellm_settings: callbacks` of the proxy's config.

    url, breaker, transcript -- what judges, as for the ASGI middleware.
    answer -- what a refused caller gets: "error" (HTTP 400 from the proxy, `litellm.BadRequestError` from acompletion)
        or "message" (an answer by the assistant that says why). It is streamed where a chat completion was to be
        streamed; a stream of another API gets the error, since LiteLLM cannot stream a made-up answer there.
    session -- a callable of the request's data; by default LiteLLM's session (`litellm_session_id`,
        `metadata.session_id`, or a session header of the proxy), then `with loopfence.session(id)`. Without
        a session a request is not guarded. In the proxy sessions are kept apart by the caller's key.
    secret -- keys the digests of keys and requests, so that whoever can read Redis cannot confirm a guess at them; one
        for all processes that share sessions.

    `litellm.completion`, the synchronous one, runs no hook that could stop it. What LiteLLM's router repeats by itself
    counts like any other request.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        breaker: AsyncLoopBreaker | None = None,
        transcript: TranscriptGuard | None = None,
        answer: Literal["error", "message"] = "error",
        session: Callable[[Mapping[str, Any]], str | None] | None = None,
        secret: str | bytes | None = None,
    ) -> None:
        super().__init__()
        self._secret = secret.encode() if isinstance(secret, str) else secret
        self._guard = RequestGuard(url, breaker=breaker, transcript=transcript, secret=self._secret)
        self._answers = answer == "message"
        self._session = session or _session_of

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Judge a request to the proxy, before a deployment is chosen."""
        session = self._named(data)
        if session and call_type in GUARDED:
            key = str(getattr(user_api_key_dict, "api_key", None) or "")
            tenant = digest(sha256(key.encode()).hexdigest(), self._secret)
            refusal = await self._guard.judge_request(session_of(tenant, session), call_type, data)
            if refusal is not None:
                if self._can_answer(call_type, data):
                    raise ModifyResponseException(_said(refusal), str(data.get("model")), data, "loopfence")
                raise _error(refusal, data)
        return None

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Judge a request of this process; those to the proxy have been judged."""
        name = str(getattr(call_type, "value", call_type))
        session = self._named(kwargs) or current_session()
        if not session or name not in GUARDED or "proxy_server_request" in kwargs:
            return None
        refusal = await self._guard.judge_request(session, name, kwargs)
        if refusal is None:
            return None
        if self._can_answer(name, kwargs):
            return {**kwargs, "mock_response": _said(refusal)}
        raise _error(refusal, kwargs)

    def _can_answer(self, call_type: str, data: Mapping[str, Any]) -> bool:
        return self._answers and (call_type in STREAMED or not data.get("stream"))

    def _named(self, data: Mapping[str, Any]) -> str | None:
        try:
            return self._session(data)
        except Exception:
            log.exception("not guarded: session= failed")
            return None

    async def close(self) -> None:
        """Close the guard's connections; may be called twice."""
        await self._guard.close()


def _session_of(data: Mapping[str, Any]) -> str | None:
    """The session that the caller named; not one that the proxy made up for this request alone."""
    told = [data[name] for name in ("metadata", "litellm_metadata") if isinstance(data.get(name), dict)]
    if any(metadata.get("litellm_session_id_generated") for metadata in told):
        return None
    named = [data.get("litellm_session_id"), *(metadata.get("session_id") for metadata in told)]
    return next((str(session) for session in named if session), None)


def _said(refusal: Refusal) -> str:
    return f"This request was stopped and no model was asked: {refusal.reason}."


def _error(refusal: Refusal, data: Mapping[str, Any]) -> Exception:
    kind = BadRequestError if refusal.code == "loop_detected" else ServiceUnavailableError
    error: Exception = kind(message=refusal.reason, model=str(data.get("model")), llm_provider="")
    return error

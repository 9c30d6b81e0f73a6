"""What every place that guards LLM requests shares: both judges, one refusal, and never failing the request."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from loopfence.canonical import canonical_bytes
from loopfence.classic import Allow, AsyncLoopBreaker
from loopfence.errors import ArgsError, ConfigError
from loopfence.integrations.transcript import TranscriptGuard
from loopfence.intent import (
    REQUEST_FIELDS,
    intent_fingerprint,
    intent_fingerprint_value,
    llm_request,
    request_fingerprint,
)
from loopfence.parse import parse_json
from loopfence.signature import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_SESSION: Final = 256

log = logging.getLogger("loopfence.integrations")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not sent on: a sentence for the caller, and the kind of it."""

    reason: str
    code: Literal["loop_detected", "guard_unavailable"]
    """`guard_unavailable`: nothing was judged, Redis is out and the outage policy is to block."""


def session_of(tenant: str, named: str) -> str:
    """The id of a caller's session: whose it is, then how the caller named it, a long name by its digest."""
    if len(named) > _MAX_SESSION:
        named = blake2b(named.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    # A slash in a tenant's name must not reach into another's sessions.
    return f"{quote(tenant, safe='')}/{named}"


class RequestGuard:
    """Judges LLM requests by their intent (`breaker`) and by the tool calls in their history (`transcript`).

    Where neither is given, both are made from `url` with their defaults; else only what is given judges.
    `secret` keys all that is stored of a request, so that whoever can read Redis cannot confirm a guess at it.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        breaker: AsyncLoopBreaker | None = None,
        transcript: TranscriptGuard | None = None,
        secret: bytes | None = None,
    ) -> None:
        if secret is not None and not secret:
            raise ConfigError("secret must not be empty")
        if breaker is None and transcript is None:
            breaker, transcript = AsyncLoopBreaker(url=url), TranscriptGuard(url, secret=secret)
        elif url is not None:
            raise TypeError("give either a url or what to judge by, not both")
        self._breaker, self._transcript = breaker, transcript
        self._secret = secret

    async def judge_body(self, session: str, path: str, body: bytes) -> Refusal | None:
        """Why this request must not go on, or None. Never raises: a guard that fails lets requests through."""
        try:
            request = llm_request(body)
            if request is not None:
                with suppress(ArgsError):  # nested deeper than any request
                    return await self._judge(session, request, partial(request_fingerprint, path, request))
            return await self._intent(session, partial(intent_fingerprint, path, body))
        except Exception:
            log.exception("not guarded: judging a request to %s failed", path)
            return None

    async def judge_request(self, session: str, path: str, request: Mapping[str, Any]) -> Refusal | None:
        """Say the same of a body that is parsed already, and may hold a client library's objects."""
        try:
            told = {name: request[name] for name in REQUEST_FIELDS if name in request}
            request = parse_json(canonical_bytes(told))
            return await self._judge(session, request, partial(intent_fingerprint_value, path, request))
        except ArgsError as error:
            log.warning("not guarded: a request to %s has no canonical form: %s", path, error)
            return None
        except Exception:
            log.exception("not guarded: judging a request to %s failed", path)
            return None

    async def close(self) -> None:
        """Close the connections of both judges."""
        for judge in (self._breaker, self._transcript):
            if judge is not None:
                await judge.close()

    async def _judge(self, session: str, request: Mapping[str, Any], fingerprint: Callable[[], int]) -> Refusal | None:
        # Both see each request, whatever the other says; the fingerprint is made while the store has the history.
        judges = self._history(session, request), self._intent(session, fingerprint)
        by_history, by_intent = await asyncio.gather(*judges)
        return by_intent or by_history

    async def _intent(self, session: str, fingerprint: Callable[[], int]) -> Refusal | None:
        if self._breaker is None:
            return None
        intent = fingerprint()
        if self._secret is not None:
            intent = int(digest(f"{intent:016x}", self._secret), 16)
        decision = await self._breaker.check(session, intent)
        if isinstance(decision, Allow):
            return None
        if decision.repeats <= self._breaker.max_repeats:
            return _unavailable()
        return Refusal(
            f"loop detected: this same request was sent {decision.repeats} times "
            f"in the last {self._breaker.window_secs:g} seconds (limit {self._breaker.max_repeats})",
            "loop_detected",
        )

    async def _history(self, session: str, request: Mapping[str, Any]) -> Refusal | None:
        if self._transcript is None:
            return None
        verdict = await self._transcript.check(session, request)
        if verdict is None or verdict.allowed:
            return None
        if verdict.rule == "outage":
            return _unavailable()
        return Refusal(f"loop detected: {verdict.text}", "loop_detected")


def _unavailable() -> Refusal:
    return Refusal(
        "the loop guard cannot be reached, and its policy is to refuse requests meanwhile", "guard_unavailable"
    )

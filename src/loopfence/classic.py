"""The classic guards on the same engine: LoopDetector (a count window) and LoopBreaker (a time window)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopfence.call_ids import new_id, new_session
from loopfence.closing import AsyncClosing, Closing
from loopfence.errors import ConfigError
from loopfence.policy import MAX_WINDOW, micros
from loopfence.settings import resolve
from loopfence.signature import canonical_json, digest
from loopfence.store.keys import encode_name
from loopfence.store.open import open_async_store, open_store, space_of
from loopfence.store.tally import Bounds, Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence.settings import Settings

MAX_SAMPLES = 256
"""Earlier requests of a session that the breaker looks at."""
_DEFAULT_WINDOW_SECS = 30
_DEFAULT_MAX_REPEATS = 5


class LoopDetector(Closing):
    """Says whether a call's fingerprint stands `threshold` times among the last `window` calls.

    window -- calls looked at, 1 to 10,000. threshold -- at least 1; at 1 every call trips, past the window none does.
    url, client, namespace, ttl (seconds), clock -- as for LoopGuard. session -- else made up.
    Writes the keys of one session under `namespace`.
    """

    def __init__(
        self,
        window: int,
        threshold: int,
        *,
        url: str | None = None,
        session: str | None = None,
        namespace: str = "loopfence:detector",
        ttl: float = 3600,
        client: Any = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.window = _whole("window", window, least=1, most=MAX_WINDOW)
        self.threshold = _whole("threshold", threshold, least=1)
        settings = _settings(url, namespace, ttl, client, clock)
        self._store = open_store(settings, space_of(settings))
        self._session = encode_name("session", session or new_session())

    def record(self, tool: str, fingerprint: Any) -> bool:
        """Record a call by the caller's fingerprint (any JSON value); True where it loops, this call included."""
        signature = f"{encode_name('tool', tool)}:{digest(canonical_json(fingerprint))}"
        tally = self._store.record(_call(self._session, signature, self.window, 0))
        return tally.refused or tally.total >= self.threshold

    def is_looping(self) -> bool:
        """Whether any fingerprint in the window is at or past the threshold."""
        counts: dict[str, int] = {}
        for entry in self._store.contents(self._session).entries[-self.window :]:
            counts[entry.signature] = counts.get(entry.signature, 0) + 1
        return max(counts.values(), default=0) >= self.threshold

    def reset(self) -> None:
        """Forget the window."""
        self._store.reset(self._session)

    def close(self) -> None:
        self._store.close()


@dataclass(frozen=True)
class Allow:
    """The request may go on."""


@dataclass(frozen=True)
class Break:
    """The request is one too many: the `repeats`-th equal one inside the window."""

    repeats: int


LoopDecision = Allow | Break


class _Breaker:
    """What both breakers share: the settings, the request to the store, and the decision."""

    def __init__(
        self,
        window_secs: float | None = None,
        max_repeats: int | None = None,
        *,
        url: str | None = None,
        namespace: str = "loopfence:breaker",
        ttl: float | None = None,
        client: Any = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if window_secs is None:
            window_secs = _from_environment("LOOP_WINDOW_SECS", _DEFAULT_WINDOW_SECS)
        if max_repeats is None:
            max_repeats = _from_environment("LOOP_MAX_REPEATS", _DEFAULT_MAX_REPEATS)
        if isinstance(window_secs, bool) or not isinstance(window_secs, int | float):
            raise ConfigError(f"window_secs must be a number of seconds (got {window_secs!r})")
        if not math.isfinite(window_secs) or window_secs < 0:
            raise ConfigError(f"window_secs must be >= 0 (got {window_secs})")
        self.window_secs = window_secs
        self.max_repeats = _whole("max_repeats", max_repeats, least=0)
        kept = max(window_secs if ttl is None else ttl, window_secs, 1)
        self._open(_settings(url, namespace, kept, client, clock))

    def _open(self, settings: Settings) -> None:
        raise NotImplementedError

    @property
    def enabled(self) -> bool:
        """Whether any request can break: `max_repeats` is not 0."""
        return self.max_repeats > 0

    def _request(self, session_id: str, fingerprint: int) -> Call | None:
        session = encode_name("session", session_id)
        if isinstance(fingerprint, bool) or not isinstance(fingerprint, int) or not 0 <= fingerprint < 2**64:
            raise ConfigError("fingerprint must be a whole number of 64 bits, as intent_fingerprint gives")
        if not self.enabled or not self.window_secs:
            return None
        return _call(session, f"request:{fingerprint:016x}", MAX_SAMPLES + 1, micros(self.window_secs))

    def _decide(self, repeats: int, *, refused: bool) -> LoopDecision:
        return Break(repeats) if refused or repeats > self.max_repeats else Allow()


class LoopBreaker(_Breaker, Closing):
    """Breaks the (max_repeats+1)-th equal request of a session inside the last `window_secs` seconds.

    window_secs, max_repeats -- None takes LOOP_WINDOW_SECS and LOOP_MAX_REPEATS (plain digits, else ignored), else
        30 and 5. max_repeats=0 disables; window_secs=0 never breaks; at most 256 earlier requests of a session are
        looked at, so a max_repeats past 256 never breaks.
    url, client, namespace, clock -- as for LoopGuard. ttl -- seconds, at least the window.
    Writes one session's keys under `namespace` for each session id.
    """

    def _open(self, settings: Settings) -> None:
        self._store = open_store(settings, space_of(settings))

    def check(self, session_id: str, fingerprint: int) -> LoopDecision:
        """Record a request by its 64-bit fingerprint, and say whether it may go on."""
        call = self._request(session_id, fingerprint)
        if call is None:
            return Allow()
        tally = self._store.record(call)
        return self._decide(tally.total, refused=tally.refused)

    def tracked_sessions(self) -> int:
        """How many sessions the store holds."""
        return sum(1 for _ in self._store.sessions())

    def close(self) -> None:
        self._store.close()


class AsyncLoopBreaker(_Breaker, AsyncClosing):
    """The awaitable twin of LoopBreaker, with the same settings."""

    def _open(self, settings: Settings) -> None:
        self._store = open_async_store(settings, space_of(settings))

    async def check(self, session_id: str, fingerprint: int) -> LoopDecision:
        """Record a request by its 64-bit fingerprint, and say whether it may go on."""
        call = self._request(session_id, fingerprint)
        if call is None:
            return Allow()
        tally = await self._store.record(call)
        return self._decide(tally.total, refused=tally.refused)

    async def tracked_sessions(self) -> int:
        """How many sessions the store holds."""
        return sum([1 async for _ in self._store.sessions()])

    async def close(self) -> None:
        await self._store.close()


def _call(session: str, signature: str, window: int, max_age: int) -> Call:
    return Call(session, signature, new_id(), Bounds("request", window, max_age))


def _settings(url: str | None, namespace: str, ttl: float, client: Any, clock: Callable[[], float] | None) -> Settings:
    return resolve(url, policy=None, given={"namespace": namespace, "ttl": ttl}, client=client, clock=clock)


def _whole(name: str, value: Any, *, least: int, most: float = math.inf) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be a whole number (got {value!r})")
    if not least <= value <= most:
        bound = f">= {least}" if value < least else f"<= {most}"
        raise ConfigError(f"{name} must be {bound} (got {value})")
    return value


def _from_environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else default

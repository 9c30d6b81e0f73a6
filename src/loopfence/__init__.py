"""loopfence: the loop guard for fleets of LLM agents."""

from loopfence.aio import AsyncLoopGuard, AsyncSession
from loopfence.classic import Allow, AsyncLoopBreaker, Break, LoopBreaker, LoopDecision, LoopDetector
from loopfence.context import current_session, session
from loopfence.errors import (
    ArgsError,
    ConfigError,
    LoopDetectedError,
    LoopfenceError,
    StoreError,
    StoreUnavailableError,
)
from loopfence.guard import LoopGuard, Session
from loopfence.intent import intent_fingerprint, intent_fingerprint_value
from loopfence.policy import Policy, ToolRule
from loopfence.signature import canonical_json, default_key, signature
from loopfence.snapshot import Occurrence, SessionSnapshot
from loopfence.verdict import Level, Verdict

__all__ = [
    "Allow",
    "ArgsError",
    "AsyncLoopBreaker",
    "AsyncLoopGuard",
    "AsyncSession",
    "Break",
    "ConfigError",
    "Level",
    "LoopBreaker",
    "LoopDecision",
    "LoopDetectedError",
    "LoopDetector",
    "LoopGuard",
    "LoopfenceError",
    "Occurrence",
    "Policy",
    "Session",
    "SessionSnapshot",
    "StoreError",
    "StoreUnavailableError",
    "ToolRule",
    "Verdict",
    "canonical_json",
    "current_session",
    "default_key",
    "intent_fingerprint",
    "intent_fingerprint_value",
    "session",
    "signature",
]

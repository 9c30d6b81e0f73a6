"""loopfence: the loop guard for fleets of LLM agents."""

from typing import TYPE_CHECKING, Any

from loopfence.aio import AsyncLoopGuard, AsyncSession
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
from loopfence.policy import Policy, ToolRule
from loopfence.signature import canonical_json, default_key, signature
from loopfence.snapshot import Occurrence, SessionSnapshot
from loopfence.verdict import Level, Verdict

if TYPE_CHECKING:
    from loopfence.classic import Allow, AsyncLoopBreaker, Break, LoopBreaker, LoopDecision, LoopDetector
    from loopfence.intent import intent_fingerprint, intent_fingerprint_value

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

_ON_DEMAND = {
    **dict.fromkeys(
        ("Allow", "AsyncLoopBreaker", "Break", "LoopBreaker", "LoopDecision", "LoopDetector"), "loopfence.classic"
    ),
    **dict.fromkeys(("intent_fingerprint", "intent_fingerprint_value"), "loopfence.intent"),
}
"""Names that most programs do not use -> the module that is imported with them."""


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_ON_DEMAND[name]), name)

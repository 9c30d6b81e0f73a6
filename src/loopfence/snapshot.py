"""What can be seen of a session: its window, what repeats in it, and what is halted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopfence.store.keys import decode

if TYPE_CHECKING:
    from loopfence.store.tally import Contents


@dataclass(frozen=True)
class Occurrence:
    """One call in the window."""

    at: float
    """Server time, seconds since the epoch."""
    signature: str
    tool: str
    digest: str
    call_id: str
    text: str | None
    """The canonical arguments where they are kept (`keep_args`), at most 4 KB of them; else None."""
    reported: bool


@dataclass(frozen=True)
class SessionSnapshot:
    """A session as it stood at one moment, read in one step."""

    session: str
    calls: tuple[Occurrence, ...]
    """The window, oldest first."""
    counts: dict[str, int]
    """Signature -> equal calls in the window."""
    repeats: dict[str, int]
    """Signature -> occurrences that still count, without progress since."""
    failing: dict[str, int]
    """Tool -> how many of its latest reported calls failed in a row."""
    stagnant: dict[str, int]
    """Tool -> how many of its latest results were equal in a row."""
    halted: str | None
    idle: float | None
    """Seconds since the last call; None = there is none."""
    ttl: float | None
    """Seconds until the session vanishes; None = there is no such session."""
    degraded: bool
    """Redis is out: this is what this process saw meanwhile."""


def snapshot_of(session: str, contents: Contents, *, window: int, max_age: int) -> SessionSnapshot:
    """What a guard with this window and max age (µs, 0 = none) sees of a session's contents."""
    latest = contents.entries[-1].score if contents.entries else 0
    cutoff = max(contents.now, latest + 1) - max_age if max_age else 0
    entries = [entry for entry in contents.entries[-window:] if entry.score > cutoff]
    counts = Counter(entry.signature for entry in entries)
    oldest = entries[0].score if entries else contents.now
    streaks = {tool: run for tool, run in contents.streaks.items() if run.latest >= oldest}
    calls = []
    for score, signature, call_id, reported in entries:
        tool, _, digest = signature.rpartition(":")
        text = contents.texts.get(signature)
        calls.append(Occurrence(score / 1e6, signature, decode(tool), digest, call_id, text, reported))
    return SessionSnapshot(
        session=session,
        calls=tuple(calls),
        counts=dict(counts),
        # What no longer counts are always the oldest ones, so a shorter view keeps what still does.
        repeats={signature: min(count, contents.repeats.get(signature, count)) for signature, count in counts.items()},
        failing={decode(tool): run.failed for tool, run in streaks.items() if run.failed},
        stagnant={decode(tool): run.stagnant for tool, run in streaks.items() if run.stagnant},
        halted=contents.halted,
        idle=max(0.0, (contents.now - latest) / 1e6) if entries else None,
        ttl=None if contents.ttl is None else contents.ttl / 1000,
        degraded=contents.degraded,
    )

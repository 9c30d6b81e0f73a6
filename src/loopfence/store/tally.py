"""What every store is asked and what it answers: requests, the Tally, and the Store protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

new_tuple = tuple.__new__
"""A NamedTuple of all its fields, for what is made at each call: its own constructor takes three times as long."""

Source = Literal["redis", "memory", "local"]
OnOutage = Literal["local", "allow", "block", "raise"]


class Bounds(NamedTuple):
    """What a store has to know of a call's tool; the same for all its calls. The name is encoded; times are µs."""

    tool: str
    """The caller's tool name, which streaks are kept by; the signature may name another (custom key)."""
    window: int
    max_age: int = 0
    """0 = no bound."""
    pace: int = 0
    """0 = no pace."""
    stop: int = 0
    """Repeats at which the session is halted in the same step; 0 = never."""
    halt_reason: str = ""
    exempt: bool = False
    """Never counted: `record` then is a `peek`."""


class Call(NamedTuple):
    """One call to be recorded or peeked at. Names are encoded."""

    session: str
    signature: str
    call_id: str
    bounds: Bounds
    args: str | None = None
    """Canonical JSON to keep beside the signature, or None."""


class Report(NamedTuple):
    """What came of a recorded call."""

    session: str
    signature: str
    call_id: str
    tool: str
    max_age: int
    ok: bool
    result: str
    """Digest of the result; empty = unknown."""
    progress: bool
    """The tool makes progress when it succeeds."""
    stagnates: bool
    """The result takes part in the stagnation streak (known, not null, no progress tool)."""
    exempt: bool = False
    """The call was never counted: all that can be told of it is its progress."""

    @property
    def says_something(self) -> bool:
        """Whether a store has anything to note."""
        return not self.exempt or (self.progress and self.ok)

    @property
    def member(self) -> str:
        """The occurrence as it stands in the window."""
        return f"{self.signature} {self.call_id}"


Step = Call | Report
"""What a store takes many of at once."""


class Tally(NamedTuple):
    """What a store counted for one call: numbers only, no judgement."""

    repeats: int
    """Occurrences without progress since, this call included."""
    total: int
    """Equal calls in the window, this call included."""
    size: int
    """Calls in the window, this call included."""
    failed: int = 0
    """How many of the tool's latest reported calls failed in a row."""
    stagnant: int = 0
    """How many of the tool's latest results were equal in a row."""
    halted: str | None = None
    """Why the session was halted before this call."""
    duplicate: bool = False
    source: Source = "redis"
    degraded: bool = False
    refused: bool = False
    """The store is out and the outage policy is to block."""


class Entry(NamedTuple):
    """One occurrence in the window."""

    score: int
    signature: str
    call_id: str
    reported: bool


class Streak(NamedTuple):
    """How the latest reported calls of one tool went."""

    failed: int
    """How many of them failed in a row."""
    stagnant: int
    """How many of their results were equal in a row."""
    latest: int
    """Score of the newest of them: when that one has left the window, the streak has lapsed."""


@dataclass(frozen=True)
class Contents:
    """All that a store holds of one session, as it lies there (names encoded, times in µs)."""

    entries: list[Entry]
    repeats: dict[str, int]
    """Signature -> occurrences without progress since."""
    streaks: dict[str, Streak]
    """Tool -> its streak, where no progress has ended it."""
    texts: dict[str, str]
    halted: str | None
    now: int
    ttl: int | None
    """Milliseconds until the session vanishes; None = there is nothing."""
    degraded: bool = False


class Store(Protocol):
    """A synchronous store; every method raises StoreError only."""

    def record(self, call: Call) -> Tally: ...
    def run(self, steps: Sequence[Step]) -> list[Any]:
        """Many steps in few exchanges: a Tally for each call that was recorded, None for each report."""

    def peek(self, call: Call) -> Tally: ...
    def report(self, report: Report) -> None: ...
    def progress(self, session: str, owner: str, token: str) -> None: ...
    def halt(self, session: str, reason: str) -> None: ...
    def resume(self, session: str) -> None: ...
    def reset(self, session: str) -> None: ...
    def contents(self, session: str) -> Contents: ...
    def sessions(self) -> Iterator[str]: ...
    def close(self) -> None: ...


class AsyncStore(Protocol):
    """The awaitable twin of `Store`."""

    async def record(self, call: Call) -> Tally: ...
    async def run(self, steps: Sequence[Step]) -> list[Any]: ...
    async def peek(self, call: Call) -> Tally: ...
    async def report(self, report: Report) -> None: ...
    async def progress(self, session: str, owner: str, token: str) -> None: ...
    async def halt(self, session: str, reason: str) -> None: ...
    async def resume(self, session: str) -> None: ...
    async def reset(self, session: str) -> None: ...
    async def contents(self, session: str) -> Contents: ...
    def sessions(self) -> AsyncIterator[str]: ...
    async def close(self) -> None: ...

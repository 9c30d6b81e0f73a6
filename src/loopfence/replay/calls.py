"""What every reader yields: recorded tool calls and the marks between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator


class _Unknown:
    """The type of UNKNOWN; a recorded null is a result, no record of one is not."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()

SESSION_FIELDS: Final = ("session", "run", "agent")
"""The fields that make up the session of a call unless the user names others."""


@dataclass(slots=True)
class Call:
    """One recorded tool call, in the order in which the calls were made.

    `result` is what the tool answered (or the digest the recording holds instead), UNKNOWN where none was
    recorded. `ts` is in seconds; `batch` names the model turn that made the call; `id` is the tool-call id,
    which models reuse; `position` is the index of the message that made the call; `outcome` says how the run
    ended ("resolved", ...). Two calls with an equal `identity` are one call recorded twice.
    """

    session: str
    tool: str
    args: Any
    result: Any = UNKNOWN
    ok: bool = True
    ts: float | None = None
    run: str | None = None
    agent: str | None = None
    batch: str | None = None
    id: str | None = None
    position: int | None = None
    outcome: str | None = None
    identity: Hashable = None


@dataclass(slots=True)
class Turn:
    """A mark between calls: something moved outside the tools, a user's turn or a compacted context."""

    session: str
    ts: float | None = None
    run: str | None = None
    agent: str | None = None
    position: int | None = None
    why: str = "user turn"
    identity: Hashable = None


@dataclass
class Problems:
    """What could not be read: counted by reason, the first `keep` named by file and line."""

    keep: int = 100
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, file: str, line: int, why: str) -> None:
        """Counts one problem; `line` is 1-based."""
        self.counts[why] += 1
        if len(self.examples) < self.keep:
            self.examples.append(f"{file}:{line}: {why}")

    def total(self) -> int:
        """All problems met so far."""
        return self.counts.total()


class Pairing:
    """Joins calls with results that stand in later records, and hands them on in the order of the calls.

    One pairing serves one agent. A call waits for its result until the next model turn or mark.
    """

    def __init__(self) -> None:
        self._line: list[Call] = []

    def add_call(self, call: Call) -> Iterator[Call]:
        """Takes the next call; yields the calls of the turn before, when this one opens a new turn."""
        if self._line and self._line[-1].batch != call.batch:
            yield from self.flush()
        self._line.append(call)

    def turn(self, position: int) -> str:
        """The batch of a call at this position where records name no model turn: calls made before any of
        them was answered are of one turn.
        """
        if self._line and all(call.result is UNKNOWN for call in self._line):
            return self._line[0].batch or str(position)
        return str(position)

    def add_result(self, call_id: str | None, result: Any, *, ok: bool) -> Call | None:
        """Gives a result to the first open call with this id (None: the first one); returns that call."""
        for call in self._line:
            if call.result is UNKNOWN and (call_id is None or call.id == call_id):
                call.result, call.ok = result, call.ok and ok
                return call
        return None

    def mark_failed(self, call_id: str | None) -> None:
        """Notes that an open call failed, where another record than its result says so."""
        for call in self._line:
            if call.id is not None and call.id == call_id:
                call.ok = False

    def flush(self) -> Iterator[Call]:
        """The calls taken so far, answered or not."""
        line, self._line = self._line, []
        yield from line

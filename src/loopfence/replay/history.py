"""What a backtest finds out about one session: its calls, which were flagged, and whether rightly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from loopfence.replay.calls import Turn
from loopfence.verdict import Level

if TYPE_CHECKING:
    from loopfence.replay.calls import Call
    from loopfence.replay.clockwork import Counted, Signed
    from loopfence.verdict import Rule

MARK: Final = -1
"""The cell of a turn in a timeline."""

_CELLS: Final = 2_000
"""Calls of a session that a timeline shows, and flags that are kept of it."""
_TEXTS: Final = 500
_TEXT: Final = 160


@dataclass(slots=True, eq=False)
class Signature:
    """One distinct call of a session."""

    index: int
    tool: str
    text: str
    """Canonical JSON of the arguments, cut; empty beyond the first 500 distinct calls."""
    count: int = 0
    flagged: int = 0
    last: str = ""
    """Digest of its latest result."""


@dataclass(slots=True)
class Flag:
    """A call that would not have run."""

    call: int
    """Its number in the session, from 1."""
    signature: Signature
    rule: Rule
    count: int
    """What was counted: repeats, equal calls, or the length of the streak, this call included."""
    redundant: bool | None
    """Whether the call brought nothing new; None where that was not recorded."""
    cell: int | None


class Flagged:
    """What follows from the flags of one session, or of all."""

    __slots__ = ()

    redundant: int
    wrong: int
    unknown: int
    halted: int

    @property
    def flagged(self) -> int:
        """Calls that a rule would have refused."""
        return self.redundant + self.wrong + self.unknown

    @property
    def saved(self) -> int:
        """Calls that would not have run."""
        return self.flagged + self.halted

    @property
    def precision(self) -> float | None:
        """The part of the flagged calls that was redundant, of those where it is known; None without any."""
        known = self.redundant + self.wrong
        return self.redundant / known if known else None


@dataclass(slots=True)
class History(Flagged):
    """One session after the other is kept small: `cells` and `flags` hold the first of many only."""

    key: dict[str, Any]
    calls: int = 0
    duplicates: int = 0
    """Calls of a batch that equal another one of it: one occurrence each with that one."""
    redundant: int = 0
    """Flagged calls that brought nothing new."""
    wrong: int = 0
    """Flagged calls that did bring something new."""
    unknown: int = 0
    """Flagged calls of which neither is known."""
    due: int = 0
    """Redundant third-or-later equal calls: those that a guard should flag."""
    caught: int = 0
    """Those of them that were flagged."""
    halted: int = 0
    """Calls after the one that would have halted the session."""
    outcome: str | None = None
    signatures: dict[str, Signature] = field(default_factory=dict)
    flags: list[Flag] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    """Signature index of each call, MARK for a turn."""
    stopped: int | None = None
    """The call, from 1, at which the session would have been halted."""
    _tools: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The session's name with the other fields that make it up."""
        return "/".join(str(part) for part in self.key.values() if part is not None)

    def mark(self) -> None:
        """Notes a turn."""
        if len(self.cells) < _CELLS and self.cells and self.cells[-1] != MARK:
            self.cells.append(MARK)

    def add(self, call: Call, counted: Counted, level: Level, rule: Rule | None) -> None:
        """Notes one call with the engine's judgement and what the recording says of its result."""
        question, tally, report = counted
        self.calls += 1
        if call.outcome is not None:
            self.outcome = call.outcome
        key = question.call.signature
        signature = self.signatures.get(key)
        if signature is None:
            signature = self.signatures[key] = self._new(call.tool, question.call.args)
        result, last = report.result, signature.last
        again = None if not result or (signature.count and not last) else result == last
        if tally.duplicate:
            self.duplicates += 1
        else:
            signature.count += 1
            if signature.count >= 3 and again:
                self.due += 1
                self.caught += level >= Level.BLOCK or self.stopped is not None
        shown = len(self.cells) < _CELLS
        if shown:
            self.cells.append(signature.index)
        if self.stopped:
            self.halted += 1
        elif level >= Level.BLOCK and rule is not None:
            self._flag(signature, counted, rule, again, shown=shown)
            self.stopped = self.calls if level is Level.STOP else None
        if result:
            signature.last = result
            self._tools[call.tool] = result

    def add_uncounted(self, signed: list[Signed], *, timeline: bool) -> None:
        """Notes the items of a session in which no call came twice."""
        for item, key, text in signed:
            if isinstance(item, Turn):
                self.mark()
                continue
            self.calls += 1
            if item.outcome is not None:
                self.outcome = item.outcome
            if timeline:
                signature = self._new(item.tool, text)
                signature.count = 1
                self.signatures[key] = signature
                if len(self.cells) < _CELLS:
                    self.cells.append(signature.index)

    def _new(self, tool: str, text: str | None) -> Signature:
        index = len(self.signatures)
        return Signature(index, tool, _cut(text or "") if index < _TEXTS else "")

    def _flag(
        self,
        signature: Signature,
        counted: Counted,
        rule: Rule,
        again: bool | None,  # noqa: FBT001 - a fact
        *,
        shown: bool,
    ) -> None:
        _, tally, report = counted
        redundant, count = again, tally.repeats
        if rule == "failures":
            redundant, count = not report.ok, tally.failed + 1
        elif rule == "stagnation":
            redundant, count = self._tools.get(signature.tool) == report.result, tally.stagnant + 1
        elif rule == "ceiling":
            count = tally.total
        if redundant is None:
            self.unknown += 1
        elif redundant:
            self.redundant += 1
        else:
            self.wrong += 1
        signature.flagged += 1
        if len(self.flags) < _CELLS:
            cell = len(self.cells) - 1 if shown else None
            self.flags.append(Flag(self.calls, signature, rule, count, redundant, cell))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"

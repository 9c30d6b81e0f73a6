"""Names the loop in a session: the cycle of calls that goes round most, and how often."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loopfence.replay.history import MARK

if TYPE_CHECKING:
    from loopfence.replay.history import History, Signature

_LONGEST: Final = 12
_SHOWN: Final = 40


@dataclass(frozen=True)
class Loop:
    """A cycle of calls: `steps` in their order, `laps` begun, the first of them with call number `first`."""

    steps: tuple[Signature, ...]
    laps: int
    first: int

    @property
    def text(self) -> str:
        """The loop in words: `read → edit → test, 6 laps`. Arguments stand where the tool alone does not tell."""
        tools = Counter(step.tool for step in set(self.steps))
        names = (
            step.tool if tools[step.tool] == 1 else f"{step.tool} {_short(step.text)}".rstrip() for step in self.steps
        )
        return f"{' → '.join(names)}, {self.laps} {'laps' if len(self.steps) > 1 else 'times'}"


def worst_loop(history: History) -> Loop | None:
    """The cycle of up to 12 calls that covers most calls of the session, among those with a flagged call.

    Where equal calls come with others in between, the most often flagged call is a cycle of one, however far apart
    its laps. None without a flagged call among the kept ones.
    """
    if not history.flags:
        return None
    calls = [cell for cell in history.cells if cell != MARK]
    by_index = {signature.index: signature for signature in history.signatures.values()}
    flagged = {signature.index for signature in history.signatures.values() if signature.flagged}
    best: tuple[int, int, int] | None = None
    for period in range(1, min(_LONGEST, len(calls) // 2) + 1):
        start, length = _longest_run(calls, period, flagged)
        if length >= 2 * period and (best is None or length > best[2]):
            best = (period, start, length)
    if best is None or (best[0] == 1 and best[2] < 3):
        worst = max(history.signatures.values(), key=lambda signature: (signature.flagged, signature.count))
        first = calls.index(worst.index) + 1 if worst.index in calls else 1
        return Loop((worst,), worst.count, first)
    period, start, length = best
    steps = tuple(by_index[index] for index in calls[start : start + period])
    return Loop(steps, -(-length // period), start + 1)


def _longest_run(calls: list[int], period: int, flagged: set[int]) -> tuple[int, int]:
    """Start and length of the longest stretch that repeats itself with this period and holds a flagged call."""
    best_start, best_length, start = 0, 0, 0
    for at in range(period, len(calls) + 1):
        if at < len(calls) and calls[at] == calls[at - period]:
            continue
        length = at - start
        if length > max(best_length, period) and not flagged.isdisjoint(calls[start : start + period]):
            best_start, best_length = start, length
        start = at - period + 1
    return best_start, best_length


def _short(text: str) -> str:
    """Arguments for a heading: of an object its values alone, on one line and cut."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict):
        text = " ".join(part if isinstance(part, str) else json.dumps(part) for part in value.values())
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"

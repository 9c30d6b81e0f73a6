"""Guesses from recordings which tools make progress and which poll, each with the evidence for it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final

from loopfence.canonical import canonical_json
from loopfence.errors import ArgsError
from loopfence.replay.calls import UNKNOWN, Call, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHANGES: Final = re.compile(
    r"(?:^|[_\W])(?:add|append|apply|book|buy|cancel|commit|create|delete|edit|insert|install|modify|move|patch|post"
    r"|push|put|remove|rename|replace|save|send|set|submit|update|upload|write)(?:$|[_\W\d])"
)
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LEAST: Final = 3
"""Pieces of evidence for a guess."""
_LEAST_PACE: Final = 2.0
_MOST_TOOLS: Final = 1_000
_MOST_PAIRS: Final = 5_000
_MOST_GAPS: Final = 10_000


@dataclass(frozen=True)
class Guess:
    """A proposed rule for one tool: `progress = true`, or `pace` in seconds."""

    tool: str
    rule: str
    why: str


@dataclass(frozen=True)
class _Pair:
    """Two equal calls that follow each other: what succeeded in between, and whether the result changed."""

    between: frozenset[str]
    changed: bool


@dataclass(frozen=True)
class _Evidence:
    """How often the next equal call had another result, with a tool's success in between and without."""

    tool: str
    changed: int
    times: int
    changed_without: int
    times_without: int

    @property
    def share(self) -> float:
        return self.changed / self.times

    @property
    def named(self) -> bool:
        return _is_named_for_change(self.tool)

    @property
    def speaks(self) -> bool:
        """As often as not, and at least twice as often as without the tool."""
        base = self.changed_without / self.times_without if self.times_without else 0.0
        return self.share >= 0.5 and self.share >= 2 * base

    @property
    def why(self) -> str:
        return (
            f"with it in between, the next equal call had another result {self.changed} times of {self.times}"
            f" (without it {self.changed_without} of {self.times_without})"
        )


@dataclass
class _Polls:
    """Equal calls of a tool with none other in between."""

    gaps: list[float] = field(default_factory=list)
    changed: int = 0


class Guesses:
    """Collects evidence session by session; what it keeps grows with the tools, not with the sessions."""

    def __init__(self) -> None:
        self._calls: dict[str, int] = defaultdict(int)
        self._pairs: Counter[_Pair] = Counter()
        self._polls: dict[str, _Polls] = defaultdict(_Polls)

    def watch(self, items: Iterable[Call | Turn]) -> None:
        """Looks at the calls of one session, in their order."""
        last: dict[tuple[str, str], tuple[int, Call]] = {}
        succeeded: dict[str, int] = {}
        for number, item in enumerate(items):
            if isinstance(item, Turn):
                last.clear()
                continue
            if item.tool not in self._calls and len(self._calls) >= _MOST_TOOLS:
                continue
            self._calls[item.tool] += 1
            key = _key(item)
            if key is not None:
                before = last.get(key)
                if before is not None and UNKNOWN not in (before[1].result, item.result):
                    self._compare(before, (number, item), succeeded)
                last[key] = (number, item)
            if item.ok:
                succeeded[item.tool] = number

    def _compare(self, before: tuple[int, Call], now: tuple[int, Call], succeeded: dict[str, int]) -> None:
        at, earlier = before
        number, call = now
        changed = earlier.result != call.result
        between = frozenset(tool for tool, when in succeeded.items() if when > at and tool != call.tool)
        pair = _Pair(between, changed)
        if pair in self._pairs or len(self._pairs) < _MOST_PAIRS:
            self._pairs[pair] += 1
        if number == at + 1 and earlier.ts is not None and call.ts is not None:
            polls = self._polls[call.tool]
            polls.changed += changed
            if len(polls.gaps) < _MOST_GAPS:
                polls.gaps.append(call.ts - earlier.ts)

    def all(self) -> list[Guess]:
        """The guesses, those for progress first, the best founded of them first."""
        polls = [self._poll(tool) for tool in sorted(self._polls)]
        return [*self._progress(), *(guess for guess in polls if guess is not None)]

    def _progress(self) -> list[Guess]:
        """Tools after which equal calls had another result, one at a time: what one explains is no evidence for
        the next, as reads stand between the same calls as edits do.
        """
        pairs, guesses, against = Counter(self._pairs), [], set()
        while True:
            found = [self._evidence(tool, pairs) for tool in sorted(set().union(*(p.between for p in pairs)))]
            known = [evidence for evidence in found if evidence.times >= _LEAST]
            against |= {evidence.tool for evidence in known if not evidence.speaks}
            best = max((e for e in known if e.speaks), key=lambda e: (e.named, e.share, e.times), default=None)
            if best is None:
                break
            guesses.append(Guess(best.tool, "progress = true", best.why))
            pairs = Counter({pair: n for pair, n in pairs.items() if best.tool not in pair.between})
        told = against | {guess.tool for guess in guesses}
        for tool in sorted(self._calls):
            if tool not in told and _is_named_for_change(tool):
                why = f"its name says that it changes something ({self._calls[tool]} calls)"
                guesses.append(Guess(tool, "progress = true", why))
        return guesses

    @staticmethod
    def _evidence(tool: str, pairs: Counter[_Pair]) -> _Evidence:
        with_it = [(pair.changed, n) for pair, n in pairs.items() if tool in pair.between]
        without = [(pair.changed, n) for pair, n in pairs.items() if tool not in pair.between]
        return _Evidence(
            tool,
            sum(n for changed, n in with_it if changed),
            sum(n for _, n in with_it),
            sum(n for changed, n in without if changed),
            sum(n for _, n in without),
        )

    def _poll(self, tool: str) -> Guess | None:
        polls = self._polls[tool]
        if len(polls.gaps) < _LEAST or not polls.changed:
            return None
        shortest = quantiles(polls.gaps, n=10)[0]
        if shortest < _LEAST_PACE:
            return None
        why = (
            f"{len(polls.gaps)} times it was called again with nothing in between, {median(polls.gaps):.0f} s later"
            f" (median), and the answer changed {polls.changed} times"
        )
        return Guess(tool, f"pace = {shortest * 0.8:.1f}", why)


def _is_named_for_change(tool: str) -> bool:
    return _CHANGES.search(_WORDS.sub("_", tool).lower()) is not None


def _key(call: Call) -> tuple[str, str] | None:
    args: Any = {} if call.args is None else call.args
    try:
        return call.tool, canonical_json(args)
    except ArgsError:
        return None

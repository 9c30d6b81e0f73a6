"""Guesses from recordings which tools make progress and which poll, each with the evidence for it."""

from __future__ import annotations

import re
from collections import defaultdict
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
_MOST_GAPS: Final = 10_000


@dataclass(frozen=True)
class Guess:
    """A proposed rule for one tool: `progress = true`, or `pace` in seconds."""

    tool: str
    rule: str
    why: str


@dataclass
class _Between:
    """How often the next equal call had another result, where this tool succeeded in between."""

    changed: int = 0
    equal: int = 0


@dataclass
class _Polls:
    """Equal calls of a tool with none other in between."""

    gaps: list[float] = field(default_factory=list)
    changed: int = 0


class Guesses:
    """Collects evidence session by session; what it keeps grows with the tools, not with the sessions."""

    def __init__(self) -> None:
        self._calls: dict[str, int] = defaultdict(int)
        self._between: dict[str, _Between] = defaultdict(_Between)
        self._all = _Between()
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
        for evidence in (
            self._all,
            *(self._between[tool] for tool, when in succeeded.items() if when > at and tool != call.tool),
        ):
            evidence.changed += changed
            evidence.equal += not changed
        if number == at + 1 and earlier.ts is not None and call.ts is not None:
            polls = self._polls[call.tool]
            polls.changed += changed
            if len(polls.gaps) < _MOST_GAPS:
                polls.gaps.append(call.ts - earlier.ts)

    def all(self) -> list[Guess]:
        """The guesses, those for progress first, each kind by tool."""
        found = [self._progress(tool) for tool in sorted(self._calls)]
        found += [self._poll(tool) for tool in sorted(self._polls)]
        return [guess for guess in found if guess is not None]

    def _progress(self, tool: str) -> Guess | None:
        seen, rest = self._between.get(tool, _Between()), self._all
        times = seen.changed + seen.equal
        others = rest.changed + rest.equal - times
        if times >= _LEAST and seen.changed * 2 > times:
            base = (rest.changed - seen.changed) / others if others else 0.0
            if seen.changed / times >= 2 * base:
                why = (
                    f"with it in between, the next equal call had another result {seen.changed} times of {times}"
                    f" (without it {rest.changed - seen.changed} of {others})"
                )
                return Guess(tool, "progress = true", why)
        if _CHANGES.search(_WORDS.sub("_", tool).lower()) and times == seen.changed:
            return Guess(
                tool, "progress = true", f"its name says that it changes something ({self._calls[tool]} calls)"
            )
        return None

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


def _key(call: Call) -> tuple[str, str] | None:
    args: Any = {} if call.args is None else call.args
    try:
        return call.tool, canonical_json(args)
    except ArgsError:
        return None

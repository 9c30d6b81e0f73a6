"""The verdict on one call: levels, the judgement, and the texts for the model and for errors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, Self

from loopfence.errors import LoopDetectedError

if TYPE_CHECKING:
    from loopfence.policy import Limits, Policy
    from loopfence.store.tally import Source, Tally

Rule = Literal["repeat", "ceiling", "failures", "stagnation", "halted", "outage"]


class Level(IntEnum):
    """How bad it is: ALLOW < WARN < BLOCK < STOP."""

    ALLOW = 0
    WARN = 1
    BLOCK = 2
    STOP = 3


# An enum looks its members up anew at each access; a judgement is on the hot path.
ALLOW, WARN, BLOCK, STOP = Level


@dataclass(frozen=True)
class Verdict:
    """What the guard says of one call. Immutable and picklable; it holds no arguments."""

    level: Level
    allowed: bool
    """Whether the call may run; always True in shadow mode, but for an operator's halt."""
    rule: Rule | None
    """Which rule spoke, None for a plain ALLOW."""
    count: int
    """Repeats without progress, this call included."""
    total: int
    """Equal calls in the window, this call included."""
    size: int
    """Calls in the window, this call included."""
    window: int
    threshold: int
    limit: int | None
    """The number that was reached: threshold, warn, stop, ceiling, failures or stagnation."""
    streak: int
    """How many calls of the tool failed, or had equal results, in a row (rules "failures" and "stagnation")."""
    tool: str
    signature: str
    session: str
    call_id: str
    duplicate: bool
    """The same call, by its call_id, was recorded before; it was not counted again."""
    source: Source
    """Where the numbers come from: "redis", "memory" (memory://) or "local" (Redis is out)."""
    degraded: bool
    """Redis did not answer; the outage policy decided."""
    progress: bool
    """A success of this call will be progress, by the tool's rule."""
    halted: str | None
    """Why the session is halted, else None."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """A verdict that takes over all its fields. A dataclass sets them one by one, at five times the cost."""
        verdict = _new(cls)
        _set_fields(verdict, values)
        return verdict

    @property
    def message(self) -> str:
        """A short text for the model: the call was not run, why, and what to do instead. Empty for a plain ALLOW.

        It never repeats the arguments: echoing them feeds the loop.
        """
        if self.rule is None:
            return ""
        tool = _shown(self.tool)
        if self.level is Level.WARN:
            return (
                f"Note: '{tool}' was called {self.count} times with the same arguments without progress. "
                f"At {self.threshold} such calls it will not be run."
            )
        if self.allowed:
            return f"Shadow mode: this call ran, but would have been refused. {self._why(tool)}"
        return f"This call was not run. {self._why(tool)} {_ADVICE[self.rule]}"

    def _why(self, tool: str) -> str:
        rule, end = self.rule, f" The session is now halted: {self.halted}." if self.halted else ""
        if rule == "repeat":
            return (
                f"'{tool}' was called {self.count} times with the same arguments without progress "
                f"(limit {self.limit} in the last {self.window} calls).{end}"
            )
        if rule == "ceiling":
            return f"'{tool}' was called {self.total} times with the same arguments (limit {self.limit})."
        if rule == "failures":
            return f"The last {self.streak} calls of '{tool}' all failed (limit {self.limit})."
        if rule == "stagnation":
            return f"The last {self.streak} calls of '{tool}' all had the same result (limit {self.limit})."
        if rule == "halted":
            return f"This session is halted: {_shown(self.halted or '', 300)}."
        return "The loop guard cannot be reached, and its policy is to refuse calls meanwhile."

    @property
    def text(self) -> str:
        """The one-line description that `LoopDetectedError` carries; empty for a plain ALLOW."""
        tool, last = f"tool {_shown(self.tool)!r}", f"in the last {self.window} calls"
        match self.rule:
            case "repeat":
                name = {Level.WARN: "warn", Level.STOP: "stop"}.get(self.level, "threshold")
                return f"{tool} called {self.count} times {last} ({name}={self.limit})"
            case "ceiling":
                return f"{tool} called {self.total} times {last}, progress or not (ceiling={self.limit})"
            case "failures":
                return f"{tool} failed {self.streak} times in a row (failures={self.limit})"
            case "stagnation":
                return f"{tool} had {self.streak} equal results in a row (stagnation={self.limit})"
            case "halted":
                return f"session {_shown(self.session)!r} is halted: {_shown(self.halted or '', 300)}"
            case "outage":
                return f"{tool} refused: the store is unavailable (on_outage='block')"
            case _:
                return ""

    def error(self, args: Any = None) -> LoopDetectedError:
        """The error that `record` raises for this verdict; `args` become its `tool_args`."""
        return LoopDetectedError(self.tool, args, self.count, self.window, self.threshold, self.session, self)


_new = object.__new__
_set_fields = Verdict.__dict__["__dict__"].__set__
VERDICT_FIELDS = tuple(spec.name for spec in fields(Verdict))

_ADVICE = {
    "repeat": "Calling it again will not help: use the result you have, change the arguments, try another way, "
    "or say what you are missing.",
    "ceiling": "Use the results you have, try another way, or finish.",
    "failures": "Stop retrying: find out why it fails, try another tool, or report the problem.",
    "stagnation": "Other arguments change nothing: try another tool, or report what you found.",
    "halted": "Make no more tool calls: say what you did, what is open, and end.",
    "outage": "Try again later, or finish without this tool.",
}


def _shown(text: str, most: int = 80) -> str:
    """A name from outside, on one line and of bounded length."""
    flat = "".join(sign if sign.isprintable() else "?" for sign in text[: most + 1])
    return flat if len(flat) <= most else flat[:most] + "…"


def judge(policy: Policy, tally: Tally, limits: Limits) -> tuple[Level, Rule | None, int | None]:
    """Level, rule and reached number of a call whose tool has these limits."""
    if tally.halted is not None:
        return STOP, "halted", None
    if tally.refused:
        return BLOCK, "outage", None
    if limits.rule.exempt:
        return ALLOW, None, None
    if limits.stop is not None and tally.repeats >= limits.stop:
        return STOP, "repeat", limits.stop
    if tally.repeats >= limits.threshold:
        return BLOCK, "repeat", limits.threshold
    if limits.ceiling is not None and tally.total >= limits.ceiling:
        return BLOCK, "ceiling", limits.ceiling
    if policy.failures is not None and tally.failed >= policy.failures - 1:
        return BLOCK, "failures", policy.failures
    if policy.stagnation is not None and tally.stagnant >= policy.stagnation - 1:
        return BLOCK, "stagnation", policy.stagnation
    if limits.warn is not None and tally.repeats >= limits.warn:
        return WARN, "repeat", limits.warn
    return ALLOW, None, None

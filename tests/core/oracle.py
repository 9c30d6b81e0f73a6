"""The counting rule told once more, naively: every answer re-counts the whole history of one session.

Written from the design alone. There are no epochs, no kept counts and no digests here: a list of what happened, and a
list of the calls in the window, each of which knows whether something is known to have moved since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from loopfence import Policy, ToolRule, Verdict

UNKNOWN = object()
"""No result was reported."""


class Said(NamedTuple):
    """What is compared of a verdict."""

    level: str
    allowed: bool
    rule: str | None
    count: int
    total: int
    size: int
    limit: int | None
    streak: int
    duplicate: bool
    halted: str | None

    @classmethod
    def by(cls, verdict: Verdict) -> Said:
        """The same, of a real verdict."""
        fields = {name: getattr(verdict, name) for name in cls._fields if name != "level"}
        return cls(level=verdict.level.name, **fields)


@dataclass(frozen=True)
class Happened:
    """One entry of the history; `kind` says which of the fields matter."""

    kind: str
    at: int
    """µs."""
    call: tuple[str, str] = ("", "")
    """Tool and arguments: what makes two calls the same."""
    call_id: str = ""
    rule: ToolRule | None = None
    result: Any = UNKNOWN
    ok: bool = True
    progress: bool = False
    reason: str = ""


@dataclass
class Occurrence:
    """One call in the window."""

    at: int
    call: tuple[str, str]
    call_id: str
    moved: bool = False
    """Whether something moved since, so that it no longer counts."""
    reported: str = ""


@dataclass
class World:
    """A session after a part of its history."""

    window: int
    max_age: int
    calls: list[Occurrence] = field(default_factory=list)
    results: dict[tuple[str, str], Any] = field(default_factory=dict)
    reports: dict[str, list[tuple[Occurrence, Happened]]] = field(default_factory=dict)
    latest_note: tuple[Any, ...] = ()
    halted: str | None = None
    duplicate: bool = False

    def take(self, event: Happened) -> None:
        """Let one more thing happen."""
        getattr(self, event.kind)(event)
        self.forget()

    def looked(self, event: Happened) -> int:
        """What is too old is gone; the time, which never stands still inside a session."""
        now = max(event.at, self.calls[-1].at + 1) if self.calls else event.at
        if self.max_age:
            self.calls = [one for one in self.calls if now - one.at < self.max_age]
        self.forget()
        return now

    def called(self, event: Happened) -> None:
        now = self.looked(event)
        self.duplicate = any((one.call, one.call_id) == (event.call, event.call_id) for one in self.calls)
        if self.duplicate:
            return
        self.calls.append(Occurrence(now, event.call, event.call_id))
        self.calls = self.calls[-self.window :]
        *earlier, _ = self.equal(event.call)
        pace = event.rule.pace if event.rule else None
        if pace is not None and earlier and now - earlier[-1].at >= pace * 1_000_000:
            self.move(earlier)
            self.reports.pop(event.call[0], None)

    def reported(self, event: Happened) -> None:
        now = max(event.at, self.calls[-1].at + 1) if self.calls else event.at
        for one in self.equal(event.call):
            too_old = self.max_age and now - one.at >= self.max_age
            if one.call_id == event.call_id and not too_old:
                news = not one.reported or (one.reported == "failed" and event.ok)
                if news:
                    self.note(one, event, now)

    def note(self, one: Occurrence, event: Happened, now: int) -> None:
        one.reported = "succeeded" if event.ok else "failed"
        tool = event.call[0]
        so_far = self.reports.get(tool, [])
        if so_far and self.max_age and now - max(seen.at for seen, _ in so_far) >= self.max_age:
            del self.reports[tool]
        if event.result is not UNKNOWN:
            if event.call in self.results and self.results[event.call] != event.result:
                self.move(self.equal(event.call)[:-1])
                self.reports.pop(tool, None)
            self.results[event.call] = event.result
        self.reports.setdefault(tool, []).append((one, event))
        if event.progress and event.ok:
            self.move([other for other in self.calls if other.call != event.call])
            self.reports.clear()

    def noted(self, event: Happened) -> None:
        """Progress by the caller's word, or by a call that is never in the window; the same one again is one."""
        if event.call_id and self.latest_note == (event.call, event.call_id):
            return
        self.latest_note = event.call, event.call_id
        self.move([other for other in self.calls if other.call != event.call])
        self.reports.clear()

    def halt(self, event: Happened) -> None:
        self.halted = event.reason

    def resume(self, _: Happened) -> None:
        self.halted = None

    def reset(self, _: Happened) -> None:
        self.calls, self.results, self.reports, self.latest_note, self.halted = [], {}, {}, (), None

    def equal(self, call: tuple[str, str]) -> list[Occurrence]:
        return [one for one in self.calls if one.call == call]

    @staticmethod
    def move(calls: list[Occurrence]) -> None:
        for one in calls:
            one.moved = True

    def forget(self) -> None:
        """Nothing of a call or a tool stays when its last occurrence has left."""
        self.results = {call: result for call, result in self.results.items() if self.equal(call)}
        for tool, reports in list(self.reports.items()):
            newest = max((one for one, _ in reports), key=lambda one: one.at)
            if newest not in self.calls:
                del self.reports[tool]

    def failing(self, tool: str) -> int:
        """How many of the tool's latest reported calls failed in a row."""
        reports = [event.ok for _, event in self.reports.get(tool, [])]
        return next((run for run, ok in enumerate(reversed(reports)) if ok), len(reports))

    def stagnant(self, tool: str) -> int:
        """How many of the tool's latest results were equal in a row."""
        results = [event.result for _, event in self.reports.get(tool, []) if self.says_something(event)]
        return next((run for run, one in enumerate(reversed(results)) if one != results[-1]), len(results))

    @staticmethod
    def says_something(event: Happened) -> bool:
        declared = event.rule is not None and event.rule.progress is not False
        return event.result is not UNKNOWN and event.result is not None and not declared


class Oracle:
    """One session under one policy. Times are seconds; `rules` are the policy's tool rules by plain tool name."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.now = 0.0
        self.history: list[Happened] = []

    def check(self, tool: str, args: str, call_id: str) -> Said:
        said = self.peek(tool, args, call_id)
        if not self.rule(tool).exempt:
            self.history.append(self.event("called", tool, args, call_id=call_id))
        if said.rule == "repeat" and said.level == "STOP" and self.policy.enforce:
            self.history.append(self.event("halt", reason=said.halted))
        return said

    def peek(self, tool: str, args: str, call_id: str = "the next one") -> Said:
        rule = self.rule(tool)
        if rule.exempt:
            now = self.seen()
            level, by = ("STOP", "halted") if now.halted else ("ALLOW", None)
            return Said(level, by is None, by, 0, 0, len(now.calls), None, 0, False, now.halted)
        after = self.world(self.event("called", tool, args, call_id=call_id))
        equal = after.equal((tool, args))
        count = max(1, len([one for one in equal if not one.moved]))
        failing, stagnant = after.failing(tool), after.stagnant(tool)
        level, by, limit = self.judge(rule, count, len(equal), failing, stagnant, halted=after.halted is not None)
        allowed = level in ("ALLOW", "WARN") or (not self.policy.enforce and by != "halted")
        halted = after.halted
        if level == "STOP" and by == "repeat" and self.policy.enforce:
            halted = f"{tool} was called {limit} times without progress"
        streak = {"failures": failing, "stagnation": stagnant}.get(by or "", 0)
        return Said(level, allowed, by, count, len(equal), len(after.calls), limit, streak, after.duplicate, halted)

    def report(self, tool: str, args: str, call_id: str, result: Any, ok: bool) -> None:
        rule = self.rule(tool)
        progress = rule.progress is True
        if not rule.exempt:
            event = self.event("reported", tool, args, call_id=call_id, result=result, ok=ok, progress=progress)
            self.history.append(event)
        elif progress and ok:
            self.history.append(self.event("noted", tool, args, call_id=call_id))

    def note_progress(self) -> None:
        self.history.append(self.event("noted"))

    def halt(self, reason: str) -> None:
        self.history.append(self.event("halt", reason=reason))

    def resume(self) -> None:
        self.history.append(self.event("resume"))

    def reset(self) -> None:
        self.history.append(self.event("reset"))

    def judge(
        self, rule: ToolRule, count: int, total: int, failing: int, stagnant: int, *, halted: bool
    ) -> tuple[str, str | None, int | None]:
        policy = self.policy
        limit = {
            name: getattr(rule, name) or getattr(policy, name) for name in ("threshold", "warn", "stop", "ceiling")
        }
        if halted:
            return "STOP", "halted", None
        cases = [
            ("STOP", "repeat", limit["stop"], count),
            ("BLOCK", "repeat", limit["threshold"], count),
            ("BLOCK", "ceiling", limit["ceiling"], total),
            ("BLOCK", "failures", policy.failures, failing + 1),
            ("BLOCK", "stagnation", policy.stagnation, stagnant + 1),
            ("WARN", "repeat", limit["warn"], count),
        ]
        reached = [(level, by, bound) for level, by, bound, number in cases if bound is not None and number >= bound]
        return reached[0] if reached else ("ALLOW", None, None)

    def rule(self, tool: str) -> ToolRule:
        from loopfence import ToolRule

        return self.policy.tools.get(tool, ToolRule())

    def event(self, kind: str, tool: str = "", args: str = "", **more: Any) -> Happened:
        return Happened(kind, round(self.now * 1_000_000), (tool, args), rule=self.rule(tool), **more)

    def world(self, *more: Happened) -> World:
        """The session after its history, and after what is asked about."""
        world = World(self.policy.window, round((self.policy.max_age or 0) * 1_000_000))
        for event in [*self.history, *more]:
            world.take(event)
        return world

    def seen(self) -> World:
        """The session as a reader sees it now."""
        return self.world(self.event("looked"))

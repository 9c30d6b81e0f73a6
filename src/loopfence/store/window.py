"""The counting rule, executable: one session's window, which lua/ tells a second time."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopfence.store.tally import Call, Report

Member = tuple[str, str]
"""Signature and call id: one occurrence."""


class _Seen:
    """What is known of one signature beyond its count."""

    __slots__ = ("discounted", "epoch", "last", "result")

    def __init__(self, epoch: int, discounted: int) -> None:
        self.epoch = epoch
        self.discounted = discounted
        """How many of its occurrences, always the oldest ones, no longer count."""
        self.result = ""
        self.last = 0
        """Score of the latest occurrence; kept only where the tool has a pace."""


class _Streak:
    """How the latest reported calls of one tool went."""

    __slots__ = ("epoch", "failed", "latest", "result", "stagnant")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.failed = 0
        self.stagnant = 0
        self.result = ""
        self.latest = 0
        """Score of the newest call that was reported; the streak lapses when that one leaves the window."""


class Window:
    """One session's last calls, and what has moved since."""

    def __init__(self) -> None:
        self.scores: OrderedDict[Member, int] = OrderedDict()
        """Every occurrence with its score, oldest first."""
        self.latest = 0
        """The newest score."""
        self.counts: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.seen: dict[str, _Seen] = {}
        self.reported: dict[Member, tuple[bool, str]] = {}
        self.streaks: dict[str, _Streak] = {}
        self.epoch = 0
        self.epoch_by = ""
        self.epoch_before = 0
        self.epoch_token = ""
        self.halted: str | None = None
        self.expires = 0

    def next_score(self, now: int) -> int:
        return now if now > self.latest or not self.scores else self.latest + 1

    def drop_until(self, cutoff: int) -> None:
        while self.scores and next(iter(self.scores.values())) <= cutoff:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        member, score = self.scores.popitem(last=False)
        signature = member[0]
        left = self.counts[signature] - 1
        if left:
            self.counts[signature] = left
            if self.seen and (seen := self.seen.get(signature)) is not None and seen.discounted:
                seen.discounted -= 1
        else:
            del self.counts[signature]
            if self.seen:
                self.seen.pop(signature, None)
            if self.texts:
                self.texts.pop(signature, None)
        if self.reported and (reported := self.reported.pop(member, None)) is not None:
            streak = self.streaks.get(reported[1])
            if streak is not None and streak.latest == score:
                del self.streaks[reported[1]]

    def append(self, member: Member, score: int) -> None:
        self.scores[member] = self.latest = score
        self.counts[member[0]] = self.counts.get(member[0], 0) + 1

    def epoch_for(self, signature: str) -> int:
        """The latest epoch that discounts `signature`: its own progress does not."""
        return self.epoch_before if signature == self.epoch_by else self.epoch

    def discounted(self, signature: str) -> int:
        """How many of the signature's occurrences no longer count, as things stand."""
        epoch = self.epoch_for(signature)
        seen = self.seen.get(signature)
        if seen is not None and seen.epoch == epoch:
            return seen.discounted
        return self.counts.get(signature, 0) if epoch else 0

    def streak_of(self, tool: str, cutoff: int) -> _Streak | None:
        """The tool's streak, if no progress and no lapse of time ended it."""
        streak = self.streaks.get(tool)
        if streak is None or streak.epoch != self.epoch or streak.latest <= cutoff:
            return None
        return streak

    def discount(self, call: Call, now: int) -> None:
        """Settle how many earlier occurrences of the new call's signature no longer count."""
        signature, pace = call.signature, call.bounds.pace
        seen = self.seen.get(signature)
        epoch = self.epoch_for(signature)
        if seen is None:
            if not epoch and not pace:
                return
            seen = self.seen[signature] = _Seen(epoch, self.counts[signature] - 1 if epoch else 0)
        elif seen.epoch != epoch:
            seen.epoch = epoch
            seen.discounted = self.counts[signature] - 1
        if pace:
            earlier = self.counts[signature] - 1
            if earlier and seen.last and now - seen.last >= pace:
                seen.discounted = earlier
                self.streaks.pop(call.bounds.tool, None)
            seen.last = now

    def compare(self, report: Report) -> bool:
        """Take note of the result; when it differs from the one before, only the latest occurrence still counts."""
        signature = report.signature
        discounted = self.discounted(signature)
        seen = self.seen.get(signature)
        if seen is None:
            seen = self.seen[signature] = _Seen(0, 0)
        changed = bool(seen.result) and seen.result != report.result
        seen.epoch = self.epoch_for(signature)
        seen.discounted = max(discounted, self.counts[signature] - 1) if changed else discounted
        seen.result = report.result
        return changed

    def extend_streak(self, report: Report, score: int, cutoff: int, *, changed: bool) -> None:
        streak = self.streak_of(report.tool, cutoff)
        if streak is None or changed:
            streak = self.streaks[report.tool] = _Streak(self.epoch)
        streak.latest = max(streak.latest, score)
        streak.failed = 0 if report.ok else streak.failed + 1
        if report.stagnates:
            streak.stagnant = streak.stagnant + 1 if streak.result == report.result else 1
            streak.result = report.result

    def advance(self, owner: str) -> None:
        if owner != self.epoch_by:
            self.epoch_before = self.epoch
            self.epoch_by = owner
        self.epoch += 1

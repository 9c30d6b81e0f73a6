"""The counting rule, executable: the embedded default, the outage fallback, and what Redis is held against."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from loopfence.store.keys import decode
from loopfence.store.tally import Call, Contents, Entry, Report, Source, Streak, Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

MAX_SESSIONS = 10_000
HALT_MS = 86_400_000
"""A halted session is kept at least this long, so that the halt and what led to it can be seen."""

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


class _Window:
    """One session."""

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
            self.seen.pop(signature, None)
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


class Space:
    """Sessions that guards of one process share; at most 10,000, the longest untouched out first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.windows: OrderedDict[tuple[str, str], _Window] = OrderedDict()
        _spaces.add(self)


_spaces: weakref.WeakSet[Space] = weakref.WeakSet()
_named: dict[str, Space] = {}


def _renew_locks() -> None:
    for space in _spaces:
        space.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # A thread of the parent may have held a lock at the moment of the fork; it does not live in the child.
    os.register_at_fork(after_in_child=_renew_locks)


def named_space(name: str) -> Space:
    """The space of `memory://name`; an empty name makes a new one."""
    return _named.setdefault(name, Space()) if name else Space()


class MemoryStore:
    """Windows in this process. `ttl` in milliseconds, `clock` in seconds."""

    def __init__(
        self,
        space: Space | None = None,
        *,
        namespace: str,
        ttl: int,
        clock: Callable[[], float] = time.time,
        source: Source = "memory",
    ) -> None:
        self._space = space or Space()
        self._namespace = namespace
        self._ttl = ttl
        self._clock = clock
        self._source = source

    def record(self, call: Call) -> Tally:
        if call.exempt:
            return self.peek(call)
        with self._space.lock:
            return self._record(call)

    def record_many(self, calls: list[Call]) -> list[Tally]:
        return [self.record(call) for call in calls]

    def _record(self, call: Call) -> Tally:
        clock = self._now()
        window = self._open(call.session, clock)
        now = window.next_score(clock)
        if call.max_age:
            window.drop_until(now - call.max_age)
        signature = call.signature
        member = (signature, call.call_id)
        duplicate = member in window.scores
        if not duplicate:
            window.append(member, now)
            while len(window.scores) > call.window:
                window.drop_oldest()
            if call.pace or window.seen or window.epoch:
                self._discount(window, call, now)
            if call.args is not None:
                window.texts[signature] = call.args
        total = window.counts[signature]
        repeats = max(1, total - window.discounted(signature)) if window.epoch or window.seen else total
        halted = window.halted
        if call.stop and repeats >= call.stop and halted is None:
            window.halted = call.halt_reason
        self._keep(window, clock)
        # A cutoff of 0 is enough: what is too old has just been dropped.
        streak = window.streak_of(call.tool, 0) if window.streaks else None
        failed, stagnant = (streak.failed, streak.stagnant) if streak else (0, 0)
        source = self._source
        return Tally(repeats, total, len(window.scores), failed, stagnant, halted, duplicate, source, source == "local")

    @staticmethod
    def _discount(window: _Window, call: Call, now: int) -> None:
        """Settle how many earlier occurrences of the new call's signature no longer count."""
        signature = call.signature
        seen = window.seen.get(signature)
        epoch = window.epoch_for(signature)
        if seen is None:
            if not epoch and not call.pace:
                return
            seen = window.seen[signature] = _Seen(epoch, window.counts[signature] - 1 if epoch else 0)
        elif seen.epoch != epoch:
            seen.epoch = epoch
            seen.discounted = window.counts[signature] - 1
        if call.pace:
            earlier = window.counts[signature] - 1
            if earlier and seen.last and now - seen.last >= call.pace:
                seen.discounted = earlier
                window.streaks.pop(call.tool, None)
            seen.last = now

    def peek(self, call: Call) -> Tally:
        with self._space.lock:
            clock = self._now()
            window = self._find(call.session, clock) or _Window()
            signature = call.signature
            now = window.next_score(clock)
            cutoff = now - call.max_age if call.max_age else 0
            leaving = len(window.scores) + 1 - call.window
            if cutoff:
                leaving = max(leaving, sum(1 for score in window.scores.values() if score <= cutoff))
            gone = list(islice(window.scores.items(), max(0, leaving)))
            cutoff = max(cutoff, gone[-1][1]) if gone else cutoff
            before = window.counts.get(signature, 0)
            left = before - sum(1 for member, _ in gone if member[0] == signature)
            discounted = max(0, window.discounted(signature) - (before - left))
            streak = window.streak_of(call.tool, cutoff)
            seen = window.seen.get(signature)
            if left and call.pace and seen is not None and seen.last and now - seen.last >= call.pace:
                discounted, streak = left, None
            return Tally(
                left - discounted + 1,
                left + 1,
                len(window.scores) - len(gone) + 1,
                streak.failed if streak else 0,
                streak.stagnant if streak else 0,
                window.halted,
                duplicate=False,
                source=self._source,
                degraded=self._source == "local",
            )

    def report(self, report: Report) -> None:
        with self._space.lock:
            clock = self._now()
            window = self._find(report.session, clock)
            member = (report.signature, report.call_id)
            score = window.scores.get(member) if window is not None else None
            if window is None or score is None:
                return
            cutoff = window.next_score(clock) - report.max_age if report.max_age else 0
            known = window.reported.get(member)
            # A call is reported once; only a success after a failure (a retried job) is news.
            if score <= cutoff or (known is not None and (known[0] or not report.ok)):
                return
            window.reported[member] = (report.ok, report.tool)
            changed = bool(report.result) and self._compare(window, report)
            self._extend_streak(window, report, score, cutoff, changed=changed)
            if report.progress and report.ok:
                self._advance(window, report.signature)
            self._keep(window, clock)

    @staticmethod
    def _compare(window: _Window, report: Report) -> bool:
        """Take note of the result; when it differs from the one before, only the latest occurrence still counts."""
        signature = report.signature
        discounted = window.discounted(signature)
        seen = window.seen.get(signature)
        if seen is None:
            seen = window.seen[signature] = _Seen(0, 0)
        changed = bool(seen.result) and seen.result != report.result
        seen.epoch = window.epoch_for(signature)
        seen.discounted = max(discounted, window.counts[signature] - 1) if changed else discounted
        seen.result = report.result
        return changed

    @staticmethod
    def _extend_streak(window: _Window, report: Report, score: int, cutoff: int, *, changed: bool) -> None:
        streak = window.streak_of(report.tool, cutoff)
        if streak is None or changed:
            streak = window.streaks[report.tool] = _Streak(window.epoch)
        streak.latest = max(streak.latest, score)
        streak.failed = 0 if report.ok else streak.failed + 1
        if report.stagnates:
            streak.stagnant = streak.stagnant + 1 if streak.result == report.result else 1
            streak.result = report.result

    @staticmethod
    def _advance(window: _Window, owner: str) -> None:
        if owner != window.epoch_by:
            window.epoch_before = window.epoch
            window.epoch_by = owner
        window.epoch += 1

    def progress(self, session: str, owner: str, token: str) -> None:
        with self._space.lock:
            clock = self._now()
            window = self._open(session, clock)
            # The same note sent again, after a lost reply, is one note.
            if window.epoch_token == token:
                return
            window.epoch_token = token
            self._advance(window, owner)
            self._keep(window, clock)

    def halt(self, session: str, reason: str) -> None:
        with self._space.lock:
            clock = self._now()
            window = self._open(session, clock)
            window.halted = reason
            self._keep(window, clock)

    def resume(self, session: str) -> None:
        with self._space.lock:
            clock = self._now()
            window = self._find(session, clock)
            if window is not None:
                window.halted = None
                self._keep(window, clock)

    def reset(self, session: str) -> None:
        with self._space.lock:
            self._space.windows.pop((self._namespace, session), None)

    def contents(self, session: str) -> Contents:
        with self._space.lock:
            clock = self._now()
            window = self._find(session, clock)
            ttl = (window.expires - clock) // 1000 if window is not None else None
            window = window or _Window()
            streaks = {tool: streak for tool in window.streaks if (streak := window.streak_of(tool, 0))}
            return Contents(
                entries=[Entry(score, *member, member in window.reported) for member, score in window.scores.items()],
                repeats={s: total - window.discounted(s) for s, total in window.counts.items()},
                streaks={tool: Streak(run.failed, run.stagnant, run.latest) for tool, run in streaks.items()},
                texts=dict(window.texts),
                halted=window.halted,
                now=clock,
                ttl=ttl,
                degraded=self._source == "local",
            )

    def sessions(self) -> Iterator[str]:
        with self._space.lock:
            clock = self._now()
            mine = [(key, w) for key, w in self._space.windows.items() if key[0] == self._namespace]
            return iter([decode(key[1]) for key, window in mine if window.expires > clock])

    def clear(self) -> None:
        """Forget every session."""
        with self._space.lock:
            self._space.windows.clear()

    def close(self) -> None:
        """Nothing to close: a shared space lives on for the other guards of its name."""

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)

    def _find(self, session: str, clock: int) -> _Window | None:
        window = self._space.windows.get((self._namespace, session))
        if window is not None and window.expires <= clock:
            del self._space.windows[self._namespace, session]
            return None
        return window

    def _open(self, session: str, clock: int) -> _Window:
        windows = self._space.windows
        key = self._namespace, session
        window = windows.get(key)
        if window is None or window.expires <= clock:
            window = windows[key] = _Window()
            if len(windows) > MAX_SESSIONS:
                windows.popitem(last=False)
        windows.move_to_end(key)
        return window

    def _keep(self, window: _Window, clock: int) -> None:
        window.expires = clock + (self._ttl if window.halted is None else max(self._ttl, HALT_MS)) * 1000


class AsyncMemoryStore:
    """The same store behind awaitable methods; nothing in it waits."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def record(self, call: Call) -> Tally:
        return self.store.record(call)

    async def record_many(self, calls: list[Call]) -> list[Tally]:
        return self.store.record_many(calls)

    async def peek(self, call: Call) -> Tally:
        return self.store.peek(call)

    async def report(self, report: Report) -> None:
        self.store.report(report)

    async def progress(self, session: str, owner: str, token: str) -> None:
        self.store.progress(session, owner, token)

    async def halt(self, session: str, reason: str) -> None:
        self.store.halt(session, reason)

    async def resume(self, session: str) -> None:
        self.store.resume(session)

    async def reset(self, session: str) -> None:
        self.store.reset(session)

    async def contents(self, session: str) -> Contents:
        return self.store.contents(session)

    async def sessions(self) -> AsyncIterator[str]:
        for session in self.store.sessions():
            yield session

    async def close(self) -> None:
        self.store.close()

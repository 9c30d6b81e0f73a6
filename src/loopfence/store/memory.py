"""Windows in this process: the embedded default, the outage fallback, and what Redis is held against."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any

from loopfence.store.keys import decode
from loopfence.store.tally import Call, Contents, Entry, Report, Source, Streak, Tally, new_tuple
from loopfence.store.window import Window

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from loopfence.store.tally import Step

MAX_SESSIONS = 10_000
NO_CUTOFF = -1
"""Before every score: a caller's clock may stand at 0."""
HALT_MS = 86_400_000
"""A halted session is kept at least this long, so that the halt and what led to it can be seen."""


class Space:
    """Sessions that guards of one process share; at most 10,000, the longest untouched out first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.windows: OrderedDict[tuple[str, str], Window] = OrderedDict()
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
        self._ttl, self._halt_ttl = ttl * 1000, max(ttl, HALT_MS) * 1000
        self._clock = clock
        self._source = source

    def record(self, call: Call) -> Tally:
        if call.bounds.exempt:
            return self.peek(call)
        session, signature, call_id, bounds, text = call
        with self._space.lock:
            clock = self._now()
            window = self._open(session, clock)
            now = window.next_score(clock)
            if bounds.max_age:
                window.drop_until(now - bounds.max_age)
            member = (signature, call_id)
            duplicate = member in window.scores
            if not duplicate:
                window.append(member, now)
                while len(window.scores) > bounds.window:
                    window.drop_oldest()
                if bounds.pace or window.seen or window.epoch:
                    window.discount(call, now)
                if text is not None:
                    window.texts[signature] = text
            total = repeats = window.counts[signature]
            if window.epoch or window.seen:
                repeats = max(1, total - window.discounted(signature))
            halted = window.halted
            if bounds.stop and repeats >= bounds.stop and halted is None:
                window.halted = bounds.halt_reason
                self._keep(window, clock)
            # No cutoff: what is too old has just been dropped.
            streak = window.streak_of(bounds.tool, NO_CUTOFF) if window.streaks else None
            failed, stagnant = (streak.failed, streak.stagnant) if streak else (0, 0)
            size, source = len(window.scores), self._source
        degraded = source == "local"
        return new_tuple(Tally, (repeats, total, size, failed, stagnant, halted, duplicate, source, degraded, False))

    def run(self, steps: Sequence[Step]) -> list[Any]:
        tallies: list[Tally | None] = []
        for step in steps:
            if isinstance(step, Call):
                tallies.append(self.record(step))
            else:
                self.report(step)
                tallies.append(None)
        return tallies

    def peek(self, call: Call) -> Tally:
        with self._space.lock:
            clock = self._now()
            window = self._find(call.session, clock) or Window()
            signature, bounds = call.signature, call.bounds
            now = window.next_score(clock)
            cutoff = now - bounds.max_age if bounds.max_age else NO_CUTOFF
            leaving = len(window.scores) + 1 - bounds.window
            if bounds.max_age:
                leaving = max(leaving, sum(1 for score in window.scores.values() if score <= cutoff))
            gone = list(islice(window.scores.items(), max(0, leaving)))
            cutoff = max(cutoff, gone[-1][1]) if gone else cutoff
            before = window.counts.get(signature, 0)
            left = before - sum(1 for member, _ in gone if member[0] == signature)
            discounted = max(0, window.discounted(signature) - (before - left))
            streak = window.streak_of(bounds.tool, cutoff)
            seen = window.seen.get(signature)
            if left and bounds.pace and seen is not None and seen.last and now - seen.last >= bounds.pace:
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
        if report.exempt:
            self.progress(report.session, report.signature, report.member)
            return
        with self._space.lock:
            clock = self._now()
            window = self._find(report.session, clock)
            member = (report.signature, report.call_id)
            score = window.scores.get(member) if window is not None else None
            if window is None or score is None:
                return
            cutoff = window.next_score(clock) - report.max_age if report.max_age else NO_CUTOFF
            known = window.reported.get(member)
            # A call is reported once; only a success after a failure (a retried job) is news.
            if score <= cutoff or (known is not None and (known[0] or not report.ok)):
                return
            window.reported[member] = (report.ok, report.tool)
            changed = bool(report.result) and window.compare(report)
            window.extend_streak(report, score, cutoff, changed=changed)
            if report.progress and report.ok:
                window.advance(report.signature)
            self._keep(window, clock)

    def progress(self, session: str, owner: str, token: str) -> None:
        with self._space.lock:
            clock = self._now()
            known = self._find(session, clock)
            # The same note sent again, after a lost reply, is one note.
            if known is not None and known.epoch_token == token:
                return
            window = self._open(session, clock)
            window.epoch_token = token
            window.advance(owner)

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
            window = window or Window()
            streaks = {tool: streak for tool in window.streaks if (streak := window.streak_of(tool, NO_CUTOFF))}
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

    def _find(self, session: str, clock: int) -> Window | None:
        window = self._space.windows.get((self._namespace, session))
        if window is not None and window.expires <= clock:
            del self._space.windows[self._namespace, session]
            return None
        return window

    def _open(self, session: str, clock: int) -> Window:
        """The session's window, a new one where there is none; it is kept from now on."""
        windows = self._space.windows
        key = self._namespace, session
        window = windows.get(key)
        if window is None or window.expires <= clock:
            window = windows[key] = Window()
            if len(windows) > MAX_SESSIONS:
                windows.popitem(last=False)
        windows.move_to_end(key)
        self._keep(window, clock)
        return window

    def _keep(self, window: Window, clock: int) -> None:
        """From now on a window has its whole TTL, that of a halted one where it is halted."""
        window.expires = clock + (self._ttl if window.halted is None else self._halt_ttl)


class AsyncMemoryStore:
    """The same store behind awaitable methods; nothing in it waits."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def record(self, call: Call) -> Tally:
        return self.store.record(call)

    async def run(self, steps: Sequence[Step]) -> list[Any]:
        return self.store.run(steps)

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

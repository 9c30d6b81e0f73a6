"""What happens while Redis is out: the circuit breaker, and the answers of each outage policy. No I/O."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from typing import TYPE_CHECKING

from loopfence.errors import CorruptSessionError, StoreError, StoreUnavailableError
from loopfence.store.tally import Call, OnOutage, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence.store.memory import MemoryStore
    from loopfence.store.tally import Step

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
MOST_COMPLAINTS = 1000
"""About corrupt sessions: so many are remembered as logged."""

log = logging.getLogger("loopfence")


class _Lock:
    """One lock for all breakers, touched only while something fails; a fork leaves the child an open one."""

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = threading.Lock()


_breakers = _Lock()


class Outage:
    """Decides per call whether to ask Redis, and answers in its place. Thread-safe.

    A call that failed opens the breaker: Redis is left alone for 1 s, doubling to 30 s, and one probe at a time is
    let through when a pause is over. A Redis that fails again soon after it came back is paused for longer, so that
    a flapping one neither slows every other call nor floods the log. A corrupt session fails alone: its calls follow
    the policy, the breaker stays closed.
    """

    def __init__(
        self,
        on_outage: OnOutage,
        local: MemoryStore,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),  # noqa: S311 - spreads the probes of a fleet
    ) -> None:
        self.on_outage = on_outage
        self.local = local
        self._clock = clock
        self._jitter = jitter
        self._round = 1
        """Goes up with each opening and each probe: a failure of an earlier round is no news."""
        self._open = False
        self._pause = 0.0
        self._until = 0.0
        self._closed_at = 0.0
        self._complaints: set[str] = set()

    def admit(self) -> int:
        """The round of this call, to be told with its outcome; 0 = leave Redis alone."""
        if not self._open:
            return self._round
        with _breakers.lock:
            now = self._clock()
            if self._open and now < self._until:
                return 0
            if self._open:
                # This call is the probe. Where its outcome is never told (a cancelled task), the next pause ends too.
                self._until = now + self._pause
                self._round += 1
            return self._round

    def succeeded(self) -> None:
        """Redis answered: the breaker closes, and what was counted here in its place is forgotten."""
        if not self._open:
            return
        with _breakers.lock:
            closed, self._open = self._open, False
            self._closed_at = self._clock()
        if closed:
            self.local.clear()
            log.warning("loopfence: Redis answers again")

    def failed(self, error: StoreError, admitted: int) -> None:
        """The call that was admitted in this round failed; raises its error where the policy is to raise."""
        if isinstance(error, CorruptSessionError):
            self.succeeded()  # it is one session that is ill: Redis itself answers
            if self._is_new(str(error)):
                log.error("loopfence: %s; until then on_outage=%r decides on it", error, self.on_outage)
        elif self._trip(admitted):
            log.error("loopfence: %s; on_outage=%r decides until Redis answers again", error, self.on_outage)
        if self.on_outage == "raise":
            raise error

    def _is_new(self, complaint: str) -> bool:
        """Whether this complaint about a session was not logged yet."""
        if complaint in self._complaints:
            return False
        if len(self._complaints) >= MOST_COMPLAINTS:
            self._complaints.clear()
        self._complaints.add(complaint)
        return True

    def _trip(self, admitted: int) -> bool:
        """Open the breaker, or keep it open after a failed probe; whether it was closed."""
        with _breakers.lock:
            if admitted != self._round:
                return False
            now = self._clock()
            relapsed = self._open or now - self._closed_at < self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE) if relapsed else FIRST_PAUSE
            self._until = now + self._pause * self._jitter()
            self._round += 1
            opened, self._open = not self._open, True
            return opened

    def skipped(self) -> None:
        """The breaker kept a call from Redis; raises where the policy is to raise."""
        if self.on_outage == "raise":
            raise StoreUnavailableError("Redis is out; it is asked again in a moment")

    def record(self, call: Call) -> Tally:
        """The answer to a call without Redis."""
        return self._tally(call, self.local.record)

    def peek(self, call: Call) -> Tally:
        """What `record` would answer."""
        return self._tally(call, self.local.peek)

    def step(self, step: Step) -> Tally | None:
        """The answer without Redis to one step of many."""
        if isinstance(step, Call):
            return self.record(step)
        self.local.report(step)
        return None

    def _tally(self, call: Call, local: Callable[[Call], Tally]) -> Tally:
        if self.on_outage == "local":
            return local(call)
        return Tally(1, 1, 1, source="local", degraded=True, refused=self.on_outage == "block")

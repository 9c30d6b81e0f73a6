"""What happens while Redis is out: the circuit breaker, and the answers of each outage policy. No I/O."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import TYPE_CHECKING, Literal

from loopfence.errors import StoreError, StoreUnavailableError
from loopfence.store.tally import Call, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence.store.memory import MemoryStore

OnOutage = Literal["local", "allow", "block", "raise"]
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0

log = logging.getLogger("loopfence")


class Outage:
    """Decides per call whether to ask Redis, and answers in its place. Thread-safe.

    A call that failed opens the breaker: Redis is then left alone for 1 s, doubling to 30 s, and one probe at a
    time is let through when the pause is over. An error that Redis answered (a permission, a corrupt key) does not
    open it: the next call may well succeed.
    """

    def __init__(self, on_outage: OnOutage, local: MemoryStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.on_outage = on_outage
        self.local = local
        self._clock = clock
        self._lock = threading.Lock()
        self._pause = 0.0
        self._until = 0.0
        self._failing = False

    def admit(self) -> bool:
        """Whether this call may go to Redis."""
        if not self._pause:
            return True
        with self._lock:
            now = self._clock()
            if now < self._until:
                return False
            # This call is the probe; the others wait for what it finds.
            self._until = now + self._pause
            return True

    def succeeded(self) -> None:
        """Redis answered."""
        if self._failing:
            with self._lock:
                if self._failing:
                    log.warning("loopfence: Redis answers again")
                self._failing, self._pause = False, 0.0

    def failed(self, error: StoreError) -> None:
        """Redis did not answer, or answered with an error; raises it where the policy is to raise."""
        with self._lock:
            if isinstance(error, StoreUnavailableError):
                self._pause = min(self._pause * 2, LONGEST_PAUSE) or FIRST_PAUSE
                self._until = self._clock() + self._pause * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
            if not self._failing:
                log.error("loopfence: %s; on_outage=%r decides until Redis answers again", error, self.on_outage)
            self._failing = True
        if self.on_outage == "raise":
            raise error

    def skipped(self) -> None:
        """The breaker kept a call from Redis; raises where the policy is to raise."""
        if self.on_outage == "raise":
            raise StoreUnavailableError("Redis is out; it is asked again in a moment")

    def tally(self, call: Call, local: Callable[[Call], Tally]) -> Tally:
        """The answer to `call` without Redis."""
        if self.on_outage == "local":
            return local(call)
        return Tally(1, 1, 1, source="local", degraded=True, refused=self.on_outage == "block")

"""When a failed step is sent again: a lost connection soon and a few times, a slot on its way until the time is up.

Sending again is safe: every step carries the id that makes it count once.
"""

from __future__ import annotations

import time

import redis.exceptions

from loopfence.store.faults import UNAVAILABLE, code_of

MOST_TRIES = 6
"""For a lost connection. What nobody listens for will not come for the asking."""
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.04
_PASSING = ("TRYAGAIN", "CLUSTERDOWN")
_FINAL = (
    redis.exceptions.TimeoutError,
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthorizationError,
    redis.exceptions.BusyLoadingError,
    TimeoutError,
)


class Tries:
    """The tries of one step, which must be over at `until` by the monotonic clock."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._failed = 0

    def pause(self, error: Exception) -> float:
        """Seconds to wait before the step is sent again; raises the error itself where that is no use."""
        self._failed += 1
        passing = code_of(error) in _PASSING
        lost = isinstance(error, UNAVAILABLE) and not isinstance(error, _FINAL) and self._failed < MOST_TRIES
        pause = min(FIRST_PAUSE * 2 ** (self._failed - 2), LONGEST_PAUSE) if self._failed > 1 else 0.0
        if not (passing or lost) or time.monotonic() + pause >= self._until:
            raise error
        return pause

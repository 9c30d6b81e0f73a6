"""Ids for calls that were given none: short, and unique in every process, forks included."""

from __future__ import annotations

import itertools
import os
from binascii import b2a_base64

_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class _Ids:
    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            # A forked child must not go on with its parent's numbers.
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._prefix = b2a_base64(os.urandom(6), newline=False).translate(_URL_SAFE).decode()
        self._numbers = itertools.count()

    def new(self) -> str:
        """48 random bits of the process, then a number: at most 16 characters in the first 4 billion calls."""
        return f"{self._prefix}{next(self._numbers):x}"


new_id = _Ids().new


def new_session() -> str:
    """An id for a session that was given none: 128 random bits."""
    return os.urandom(16).hex()

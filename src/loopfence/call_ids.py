"""Ids for calls that were given none: nine characters, unique in every process, forks included."""

from __future__ import annotations

import itertools
import os
from binascii import b2a_base64

# No dash: `--call-id -abc` would be two options.
_SAFE = bytes.maketrans(b"+/", b"._")
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]


class _Ids:
    """42 random bits, then the place among the 4,096 ids that share them. Short: Redis stores every one."""

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            # A forked child must not go on with its parent's ids.
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        prefix = b2a_base64(os.urandom(6), newline=False).translate(_SAFE).decode()[:7]
        self._block = prefix, itertools.count()

    def new(self) -> str:
        while True:
            # Read once: another thread may renew the block in the middle.
            prefix, numbers = self._block
            number = next(numbers)
            if number < len(_PAIRS):
                return prefix + _PAIRS[number]
            self._renew()


new_id = _Ids().new


def new_session() -> str:
    """An id for a session that was given none: 128 random bits."""
    return os.urandom(16).hex()

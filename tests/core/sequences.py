"""Every sequence of calls over a few signatures."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = "abc"


def every_sequence(length: int) -> Iterator[str]:
    """All of them, in alphabetical order."""
    return map("".join, product(NAMES, repeat=length))


def up_to_renaming(length: int) -> Iterator[str]:
    """All of them but for the names of the signatures: the first is a, the next new one b, then c."""
    return (one for one in every_sequence(length) if sorted(NAMES, key=(one + NAMES).index) == list(NAMES))

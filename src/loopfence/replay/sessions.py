"""Sorts recorded calls by session: drops what was recorded twice, follows many sessions at once, ends them."""

from __future__ import annotations

from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from loopfence.replay.calls import SESSION_FIELDS, Call, Turn

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

OPEN_SESSIONS: Final = 1_000
"""Sessions that are followed at once; beyond it the one that was longest without a call counts as ended."""

_REMEMBERED: Final = 100_000

State = TypeVar("State")


class Follower(Protocol[State]):
    """What is done with the calls of each session."""

    def begin(self, key: dict[str, Any]) -> State:
        """Makes the state of a session; `key` holds the fields that make it up."""

    def take(self, state: State, item: Call | Turn) -> None:
        """Takes the session's next call or turn."""

    def end(self, state: State) -> None:
        """Is told that the session has no more calls."""


class _Recent:
    """A bounded memory of identities: the latest ones, between one and two times _REMEMBERED of them."""

    def __init__(self) -> None:
        self._new: set[Hashable] = set()
        self._old: set[Hashable] = set()

    def before(self, identity: Hashable) -> bool:
        """Whether this identity was met lately; from now on it was."""
        if identity in self._new or identity in self._old:
            return True
        self._new.add(identity)
        if len(self._new) >= _REMEMBERED:
            self._old, self._new = self._new, set()
        return False


def follow(items: Iterable[Call | Turn], follower: Follower[State], fields: Sequence[str] = SESSION_FIELDS) -> int:
    """Hands every call and turn to its session, and returns how many calls were duplicates of others.

    `fields` of a call make up its session. All sessions have ended when this returns.
    """
    # with a second name, as attrgetter makes a tuple of two and more only
    key_of = attrgetter(*fields, "session")
    seen, duplicates = _Recent(), 0
    running: OrderedDict[tuple[Any, ...], State] = OrderedDict()
    last: tuple[Any, ...] | None = None
    state: State | None = None
    for item in items:
        if item.identity is not None and seen.before(item.identity):
            duplicates += isinstance(item, Call)
            continue
        key = key_of(item)
        if state is None or key != last:
            last, state = key, running.get(key)
            if state is None:
                state = running[key] = follower.begin(dict(zip(fields, key, strict=False)))
                if len(running) > OPEN_SESSIONS:
                    follower.end(running.popitem(last=False)[1])
            else:
                running.move_to_end(key)
        follower.take(state, item)
    while running:
        follower.end(running.popitem(last=False)[1])
    return duplicates

"""The classic guard, exhaustively: every sequence of up to 8 calls over 3 signatures is held against a naive list."""

from __future__ import annotations

from itertools import cycle, islice, product
from typing import TYPE_CHECKING

import pytest
from sequences import NAMES, every_sequence, up_to_renaming

from loopfence import LoopDetectedError, LoopGuard, Session
from loopfence.signature import digest
from servers import find_binaries

if TYPE_CHECKING:
    from conftest import StoreUnderTest

LENGTH = 8
# All of them on the newest server; what is slow, or an older version of the same commands, takes shorter ones.
LENGTHS = {binary.name: LENGTH for binary in find_binaries()[-1:]} | {"fakeredis": 5}
BATCH = 100
ARGS = {name: {"q": name} for name in NAMES}


class NaiveGuard:
    """The last `window` calls, in a list."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.calls: list[str] = []

    def record(self, name: str) -> int:
        self.calls = [*self.calls, name][-self.window :]
        return self.calls.count(name)

    def peek(self, name: str) -> int:
        return [*self.calls, name][-self.window :].count(name)


def is_new(sequence: str, step: int) -> bool:
    """Whether no earlier sequence, in alphabetical order, began with the same calls up to this step."""
    return set(sequence[step + 1 :]) <= {"a"}


def raises(session: Session, name: str) -> int | None:
    """The count of the error that recording this call raises, or None."""
    try:
        session.record("search", ARGS[name])
    except LoopDetectedError as error:
        return error.count
    return None


@pytest.mark.parametrize("window", [2, 3, 4, 5])
def test_every_sequence_in_memory_says_what_a_list_says(window: int) -> None:
    # Guards of all thresholds share one session: all are asked about every call, and they take turns in recording it.
    thresholds = range(2, window + 1)
    guards = {one: LoopGuard(f"memory://{__file__}", window=window, threshold=one, session="run") for one in thresholds}
    turns = cycle(guards.items())
    for sequence in every_sequence(LENGTH):
        naive = NaiveGuard(window)
        _, guard = next(turns)
        guard.reset()
        assert guard.is_empty
        for step, name in enumerate(sequence):
            if is_new(sequence, step):
                would = [one.would_raise("search", ARGS[name]) for one in guards.values()]
                assert would == [naive.peek(name) >= threshold for threshold in thresholds]
            threshold, guard = next(turns)
            count = naive.record(name)
            assert raises(guard, name) == (count if count >= threshold else None)
        assert [text for _, text in guard.recent_keys()] == [f'{{"q":"{name}"}}' for name in naive.calls]
        assert guard.is_looping() == any(naive.calls.count(name) >= threshold for name in NAMES)


@pytest.mark.parametrize("window", [2, 3, 4, 5])
def test_every_sequence_up_to_renaming_on_redis_says_what_a_list_says(redis_store: StoreUnderTest, window: int) -> None:
    # Thresholds are judged from the count, wherever it comes from: in memory there are tests of all of them.
    guard = redis_store.guard(window=window, threshold=2)
    texts = {digest(f'{{"q":"{name}"}}'): name for name in NAMES}
    sequences = up_to_renaming(LENGTHS.get(redis_store.name, 6))
    while batch := list(islice(sequences, BATCH)):
        verdicts = iter(guard.record_many([(s, "search", ARGS[name]) for s in batch for name in s]))
        for sequence in batch:
            naive = NaiveGuard(window)
            for name in sequence:
                verdict, count = next(verdicts), naive.record(name)
                assert (verdict.count, verdict.total, verdict.size) == (count, count, len(naive.calls))
                assert verdict.allowed == (count < 2)
            assert [texts[text] for _, text in guard.session(sequence).recent_keys()] == naive.calls


@pytest.mark.parametrize("window", [2, 5])
def test_every_short_sequence_with_resets_and_peeks_says_what_a_list_says(store: StoreUnderTest, window: int) -> None:
    session = store.guard(window=window, threshold=2).session("run")
    for sequence in product("ab-", repeat=3):
        naive = NaiveGuard(window)
        session.reset()
        for name in sequence:
            if name == "-":
                session.reset()
                naive.calls.clear()
            else:
                assert session.peek("search", ARGS[name]).count == naive.peek(name)
                assert session.check("search", ARGS[name]).count == naive.record(name)
            assert (len(session), session.is_empty) == (len(naive.calls), not naive.calls)


def test_recent_keys_are_the_window_oldest_first(store: StoreUnderTest) -> None:
    session = store.guard(window=3, threshold=2, keep_args=True).session("run")
    for tool, args in (("a", None), ("b", {"y": 2, "x": [1]}), ("c", {}), ("b", {"x": [1], "y": 2})):
        session.check(tool, args)
    assert session.recent_keys() == [("b", '{"x":[1],"y":2}'), ("c", "{}"), ("b", '{"x":[1],"y":2}')]


def test_where_no_arguments_are_kept_recent_keys_hold_their_digests(store: StoreUnderTest) -> None:
    session = store.guard(keep_args=False).session("run")
    session.check("search", {"q": "a"})
    assert session.recent_keys() == [("search", digest('{"q":"a"}'))]


def test_no_arguments_are_an_empty_object(store: StoreUnderTest) -> None:
    session = store.guard().session("run")
    assert [session.check("search", args).count for args in (None, {}, {"q": None}, [])] == [1, 2, 1, 1]


def test_a_custom_key_says_what_is_equal(store: StoreUnderTest) -> None:
    guard = store.guard(key=lambda tool, args: ("any", str(args["n"] % 2)), keep_args=True)
    session = guard.session("run")
    assert [session.check(tool, {"n": n}).count for tool, n in (("a", 1), ("b", 3), ("a", 2))] == [1, 2, 1]
    assert session.recent_keys() == [("any", "1"), ("any", "1"), ("any", "0")]


def test_a_guard_carries_the_methods_of_one_session_of_its_own(store: StoreUnderTest) -> None:
    one, another = store.guard(threshold=2), store.guard(threshold=2)
    named = [store.guard(threshold=2, session="the run") for _ in range(2)]
    assert [guard.check("search").count for guard in (one, another, *named)] == [1, 1, 1, 2]
    assert one.id != another.id
    with pytest.raises(LoopDetectedError):
        one.record("search")
    assert (len(one), one.window, one.threshold) == (2, 20, 2)

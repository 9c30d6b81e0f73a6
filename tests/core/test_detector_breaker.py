"""The classic detector (a count window) and breaker (a time window), held against naive lists."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from counting import Clock
from sequences import up_to_renaming

from loopfence import Allow, AsyncLoopBreaker, Break, ConfigError, LoopBreaker, LoopDetector

if TYPE_CHECKING:
    from conftest import StoreUnderTest

SIXTY_FOUR_BITS = 2**64 - 1


def place(store: StoreUnderTest) -> dict[str, Any]:
    """How a detector or breaker finds this store."""
    return {"client": store.client()} if store.name == "fakeredis" else {"url": store.url}


# -- detector: a count window


def trips(detector: LoopDetector, sequence: Any) -> list[bool]:
    return [detector.record("search", fingerprint) for fingerprint in sequence]


def naive_trips(window: int, threshold: int, sequence: Any) -> list[bool]:
    heads = [sequence[: end + 1][-window:] for end in range(len(sequence))]
    return [head.count(head[-1]) >= threshold for head in heads]


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
def test_every_sequence_up_to_renaming_trips_as_a_list_does(window: int) -> None:
    for threshold in range(1, window + 2):
        detector = LoopDetector(window, threshold)
        for sequence in up_to_renaming(8):
            detector.reset()
            assert not detector.is_looping()
            assert trips(detector, sequence) == naive_trips(window, threshold, sequence)
            counts = [sequence[-window:].count(name) for name in "abc"]
            assert detector.is_looping() == (max(counts) >= threshold)


@pytest.mark.parametrize(("window", "threshold"), [(1, 1), (1, 2), (3, 1), (3, 2), (3, 3), (3, 4)])
def test_every_short_sequence_trips_as_a_list_does(store: StoreUnderTest, window: int, threshold: int) -> None:
    with LoopDetector(window, threshold, session="run", **place(store)) as detector:
        for sequence in map("".join, product("ab", repeat=4)):
            detector.reset()
            assert trips(detector, sequence) == naive_trips(window, threshold, sequence)
            counts = [sequence[-window:].count(name) for name in "ab"]
            assert detector.is_looping() == (max(counts) >= threshold)


def test_at_threshold_one_every_call_trips_and_past_the_window_none_does() -> None:
    assert trips(LoopDetector(1, 1), "abab") == [True] * 4
    assert trips(LoopDetector(2, 3), "aaaa") == [False] * 4


def test_the_tool_is_part_of_what_repeats_and_a_fingerprint_is_any_json_value() -> None:
    detector = LoopDetector(9, 2)
    assert not detector.record("search", {"a": 1, "b": [2]})
    assert not detector.record("fetch", {"a": 1, "b": [2]})
    assert detector.record("search", {"b": [2], "a": 1})


def test_detectors_of_one_session_share_its_window(store: StoreUnderTest) -> None:
    one, another = (LoopDetector(4, 2, session="run", **place(store)) for _ in range(2))
    stranger = LoopDetector(4, 2, **place(store))
    assert [detector.record("search", 1) for detector in (one, stranger, another)] == [False, False, True]
    for detector in (one, another, stranger):
        detector.close()


@pytest.mark.parametrize(
    ("window", "threshold", "text"),
    [
        (0, 1, "window must be >= 1 (got 0)"),
        (10_001, 1, "window must be <= 10000 (got 10001)"),
        (2, 0, "threshold must be >= 1 (got 0)"),
        (True, 1, "window must be a whole number (got True)"),
        (2, "3", "threshold must be a whole number (got '3')"),
    ],
)
def test_a_wrong_detector_names_field_value_and_rule(window: Any, threshold: Any, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LoopDetector(window, threshold)
    assert str(caught.value) == text


# -- breaker: a time window


class NaiveBreaker:
    """At most 256 earlier requests of one session, with their times."""

    def __init__(self, window_secs: float, max_repeats: int) -> None:
        self.window_secs, self.max_repeats = window_secs, max_repeats
        self.requests: list[tuple[float, int]] = []

    def check(self, now: float, fingerprint: int) -> Allow | Break:
        young = [(at, one) for at, one in self.requests if now - at < self.window_secs][-256:]
        self.requests = [*young, (now, fingerprint)]
        repeats = [one for _, one in self.requests].count(fingerprint)
        return Break(repeats) if repeats > self.max_repeats else Allow()


@pytest.mark.parametrize("max_repeats", [1, 2, 3])
def test_every_sequence_of_requests_and_waits_breaks_as_a_list_does(max_repeats: int) -> None:
    clock = Clock()
    breaker = LoopBreaker(10, max_repeats, clock=clock)
    for number, sequence in enumerate(product(product((1, 2), (0, 4, 7)), repeat=4)):
        naive = NaiveBreaker(10, max_repeats)
        for fingerprint, waited in sequence:
            clock.now += waited
            assert breaker.check(f"session {number}", fingerprint) == naive.check(clock.now, fingerprint)


def test_a_request_exactly_the_window_old_no_longer_counts() -> None:
    clock = Clock()
    breaker = LoopBreaker(10, 1, clock=clock)
    assert breaker.check("run", 1) == Allow()
    clock.now += 9.999_999
    assert breaker.check("run", 1) == Break(2)
    clock.now += 0.000_001
    assert breaker.check("run", 1) == Break(2)
    clock.now += 10
    assert breaker.check("run", 1) == Allow()


def test_the_request_past_max_repeats_breaks_with_its_number(store: StoreUnderTest) -> None:
    with LoopBreaker(60, 3, **place(store)) as breaker:
        decisions = [breaker.check("run", SIXTY_FOUR_BITS) for _ in range(5)]
        assert decisions == [Allow(), Allow(), Allow(), Break(4), Break(5)]
        assert breaker.check("run", 1) == Allow()
        assert breaker.check("another run", SIXTY_FOUR_BITS) == Allow()
        assert breaker.tracked_sessions() == 2


async def test_the_async_breaker_decides_alike(store: StoreUnderTest) -> None:
    where = {"client": store.async_guard()._settings.client} if store.name == "fakeredis" else {"url": store.url}
    async with AsyncLoopBreaker(60, 2, **where) as breaker:
        assert [await breaker.check("run", 7) for _ in range(4)] == [Allow(), Allow(), Break(3), Break(4)]
        assert await breaker.tracked_sessions() == 1
    if store.name == "fakeredis":
        await where["client"].aclose()


def test_256_earlier_requests_of_a_session_are_looked_at() -> None:
    clock = Clock()
    breaker = LoopBreaker(60, 256, clock=clock)
    decisions = [breaker.check("run", 1) for _ in range(300)]
    assert decisions == [Allow()] * 256 + [Break(257)] * 44
    naive = NaiveBreaker(60, 2)
    narrow = LoopBreaker(60, 2, clock=clock)
    for fingerprint in [1, 1, *range(2, 256), 1, 1]:
        clock.now += 0.001
        assert narrow.check("run", fingerprint) == naive.check(clock.now, fingerprint)


def test_max_repeats_past_256_never_break() -> None:
    breaker = LoopBreaker(60, 257)
    assert {breaker.check("run", 1) for _ in range(300)} == {Allow()}


def test_a_disabled_breaker_records_nothing() -> None:
    for breaker, enabled in ((LoopBreaker(60, 0), False), (LoopBreaker(0, 1), True)):
        assert {breaker.check("run", 1) for _ in range(3)} == {Allow()}
        assert breaker.enabled is enabled
        assert breaker.tracked_sessions() == 0


ENVIRONMENT = [
    ("7", "2", (7, 2)),
    ("0", "0", (0, 0)),
    (None, None, (30, 5)),
    ("", "", (30, 5)),
    (" 7", "2 ", (30, 5)),
    ("+7", "-2", (30, 5)),
    ("7.5", "2e1", (30, 5)),
    ("\N{ARABIC-INDIC DIGIT SEVEN}", "\N{SUPERSCRIPT TWO}", (30, 5)),
    ("seven", "0x2", (30, 5)),
]


@pytest.mark.parametrize(("window", "repeats", "expected"), ENVIRONMENT)
def test_only_plain_digits_of_the_environment_count(
    monkeypatch: pytest.MonkeyPatch, window: str | None, repeats: str | None, expected: tuple[int, int]
) -> None:
    for name, value in (("LOOP_WINDOW_SECS", window), ("LOOP_MAX_REPEATS", repeats)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    breaker = LoopBreaker()
    assert (breaker.window_secs, breaker.max_repeats) == expected
    given = LoopBreaker(3.5, 4)
    assert (given.window_secs, given.max_repeats) == (3.5, 4)


def test_a_session_is_kept_for_at_least_the_window() -> None:
    clock = Clock()
    breaker = LoopBreaker(100, 1, ttl=5, clock=clock)
    breaker.check("run", 1)
    clock.now += 99
    assert breaker.tracked_sessions() == 1
    assert breaker.check("run", 1) == Break(2)
    clock.now += 101
    assert breaker.tracked_sessions() == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"window_secs": -1}, "window_secs must be >= 0 (got -1)"),
        ({"window_secs": float("nan")}, "window_secs must be >= 0 (got nan)"),
        ({"window_secs": "30"}, "window_secs must be a number of seconds (got '30')"),
        ({"max_repeats": -1}, "max_repeats must be >= 0 (got -1)"),
        ({"max_repeats": 2.0}, "max_repeats must be a whole number (got 2.0)"),
    ],
)
def test_a_wrong_breaker_names_field_value_and_rule(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LoopBreaker(**given)
    assert str(caught.value) == text


@pytest.mark.parametrize("fingerprint", [-1, 2**64, True, 1.0, "1", None])
def test_a_fingerprint_is_a_whole_number_of_64_bits(fingerprint: Any) -> None:
    with pytest.raises(ConfigError, match="fingerprint must be a whole number of 64 bits"):
        LoopBreaker(60, 2).check("run", fingerprint)

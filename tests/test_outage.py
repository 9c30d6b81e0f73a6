"""The breaker by itself: when it opens, probes and closes, what it logs, and how it paces a flapping Redis."""

from __future__ import annotations

import logging

import pytest

from loopfence.errors import CorruptSessionError, StoreError, StoreUnavailableError
from loopfence.store.memory import MemoryStore
from loopfence.store.outage import Outage

DOWN = StoreUnavailableError("no answer")


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outage(clock: Clock) -> Outage:
    local = MemoryStore(namespace="n", ttl=1000, source="local")
    return Outage("local", local, clock=clock, jitter=lambda: 1.0)


def fail(outage: Outage) -> None:
    admitted = outage.admit()
    assert admitted
    outage.failed(DOWN, admitted)


def test_a_failure_keeps_calls_from_redis_for_a_second(outage: Outage, clock: Clock) -> None:
    fail(outage)
    assert not outage.admit()
    clock.now += 0.999
    assert not outage.admit()
    clock.now += 0.001
    assert outage.admit()


def test_one_probe_at_a_time(outage: Outage, clock: Clock) -> None:
    fail(outage)
    clock.now += 1
    assert outage.admit()
    assert not outage.admit()


def test_pauses_double_to_half_a_minute(outage: Outage, clock: Clock) -> None:
    pauses = []
    for _ in range(8):
        fail(outage)
        started = clock.now
        while not outage._open or clock.now < outage._until:
            clock.now += 0.5
        pauses.append(clock.now - started)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_probe_whose_end_is_never_told_lets_the_next_one_in(outage: Outage, clock: Clock) -> None:
    fail(outage)
    clock.now += 1
    assert outage.admit()
    clock.now += 1
    assert outage.admit()


def test_many_calls_that_fail_together_count_as_one_failure(outage: Outage, clock: Clock) -> None:
    admitted = [outage.admit() for _ in range(32)]
    for ticket in admitted:
        outage.failed(DOWN, ticket)
    clock.now += 1
    assert outage.admit()


def test_an_answer_closes_it_and_forgets_what_was_counted_here(outage: Outage, clock: Clock) -> None:
    fail(outage)
    outage.local.halt("s", "for now")
    clock.now += 1
    assert outage.admit()
    outage.succeeded()
    assert outage.admit()
    assert list(outage.local.sessions()) == []


def test_an_answer_without_an_outage_forgets_nothing(outage: Outage) -> None:
    outage.local.halt("corrupt session", "for now")
    outage.succeeded()
    assert list(outage.local.sessions()) == ["corrupt session"]


def test_a_redis_that_fails_again_at_once_is_paused_for_longer(outage: Outage, clock: Clock) -> None:
    for pause in (1, 2, 4):
        fail(outage)
        clock.now += pause - 0.01
        assert not outage.admit()
        clock.now += 0.01
        assert outage.admit()
        outage.succeeded()
    clock.now += 4
    fail(outage)
    clock.now += 1
    assert outage.admit(), "it had been well for as long as its last pause"


def test_one_line_when_it_opens_and_one_when_it_closes(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="loopfence")
    for _ in range(3):
        fail(outage)
        clock.now += 30
    assert outage.admit()
    outage.succeeded()
    outage.succeeded()
    assert [record.getMessage() for record in caplog.records] == [
        "loopfence: no answer; on_outage='local' decides until Redis answers again",
        "loopfence: Redis answers again",
    ]


def test_a_corrupt_session_is_logged_once_and_opens_nothing(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("one", "two", "one", "two", "one"):
        outage.failed(CorruptSessionError(f"{name} is corrupt"), outage.admit())
    assert [record.getMessage() for record in caplog.records] == [
        "loopfence: one is corrupt; until then on_outage='local' decides on it",
        "loopfence: two is corrupt; until then on_outage='local' decides on it",
    ]
    assert outage.admit()


def test_a_corrupt_session_that_is_the_probe_closes_it(outage: Outage, clock: Clock) -> None:
    fail(outage)
    clock.now += 1
    outage.failed(CorruptSessionError("one is corrupt"), outage.admit())
    assert outage.admit()
    assert outage.admit()


def test_a_refusal_opens_it_too(outage: Outage) -> None:
    outage.failed(StoreError("no permission"), outage.admit())
    assert not outage.admit()


@pytest.mark.parametrize("error", [DOWN, StoreError("refused"), CorruptSessionError("corrupt")])
def test_raise_raises_the_error_itself(error: StoreError, clock: Clock) -> None:
    outage = Outage("raise", MemoryStore(namespace="n", ttl=1000), clock=clock)
    with pytest.raises(type(error), match=str(error)):
        outage.failed(error, outage.admit())


def test_raise_raises_while_redis_is_left_alone(clock: Clock) -> None:
    outage = Outage("raise", MemoryStore(namespace="n", ttl=1000), clock=clock)
    with pytest.raises(StoreUnavailableError):
        outage.skipped()

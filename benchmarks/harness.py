"""Measures two things in turns and keeps their ratio, so that a noisy machine hits both alike."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


@dataclass(frozen=True)
class Row:
    """One line of the table and of the JSON file."""

    name: str
    value: float
    unit: str
    against: str
    """What it is compared with, and that thing's own figure."""
    ratio: float | None
    goal: str
    goal_met: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def row(name: str, value: float, unit: str, against: str, other: float | None, goal: str) -> Row:
    """A row whose ratio is value / other (or the value itself) held against a goal such as `<= 1.0`."""
    ratio = None if other is None else value / other
    sign, bound = goal.split(" ")
    measured = value if ratio is None else ratio
    met = {"<=": measured <= float(bound), "<": measured < float(bound), ">=": measured >= float(bound)}[sign]
    shown = against if other is None else f"{against} ({other:,.4g} {unit})"
    return Row(name, value, unit, shown, ratio, goal, met)


def per_call(work: Callable[[int], object], calls: int, first: int = 0) -> float:
    """µs for one call of `work(index)`."""
    start = time.perf_counter()
    for index in range(first, first + calls):
        work(index)
    return (time.perf_counter() - start) / calls * 1e6


async def per_await(work: Callable[[int], Awaitable[object]], calls: int, first: int = 0) -> float:
    """µs for one awaited call of `work(index)`."""
    start = time.perf_counter()
    for index in range(first, first + calls):
        await work(index)
    return (time.perf_counter() - start) / calls * 1e6


def by_turns(works: Sequence[Callable[[int], object]], turns: int, calls: int) -> list[float]:
    """µs for one call of each work: the median of many turns, in each of which every work makes `calls` calls."""
    return _medians([[per_call(work, calls, turn * calls) for work in works] for turn in range(turns)])


async def by_turns_awaited(works: Sequence[Callable[[int], Awaitable[object]]], turns: int, calls: int) -> list[float]:
    """The same for what is awaited."""
    return _medians([[await per_await(work, calls, turn * calls) for work in works] for turn in range(turns)])


def _medians(rounds: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def in_turns(measures: Sequence[Callable[[], float]], repeats: int) -> list[float]:
    """The median of each measure, all of them taken in turns after one round that does not count."""
    return _medians([[measure() for measure in measures] for _ in range(repeats + 1)][1:])

"""Types that have a canonical form, each with a twist of its own."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import typing

import pydantic


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)
    DAY = dt.date(2026, 1, 2)


class Level(enum.IntEnum):
    HIGH = 3


class Name(str, enum.Enum):  # noqa: UP042 - the mixture is what is tested
    SEARCH = "search"


class Both(dict, enum.Enum):
    """A dict that is empty, and an enum whose value is not."""

    A = {"a": 1}  # noqa: RUF012 - an enum's member

    def __new__(cls, value):
        member = dict.__new__(cls)
        member._value_ = value
        return member

    def __init__(self, value):
        pass


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Row(typing.NamedTuple):
    x: int
    y: str


class Liar(dict):
    """A dict that tells every Python caller that it is empty."""

    def __iter__(self):
        return iter(())

    def keys(self):
        return []

    def items(self):
        return []

    def __len__(self):
        return 0


@dataclasses.dataclass
class Point:
    y: object
    _x: object = None


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    a: object


class Query(pydantic.BaseModel):
    text: str
    limit: typing.Any = None


class Where(pydantic.BaseModel):
    url: pydantic.HttpUrl


class Tags(pydantic.RootModel[list[str]]):
    pass


def nested(value, levels):
    for _ in range(levels):
        value = [value]
    return value

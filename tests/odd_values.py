"""Values that have no canonical form, hostile ones among them, each with the text of its ArgsError."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from unittest import mock

import orjson
import pydantic

from value_types import Colour, Level, Point, Query


class Opaque:
    """Only a memory address tells two of these apart."""


class Raising:
    @property
    def __class__(self):
        raise RuntimeError

    def __getattribute__(self, name):
        raise RuntimeError

    def __eq__(self, other):
        raise RuntimeError

    def __hash__(self):
        return 1

    def __iter__(self):
        raise RuntimeError

    def __repr__(self):
        raise RuntimeError


class BadType(type):
    def __hash__(cls):
        raise RuntimeError

    def __eq__(cls, other):
        raise RuntimeError

    def __getattr__(cls, name):
        raise RuntimeError

    def __instancecheck__(cls, instance):
        raise RuntimeError

    @property
    def __name__(cls):
        raise RuntimeError


class OfBadType(metaclass=BadType):
    pass


class BadModel:
    def model_dump(self, mode):
        raise ValueError(mode)


class EndlessModel:
    def model_dump(self, mode):
        return EndlessModel()


class EndlessTree:
    def model_dump(self, mode):
        return {"again": [EndlessTree(), EndlessTree()]}


class SelfModel:
    def model_dump(self, mode):
        return self


@dataclasses.dataclass
class Bare:
    """Its field may be deleted, and then reading it raises."""

    gone: int = dataclasses.field(default_factory=int)


def bare():
    value = Bare()
    del value.gone
    return value


class BadEnum(enum.Enum):
    A = 1

    @enum.property
    def value(self):
        raise RuntimeError


def generator():
    yield 1


REFUSED = [
    (object(), "args: object has no canonical JSON"),
    ({"filters": [1, 2, {"when": Opaque()}]}, "args.filters[2].when: Opaque has no canonical JSON"),
    ({"a b": {"": (1, Opaque())}}, 'args["a b"][""][1]: Opaque has no canonical JSON'),
    ({"\ud800\n": Opaque()}, 'args["\\ud800\\n"]: Opaque has no canonical JSON'),
    ({"s": {Opaque()}}, "args.s[*]: Opaque has no canonical JSON"),
    ({1: {Level.HIGH: Opaque()}}, 'args["1"]["3"]: Opaque has no canonical JSON'),
    (Point(1, [Opaque()]), "args._x[0]: Opaque has no canonical JSON"),
    (Query(text="t", limit=Opaque()), "args.limit: Opaque has no canonical JSON"),
    (Opaque, "args: type has no canonical JSON"),
    (Point, "args: type has no canonical JSON"),
    (Query, "args: ModelMetaclass has no canonical JSON"),
    (len, "args: builtin_function_or_method has no canonical JSON"),
    (1j, "args: complex has no canonical JSON"),
    (range(3), "args: range has no canonical JSON"),
    (memoryview(b"a"), "args: memoryview has no canonical JSON"),
    ({}.keys(), "args: dict_keys has no canonical JSON"),
    (generator(), "args: generator has no canonical JSON"),
    (iter([1]), "args: list_iterator has no canonical JSON"),
    (mock.MagicMock(), "args: MagicMock has no canonical JSON"),
    (mock.Mock(spec=Query), "args: Mock has no canonical JSON"),
    (Raising(), "args: Raising has no canonical JSON"),
    ([Raising(), None], "args[0]: Raising has no canonical JSON"),
    (OfBadType(), "args: OfBadType has no canonical JSON"),
    ([None, OfBadType()], "args[1]: OfBadType has no canonical JSON"),
    (BadModel(), "args: BadModel has no canonical JSON"),
    (BadEnum.A, "args: BadEnum has no canonical JSON"),
    ({"a": [None, BadEnum.A]}, "args.a[1]: BadEnum has no canonical JSON"),
    (object.__new__(uuid.UUID), "args: UUID has no canonical JSON"),
    (bare(), "args: Bare has no canonical JSON"),
    (orjson.Fragment(b"\xff"), "args: Fragment has no canonical JSON"),
    (pydantic.SecretStr("s"), "args: SecretStr has no canonical JSON"),
    ({"a": {(1, 2): 3}}, "args.a: a key of type tuple has no canonical JSON"),
    ({Opaque(): 3}, "args: a key of type Opaque has no canonical JSON"),
    ({Raising(): 3}, "args: a key of type Raising has no canonical JSON"),
    ({Colour.PAIR: 3}, "args: a key of type Colour has no canonical JSON"),
    ({"a": {1: 1, "1": 2}}, 'args.a: two keys are both "1" in JSON'),
    ({None: 1, "null": 1}, 'args: two keys are both "null" in JSON'),
    ([10**4300], "args[0]: the integer has too many digits for canonical JSON"),
    ({10**4300: 1}, "args: a key of type int has no canonical JSON"),
    (EndlessModel(), "args: more than 1000 levels have no canonical JSON"),
    (SelfModel(), "args: more than 1000 levels have no canonical JSON"),
]

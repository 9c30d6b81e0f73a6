"""Canonical JSON: one form for one value, whatever way it took, and an ArgsError with a path for all else."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import pickle
import random
import re
import time
import typing
import uuid
from unittest import mock

import orjson
import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loopfence import canonical
from loopfence.canonical import MAX_DEPTH, MAX_VALUES, canonical_json
from loopfence.errors import ArgsError


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)
    DAY = dt.date(2026, 1, 2)


class Level(enum.IntEnum):
    HIGH = 3


class Name(str, enum.Enum):  # noqa: UP042 - the mixture is what is tested
    SEARCH = "search"


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


PLAIN_FORMS = [
    (None, "null"),
    (True, "true"),
    (False, "false"),
    (0, "0"),
    (-1, "-1"),
    (2**63 - 1, "9223372036854775807"),
    (2**64 - 1, "18446744073709551615"),
    (-(2**63), "-9223372036854775808"),
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (1.0, "1.0"),
    (0.1, "0.1"),
    (1e15, "1000000000000000.0"),
    (1e16, "1e+16"),
    (1.5e300, "1.5e+300"),
    (1e-4, "0.0001"),
    (1e-5, "0.00001"),
    (1e-7, "1e-7"),
    (5e-324, "5e-324"),
    ("", '""'),
    ("é", '"é"'),
    ("e\u0301", '"e\u0301"'),
    ("漢😀\u2028\x7f", '"漢😀\u2028\x7f"'),
    ('"\\/\b\f\n\r\t\x00\x1f', '"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f"'),
    ([], "[]"),
    ({}, "{}"),
    ([None, [1], {"a": None}], '[null,[1],{"a":null}]'),
    ({"b": 1, "a": 2, "B": 3, "": 4, "é": 5, "z": 6}, '{"":4,"B":3,"a":2,"b":1,"z":6,"é":5}'),
    ({"\uffff": 1, "😀": 2}, '{"\uffff":1,"😀":2}'),  # by code point: UTF-16 would turn them round
]

REFUSED_BY_ORJSON = [
    (2**64, "18446744073709551616"),
    (-(2**63) - 1, "-9223372036854775809"),
    (2**80, "1208925819614629174706176"),
    (float("1e400"), "Infinity"),
    (-math.inf, "-Infinity"),
    (math.nan, "NaN"),
    (-math.nan, "NaN"),
    ("\ud800", '"\\ud800"'),
    ('a"\udfffé\n', '"a\\"\\udfffé\\n"'),
    ("\ud83d\ude00", '"\\ud83d\\ude00"'),  # two lone halves are not the one sign that they would make
    ({"\ud800": 1, "\ue000": 2, "a": 3}, '{"a":3,"\\ud800":1,"\ue000":2}'),
    ([None, math.nan, "null"], '[null,NaN,"null"]'),
    ({1: "a"}, '{"1":"a"}'),
    (
        {None: 1, True: 2, 2.5: 3, math.inf: 4, 2**70: 5},
        '{"1180591620717411303424":5,"2.5":3,"Infinity":4,"null":1,"true":2}',
    ),
    ({10: 1, 9: 2}, '{"10":1,"9":2}'),
    ({Colour.RED: 1}, '{"red":1}'),
    ({Level.HIGH: 1}, '{"3":1}'),
    ({Text("t"): 1}, '{"t":1}'),
    ({dt.date(2026, 1, 2): 1}, '{"2026-01-02":1}'),
    ({uuid.UUID(int=1): 1}, '{"00000000-0000-0000-0000-000000000001":1}'),
    ({3, 20, 1}, "[1,20,3]"),
    (frozenset({"b", "a", 1}), '["a","b",1]'),
    ({frozenset({2, 1}), frozenset()}, "[[1,2],[]]"),
    (set(), "[]"),
]

PYTHON_FORMS = [
    ((1, (2,)), "[1,[2]]"),
    (Row(1, "a"), '[1,"a"]'),
    (Text("t"), '"t"'),
    (Whole(7), "7"),
    (Real(1.5), "1.5"),
    (Real(math.nan), "NaN"),
    (Liar(b=1, a=2), '{"a":2,"b":1}'),
    (collections.OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
    (collections.defaultdict(list, b=[1]), '{"b":[1]}'),
    (Colour.RED, '"red"'),
    (Colour.PAIR, "[1,2]"),
    (Colour.DAY, '"2026-01-02"'),
    (Level.HIGH, "3"),
    (Name.SEARCH, '"search"'),
    (Point(1, 2), '{"_x":2,"y":1}'),
    (Point(Point({2, 1}), math.nan), '{"_x":NaN,"y":{"_x":null,"y":[1,2]}}'),
    (Slotted("a"), '{"a":"a"}'),
    (Query(text="t"), '{"limit":null,"text":"t"}'),
    (Query(text="t", limit=math.nan), '{"limit":NaN,"text":"t"}'),
    (Query(text="t", limit={1: Point({"b"})}), '{"limit":{"1":{"_x":null,"y":["b"]}},"text":"t"}'),
    (Tags(["a"]), '["a"]'),
    (Where(url="http://a.example/b"), '{"url":"http://a.example/b"}'),
    (dt.date(2026, 1, 2), '"2026-01-02"'),
    (dt.datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05"'),  # noqa: DTZ001
    (dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC), '"2026-01-02T03:04:05.000006+00:00"'),
    (dt.time(3, 4), '"03:04:00"'),
    (dt.timedelta(days=1, seconds=2), '"1 day, 0:00:02"'),
    (uuid.UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
    (pathlib.PurePosixPath("/a/b"), '"/a/b"'),
    (decimal.Decimal("1.50"), '"1.50"'),
    (decimal.Decimal("1E+2"), '"1E+2"'),
    (decimal.Decimal("NaN"), '"NAN"'),
    (decimal.Decimal("sNaN"), '"SNAN"'),
    (b"", '"bytes:2d06800538d394c2"'),
    (b"abc", '"bytes:78af5f94892f3950"'),
    (bytearray(b"abc"), '"bytes:78af5f94892f3950"'),
]

FORMS = PLAIN_FORMS + REFUSED_BY_ORJSON + PYTHON_FORMS


@pytest.mark.parametrize(("value", "form"), FORMS)
def test_the_form(value, form):
    assert canonical_json(value) == form


@pytest.mark.parametrize(("value", "form"), FORMS)
def test_the_form_is_the_same_beside_what_orjson_refuses(value, form):
    assert canonical_json({"a": value, "b": 2**80}) == f'{{"a":{form},"b":1208925819614629174706176}}'


@pytest.mark.parametrize(("value", "form"), FORMS)
def test_the_form_is_the_same_below_what_orjson_can_nest(value, form):
    assert canonical_json(nested(value, 300)) == "[" * 300 + form + "]" * 300


def nested(value, levels):
    for _ in range(levels):
        value = [value]
    return value


def test_forms_of_different_values_differ():
    table = [form for _, form in PLAIN_FORMS] + [form for value, form in REFUSED_BY_ORJSON[:11]]
    table.remove("NaN")  # which a NaN of either sign is
    assert len(set(table)) == len(table)


def test_a_decimal_is_the_same_in_every_context():
    with decimal.localcontext(decimal.Context(capitals=0)):
        assert canonical_json(decimal.Decimal("1E+2")) == '"1E+2"'


def test_a_hundred_thousand_siblings_are_no_nesting():
    many = [dt.date(2026, 1, 2)] * 100_000
    assert canonical_json(many) == "[" + ",".join(['"2026-01-02"'] * 100_000) + "]"


def test_shared_parts_are_no_cycle():
    shared = [Point(1)]
    assert canonical_json([shared, {"a": shared}, 2**80]) == (
        '[[{"_x":null,"y":1}],{"a":[{"_x":null,"y":1}]},1208925819614629174706176]'
    )


def test_a_key_that_is_no_text_equals_its_text_in_json():
    assert canonical_json({1: "x"}) == canonical_json({"1": "x"})


def test_an_interrupt_inside_a_model_is_not_swallowed():
    class Slow:
        calls = 0

        def model_dump(self, mode):
            Slow.calls += 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        canonical_json({"a": Slow()})
    assert Slow.calls == 1


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


@pytest.mark.parametrize(("value", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_has_no_form_is_an_args_error_with_its_path(value, text):
    with pytest.raises(ArgsError) as caught:
        canonical_json(value)
    assert str(caught.value) == text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def holding_itself():
    plain: list = [1, {}]
    plain[1]["a"] = plain
    mapping: dict = {}
    mapping["me"] = (mapping,)
    point = Point(None)
    point.y = {"p": [point]}
    return [(plain, "[1].a"), (mapping, ".me[0]"), (point, ".y.p[0]")]


@pytest.mark.parametrize(("value", "path"), holding_itself(), ids=["list", "dict", "dataclass"])
@pytest.mark.parametrize("beside", [[], [2**80], [math.nan], [{1}]])
def test_a_value_that_holds_itself_is_refused(value, path, beside):
    with pytest.raises(ArgsError) as caught:
        canonical_json([*beside, value])
    assert str(caught.value) == f"args[{len(beside)}]{path}: the value holds itself"


@pytest.mark.parametrize("beside", [[], [2**80], [math.nan]])
def test_a_wide_value_that_holds_itself_is_refused(beside):
    value: list = [0] * 100_000
    value.append(value)
    with pytest.raises(ArgsError, match=r"^args.*: more than 1000000 values have no canonical JSON$"):
        canonical_json([*beside, value])


def test_a_model_that_holds_itself_is_refused():
    query = Query(text="t")
    query.limit = [query]
    with pytest.raises(ArgsError, match=r"args.*(the value holds itself|Query has no canonical JSON)$"):
        canonical_json(query)


def shared_over_and_over():
    value: object = 1
    for _ in range(60):
        value = [value, value]
    return value


@pytest.mark.parametrize("beside", [[], [2**80], [{1}, None], [math.nan]])
def test_a_value_of_more_than_a_million_values_is_refused_in_bounded_time(beside):
    started = time.perf_counter()
    with pytest.raises(ArgsError, match=r": more than 1000000 values have no canonical JSON$"):
        canonical_json([*beside, shared_over_and_over()])
    assert time.perf_counter() - started < 5


def test_more_than_a_million_items_are_refused():
    with pytest.raises(ArgsError, match=r"^args: more than 1000000 values have no canonical JSON$"):
        canonical_json([0] * (MAX_VALUES + 1))
    with pytest.raises(ArgsError, match=r"^args: more than 1000000 values have no canonical JSON$"):
        canonical_json([math.nan] * (MAX_VALUES + 1))


def test_close_to_a_million_values_have_a_form():
    value = [0] * (MAX_VALUES - 10)
    assert canonical_json(value) == "[" + ",".join(["0"] * len(value)) + "]"
    assert canonical_json([*value, 2**80]) == "[" + ",".join(["0"] * len(value)) + f",{2**80}]"


def deep(wrap, levels=10_000):
    value = 1
    for _ in range(levels):
        value = wrap(value)
    return value


WRAPPERS = {
    "list": lambda value: [value],
    "dict": lambda value: {"a": value},
    "tuple": lambda value: (value,),
    "frozenset": lambda value: frozenset([value]),
    "dataclass": Point,
    "model": lambda value: Query.model_construct(text="", limit=value),
    "wide": lambda value: [*range(20), value],
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_ten_thousand_levels_are_refused_in_bounded_time(wrap):
    value = deep(wrap)
    started = time.perf_counter()
    with pytest.raises(ArgsError) as caught:
        canonical_json(value)
    assert time.perf_counter() - started < 5
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("wrap", [WRAPPERS[name] for name in ("list", "dict", "tuple", "frozenset", "dataclass")])
def test_a_thousand_levels_have_a_form_that_orjson_reads_back_and_one_more_has_none(wrap):
    text = canonical_json(deep(wrap, MAX_DEPTH))
    assert text.count("[") + text.count("{") == MAX_DEPTH
    assert canonical_json(orjson.loads(text)) == text
    with pytest.raises(ArgsError, match="more than 1000 levels have no canonical JSON"):
        canonical_json(deep(wrap, MAX_DEPTH + 1))


def test_a_tree_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(canonical, "MAX_VALUES", 10_000)  # a million of its models take seconds
    with pytest.raises(ArgsError, match=r"^args: more than 1000000 values have no canonical JSON$"):
        canonical_json(EndlessTree())


# --- properties --------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=8)
INTS = st.integers() | st.integers(-(2**90), 2**90) | st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63) - 1])
JSON_LEAVES = st.none() | st.booleans() | INTS | st.floats() | TEXTS
JSON_VALUES = st.recursive(
    JSON_LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)
RICH_LEAVES = (
    JSON_LEAVES
    | st.builds(Text, TEXTS)
    | st.builds(Real, st.floats())
    | st.sampled_from([*Colour, *Level, *Name])
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.decimals().filter(lambda number: not number.is_snan())  # which has no hash
    | st.binary(max_size=4)
)
RICH_KEYS = TEXTS | st.integers() | st.booleans() | st.floats() | st.none() | st.sampled_from([*Level]) | st.dates()
RICH_VALUES = st.recursive(
    RICH_LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(RICH_KEYS, inner, max_size=4)
        | st.dictionaries(TEXTS, inner, max_size=4).map(collections.OrderedDict)
        | st.sets(RICH_LEAVES, max_size=4)
        | st.builds(Point, inner, inner)
        | st.builds(lambda x: Query.model_construct(text="", limit=x), inner)
    ),
    max_leaves=12,
)


def same(one, other):
    """Equality as JSON knows it: by type, -0.0 apart from 0.0, NaN equal to itself."""
    if type(one) is not type(other):
        return False
    if type(one) is float:
        return repr(one) == repr(other)
    if type(one) is list:
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is dict:
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def shuffled(value, rng):
    if type(value) is list:
        return [shuffled(item, rng) for item in value]
    if type(value) is dict:
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    return value


def form_of(value):
    try:
        return canonical_json(value)
    except ArgsError as error:
        return type(error)


HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]").search


def texts(value):
    if type(value) is dict:
        return [*value, *(text for item in value.values() for text in texts(item))]
    if type(value) is list:
        return [text for item in value for text in texts(item)]
    return [value] if type(value) is str else []


@given(JSON_VALUES)
def test_the_form_reads_back_as_the_value(value):
    assume(not any(map(HALVES, texts(value))))  # which a reader of JSON joins to one sign
    assert same(json.loads(canonical_json(value)), value)


@given(JSON_VALUES, st.randoms(use_true_random=False))
def test_key_order_does_not_matter(value, rng):
    assert canonical_json(shuffled(value, rng)) == canonical_json(value)


@given(JSON_VALUES, JSON_VALUES)
def test_two_values_have_one_form_only_if_they_are_the_same(one, other):
    assert (canonical_json(one) == canonical_json(other)) == same(one, other)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i)
    )
)
def test_without_floats_the_form_is_that_of_the_standard_library(value):
    assert canonical_json(value) == json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_written_by_its_shortest_digits(number):
    text = canonical_json(number)
    assert repr(float(text)) == repr(number)
    digits = [part.split("e")[0].replace(".", "").strip("-0") for part in (text, repr(number))]
    assert digits[0] == digits[1]
    assert set(text) & {".", "e"}  # apart from the integer


@given(JSON_VALUES)
def test_the_form_is_what_orjson_writes_wherever_it_writes_it_all(value):
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:
        return
    form = canonical_json(value)
    assert form.replace("NaN", "null").replace("-Infinity", "null").replace("Infinity", "null") == text


@given(RICH_VALUES)
def test_the_form_depends_on_the_value_alone(value):
    form = form_of(value)
    refused = form is ArgsError
    beside, below = form_of([value, 2**80]), form_of(nested(value, 300))
    assert beside == (ArgsError if refused else f"[{form},{2**80}]")
    assert below == (ArgsError if refused else "[" * 300 + form + "]" * 300)


NASTY = st.integers(0, len(REFUSED) - 1).map(lambda index: REFUSED[index][0])


@given(
    st.recursive(RICH_LEAVES | NASTY, lambda i: st.lists(i) | st.dictionaries(RICH_KEYS, i) | st.builds(Point, i, i))
)
def test_nothing_but_an_args_error_escapes(value):
    assert isinstance(form_of(value), str) or form_of(value) is ArgsError


def test_the_order_of_a_set_is_no_matter_of_hashes():
    names = [str(n) for n in range(50)]
    random.shuffle(names)
    assert canonical_json(set(names)) == json.dumps(sorted(names), separators=(",", ":"))

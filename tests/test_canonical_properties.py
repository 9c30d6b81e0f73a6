"""Canonical JSON as a function of the value alone, over generated values."""

from __future__ import annotations

import collections
import dataclasses
import json
import re

import orjson
from hypothesis import assume, given
from hypothesis import strategies as st

from loopfence.canonical import canonical_bytes, canonical_bytes_of_json, canonical_json
from loopfence.errors import ArgsError
from odd_values import REFUSED
from value_types import Colour, Level, Name, Point, Query, Real, Text, nested

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=8)
INTS = st.integers() | st.integers(-(2**90), 2**90) | st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63) - 1])


def json_values(floats):
    return st.recursive(
        st.none() | st.booleans() | INTS | floats | TEXTS,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
        max_leaves=20,
    )


JSON_VALUES = json_values(st.floats())
RICH_LEAVES = (
    st.none()
    | st.booleans()
    | INTS
    | st.floats()
    | TEXTS
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


@given(json_values(st.floats(allow_nan=False, allow_infinity=False)))
def test_the_form_is_what_orjson_writes_wherever_it_writes_it_all(value):
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:
        return
    assert canonical_json(value) == text


@given(RICH_VALUES)
def test_the_form_depends_on_the_value_alone(value):
    form = form_of(value)
    refused = form is ArgsError
    beside, below = form_of([value, 2**80]), form_of(nested(value, 300))
    assert beside == (ArgsError if refused else f"[{form},{2**80}]")
    assert below == (ArgsError if refused else "[" * 300 + form + "]" * 300)


@dataclasses.dataclass
class Place:
    """Where an odd value goes; hypothesis itself does not survive all of those."""

    index: int


PLACES = st.builds(Place, st.integers(0, len(REFUSED) - 1))


def fill(value):
    if type(value) is Place:
        return REFUSED[value.index][0]
    if type(value) is list:
        return [fill(item) for item in value]
    if type(value) is dict:
        return {key: fill(item) for key, item in value.items()}
    return value


@given(st.recursive(RICH_LEAVES | PLACES, lambda inner: st.lists(inner) | st.dictionaries(RICH_KEYS, inner)))
def test_nothing_but_an_args_error_escapes(value):
    value = fill(value)
    form = form_of(value)
    assert form is ArgsError or form_of([value, 2**80]) == f"[{form},{2**80}]"


@given(JSON_VALUES)
def test_the_short_way_for_parsed_json_writes_the_same(value):
    assert canonical_bytes_of_json(value) == canonical_bytes(value)

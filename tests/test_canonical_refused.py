"""What has no canonical JSON: an ArgsError with its path, in bounded time, whatever the value does."""

from __future__ import annotations

import math
import pickle
import time

import orjson
import pytest

from loopfence import canonical
from loopfence.canonical import MAX_DEPTH, MAX_VALUES, canonical_json
from loopfence.errors import ArgsError
from odd_values import REFUSED, EndlessTree
from value_types import Point, Query


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
    assert time.perf_counter() - started < 20


def test_more_than_a_million_items_are_refused():
    with pytest.raises(ArgsError, match=r"^args: more than 1000000 values have no canonical JSON$"):
        canonical_json([0] * (MAX_VALUES + 1))
    with pytest.raises(ArgsError, match=r"^args: more than 1000000 values have no canonical JSON$"):
        canonical_json([math.nan] * (MAX_VALUES + 1))


@pytest.mark.parametrize("value", [0, math.nan])
def test_the_parts_of_a_value_are_counted_together(value):
    parts = [[value] * (MAX_VALUES // 3)] * 3
    with pytest.raises(ArgsError, match=r"^args\[3\]: more than 1000000 values have no canonical JSON$"):
        canonical_json([math.nan, *parts])


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
    assert time.perf_counter() - started < 20
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

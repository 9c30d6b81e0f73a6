"""The fields of arguments and results that count: dotted paths left out, or alone kept."""

from __future__ import annotations

import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopfence.errors import ArgsError
from loopfence.signature import canonical_args, select_fields
from odd_values import REFUSED
from value_types import Point, Query, Text

ORDER = {
    "id": "x7",
    "user": {"id": 1, "name": "Ann"},
    "items": [{"price": 1, "at": "mon"}, {"price": 2, "at": "tue"}],
    "0": "zero",
}

IGNORED = [
    ([], ORDER),
    (["id"], {key: ORDER[key] for key in ("user", "items", "0")}),
    (["user.id"], ORDER | {"user": {"name": "Ann"}}),
    (["user"], {key: ORDER[key] for key in ("id", "items", "0")}),
    (["user", "user.id"], {key: ORDER[key] for key in ("id", "items", "0")}),
    (["user.*"], ORDER | {"user": {}}),
    (["items.*.at"], ORDER | {"items": [{"price": 1}, {"price": 2}]}),
    (["items.1.at"], ORDER | {"items": [{"price": 1, "at": "mon"}, {"price": 2}]}),
    (["items.0"], ORDER | {"items": [{"price": 2, "at": "tue"}]}),
    (["items.*"], ORDER | {"items": []}),
    (["*.id"], ORDER | {"user": {"name": "Ann"}}),
    (["*"], {}),
    (["0"], {key: ORDER[key] for key in ("id", "user", "items")}),
    (["none", "user.none", "id.none", "items.none", "items.7", "items.price", "user.id.none", ""], ORDER),
]

KEPT = [
    ([], ORDER),
    (["id"], {"id": "x7"}),
    (["user.name"], {"user": {"name": "Ann"}}),
    (["user", "user.name"], {"user": {"id": 1, "name": "Ann"}}),
    (["user.name", "id"], {"id": "x7", "user": {"name": "Ann"}}),
    (["items.*.price"], {"items": [{"price": 1}, {"price": 2}]}),
    (["items.1.price"], {"items": [{"price": 2}]}),
    (["items.1"], {"items": [{"price": 2, "at": "tue"}]}),
    (["*.id"], {"user": {"id": 1}}),
    (["*"], ORDER),
    (["none"], {}),
    (["user.none", "id.none", "items.price", "items.7"], {}),
]


@pytest.mark.parametrize(("paths", "left"), IGNORED)
def test_ignored_fields_are_left_out(paths, left):
    assert select_fields(ORDER, paths, []) == left


@pytest.mark.parametrize(("paths", "left"), KEPT)
def test_only_the_named_fields_are_kept(paths, left):
    assert select_fields(ORDER, [], paths) == left


def test_a_field_can_be_ignored_in_what_is_kept():
    assert select_fields(ORDER, ["user.id"], ["user", "id"]) == {"id": "x7", "user": {"name": "Ann"}}


def test_nothing_to_select_returns_the_arguments_themselves():
    assert select_fields(ORDER, (), ()) is ORDER


@pytest.mark.parametrize(("ignore", "only"), [(["*.*.*"], []), ([], ["*.*.at", "user"]), (["user.id"], ["user"])])
def test_the_input_is_never_changed(ignore, only):
    args = {"user": {"id": 1}, "items": [{"price": 1, "at": [1]}], "t": ({"a": 1},)}
    before = repr(args)
    selected = select_fields(args, ignore, only)
    selected.clear()
    assert repr(args) == before


@pytest.mark.parametrize("args", [None, "text", 7, 1.5, b"id", {"id"}, object(), iter(["id"])])
def test_what_is_neither_an_object_nor_a_list_comes_back_as_it_is(args):
    assert select_fields(args, ["id", "*"], ["name", "0"]) is args


def test_lists_take_numbers_and_stars():
    rows = [{"a": 1, "b": 2}, {"b": 3}]
    assert select_fields(rows, ["*.b"], []) == [{"a": 1}, {}]
    assert select_fields(rows, ["0"], []) == [{"b": 3}]
    assert select_fields(rows, [], ["*.a"]) == [{"a": 1}]
    assert select_fields(rows, [], ["0.none"]) == []
    assert select_fields((*rows,), ["1.b"], []) == [{"a": 1, "b": 2}, {}]


def test_a_list_is_kept_whole_where_only_names_fields_of_objects():
    assert select_fields(["a", "b"], [], ["query"]) == ["a", "b"]
    assert select_fields([{"b": 1, "c": 2}], ["*.b"], ["query"]) == [{"c": 2}]


def test_models_and_dataclasses_are_objects_of_their_fields():
    query = Query(text="t", limit=Point(1, {"a": Query(text="u", limit=2)}))
    assert select_fields(query, ["limit.y", "limit._x.a.text"], []) == {
        "text": "t",
        "limit": {"_x": {"a": {"limit": 2}}},
    }
    assert select_fields(Point(1, 2), [], ["_x"]) == {"_x": 2}


def test_keys_that_are_no_text_are_named_by_their_text():
    class Key(enum.Enum):
        A = "a"

    args = {1: "x", Key.A: "y", Text("b"): "z", (1, 2): "kept", None: 0}
    assert select_fields(args, ["1", "a", "b", "null"], []) == {(1, 2): "kept"}


@pytest.mark.parametrize(("args", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_selecting_never_raises_and_leaves_the_complaint_to_the_form(args, text):
    selected = select_fields({"a": args, "b": 1}, ["a.*.*.none", "b"], [])
    with pytest.raises(ArgsError):
        canonical_args(selected)


FIELDS = st.lists(st.sampled_from(["a", "b", "*", "0", "1"]), min_size=1, max_size=3).map(".".join)
TREES = st.recursive(
    st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab0"), inner, max_size=3),
)


def leaves(value, path=()):
    """Every leaf (an empty container is one) with the path to it."""
    if type(value) is dict and value:
        return {leaf for key, item in value.items() for leaf in leaves(item, (*path, key))}
    if type(value) is list and value:
        return {leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, str(index)))}
    return {(path, repr(value))}


def covers(field, path):
    steps = field.split(".")
    return len(steps) <= len(path) and all(step in ("*", at) for step, at in zip(steps, path, strict=False))


def without_lists(value):
    if type(value) is list:
        return {str(index): without_lists(item) for index, item in enumerate(value)}
    if type(value) is dict:
        return {key: without_lists(item) for key, item in value.items()}
    return value


@given(st.dictionaries(st.sampled_from("ab0"), TREES.map(without_lists), max_size=3), st.lists(FIELDS, max_size=3))
def test_of_objects_exactly_the_covered_leaves_go_or_stay(args, fields):
    covered = {(path, leaf) for path, leaf in leaves(args) if any(covers(field, path) for field in fields)}
    left = {(path, leaf) for path, leaf in leaves(select_fields(args, fields, [])) if leaf != "{}"}
    assert left == {(path, leaf) for path, leaf in leaves(args) - covered if leaf != "{}"}
    if fields:
        assert leaves(select_fields(args, [], fields)) == (covered or {((), "{}")})

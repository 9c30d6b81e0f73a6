"""Canonical JSON: one form for one value, whatever way it took."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import json
import math
import pathlib
import random
import uuid

import pytest

from loopfence.canonical import canonical_json
from value_types import (
    Both,
    Colour,
    Level,
    Liar,
    Name,
    Point,
    Query,
    Real,
    Row,
    Slotted,
    Tags,
    Text,
    Where,
    Whole,
    nested,
)

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
    (Both.A, '{"a":1}'),
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
    (
        dt.datetime(1900, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=53, seconds=28))),
        '"1900-01-01T00:00:00+00:53:28"',
    ),
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


@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupt_inside_a_model_is_not_swallowed(at):
    calls = []

    class Slow:
        def model_dump(self, mode):
            calls.append(mode)
            if len(calls) == at:
                raise KeyboardInterrupt
            return {}

    with pytest.raises(KeyboardInterrupt):
        canonical_json({"a": Slow()})
    assert calls == ["python"] * at


def test_the_order_of_a_set_is_no_matter_of_hashes():
    names = [str(n) for n in range(50)]
    random.shuffle(names)
    assert canonical_json(set(names)) == json.dumps(sorted(names), separators=(",", ":"))

"""Results: equal ones have equal digests, what has no form is unknown, and nothing raises after the tool ran."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import math
import re
import time
import typing

import numpy as np
import pandas as pd
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopfence.results import MASKED_CHARACTERS, is_null, result_digest
from loopfence.signature import canonical_args, digest
from odd_values import REFUSED
from value_types import Name, Point, Query, Text

# Digests are compared between workers of different releases.
GOLDEN = [
    (None, "b785b6ec423c44e1"),
    ("", "a10276e838f45d34"),
    ("null", "fa35368a11bd6a17"),
    ("text", "e4f3670d9b50fdab"),
    ('{"a":1}', "6d0963cb95f69f8c"),
    ({"a": 1}, "c5e3762ffc8453c6"),
    ([1, 2], "233b603ceeca89be"),
    (True, "40bbd512750b7629"),
    (0, "1982e3a7bb241055"),
    (0.5, "e1cdb070569256e9"),
    (b"abc", "5d3a0b7894d7f593"),
]


@pytest.mark.parametrize(("result", "expected"), GOLDEN)
def test_golden_digests(result, expected):
    assert result_digest(result) == expected


def test_different_results_differ():
    results = [result for result, _ in GOLDEN] + ["None", [], {}, "[]", "{}", False, "é", "e\u0301", math.nan, "NaN"]
    assert len({result_digest(result) for result in results}) == len(results)


def test_equal_results_are_equal_whatever_holds_them():
    plain = {"text": "t", "limit": [1, None]}
    assert result_digest(Query(text="t", limit=(1, None))) == result_digest(plain)
    assert result_digest({"limit": [1, None], "text": Text("t")}) == result_digest(plain)
    assert result_digest(Name.SEARCH) == result_digest(Text("search")) == result_digest("search")


def test_a_secret_keys_the_digest():
    assert result_digest("a", secret=b"s") == digest('"a"', b"s")
    assert result_digest(None, secret=b"s") == digest("null", b"s")
    assert result_digest({"a": 1}, secret=b"s") == digest('{"a":1}', b"s")


def test_only_none_is_null():
    assert is_null(None)
    assert not any(is_null(value) for value in ("", "null", "None", 0, False, [], {}, math.nan))


def test_null_is_null_whatever_is_ignored_or_masked():
    assert result_digest(None, ignore=["a"], masks=[re.compile("n|null")]) == "b785b6ec423c44e1"


# --- what is unknown ---------------------------------------------------------------------------------------


class Exploding:
    def __getattribute__(self, name):
        raise ZeroDivisionError

    def __eq__(self, other):
        raise ZeroDivisionError

    __hash__ = None

    def __iter__(self):
        raise ZeroDivisionError

    def __len__(self):
        raise ZeroDivisionError

    def __bool__(self):
        raise ZeroDivisionError

    def __str__(self):
        raise ZeroDivisionError

    __repr__ = __str__


@dataclasses.dataclass
class Lazy:
    a: int = 1

    @property
    def b(self):
        raise ZeroDivisionError

    def __getattribute__(self, name):
        if name == "a":
            raise MemoryError
        return super().__getattribute__(name)


class LazyText(str):
    __slots__ = ()

    def lstrip(self, chars=None):
        raise ZeroDivisionError

    def __getitem__(self, key):
        raise ZeroDivisionError

    def encode(self, *args):
        raise ZeroDivisionError


class Stream(pydantic.BaseModel):
    rows: typing.Any


def holding_itself():
    value: list = []
    value.append({"a": value})
    return value


def shared_over_and_over():
    value: object = "x"
    for _ in range(60):
        value = {"a": value, "b": value}
    return value


def ten_thousand_deep():
    value: object = ()
    for _ in range(10_000):
        value = (value,)
    return value


UNKNOWN = {
    "object": object(),
    "frame": pd.DataFrame({"a": [1]}),
    "series": pd.Series([1]),
    "array": np.array([1, 2]),
    "nested frame": {"ok": True, "rows": [pd.DataFrame()]},
    "file": io.StringIO("text"),
    "exception": ValueError("no"),
    "class": dict,
    "function": len,
    "cycle": holding_itself(),
    "shared parts": shared_over_and_over(),
    "deep": ten_thousand_deep(),
    "huge": [0] * 1_000_001,
    "exploding": Exploding(),
    "nested exploding": [None, {"a": Exploding()}],
    "lazy": Lazy(),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("options", [{}, {"ignore": ["a.*.b"], "masks": [re.compile("a")], "secret": b"s"}])
def test_what_has_no_form_is_unknown_and_raises_nothing(name, options):
    result = UNKNOWN[name]
    started = time.perf_counter()
    assert result_digest(result, **options) is None
    assert time.perf_counter() - started < 20


@pytest.mark.parametrize(("result", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_is_refused_as_an_argument_is_unknown_as_a_result(result, text):
    assert result_digest(result) is None
    assert result_digest({"a": [result]}, ignore=["b"]) is None


def test_a_text_is_read_by_its_own_letters():
    for options in ({}, {"ignore": ["a"]}, {"masks": [re.compile("x")]}):
        assert result_digest(LazyText("[1]"), **options) == result_digest("[1]", **options) is not None


def test_what_is_refused_but_ignored_does_not_matter():
    assert result_digest({"a": 1, "raw": object()}, ignore=["raw"]) == digest('{"a":1}')


def test_iterators_are_left_unread():
    def rows():
        yield from range(3)

    source = rows()
    for wrap in (lambda it: it, lambda it: [it], lambda it: {"a": (it,)}, Point, lambda it: Stream(rows=it)):
        for options in ({}, {"ignore": ["a.0", "rows.*", "*"], "masks": [re.compile("a")]}):
            result_digest(wrap(source), **options)
            assert result_digest(wrap(source)) is None
    assert list(source) == [0, 1, 2]


def test_coroutines_and_async_generators_are_left_unawaited():
    async def answer():
        return 7

    async def rows():
        yield 7

    async def main():
        coroutine, generator = answer(), rows()
        assert result_digest(coroutine) is None
        assert result_digest([generator], ignore=["0.a"]) is None
        return await coroutine, [row async for row in generator]

    assert asyncio.run(main()) == (7, [7])


def test_a_file_is_left_where_it_was(tmp_path):
    path = tmp_path / "a"
    path.write_text("text")
    with path.open() as file:
        assert result_digest(file) is None
        assert result_digest([file], ignore=["a"]) is None
        assert file.read() == "text"


def test_an_interrupt_is_no_result():
    class Slow:
        def model_dump(self, mode):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        result_digest(Slow())


# --- fields and masks --------------------------------------------------------------------------------------


def test_ignored_fields_of_an_object_do_not_matter():
    one, other = {"n": 1, "meta": {"at": 1, "by": "x"}}, {"n": 1, "meta": {"at": 2, "by": "x"}}
    assert result_digest(one) != result_digest(other)
    assert result_digest(one, ignore=["meta.at"]) == result_digest(other, ignore=["meta.at"])
    assert result_digest(one, ignore=["meta.at"]) == digest('{"meta":{"by":"x"},"n":1}')
    assert result_digest(one, ignore=["meta.by"]) != result_digest(other, ignore=["meta.by"])


@pytest.mark.parametrize(
    ("text", "ignore", "left"),
    [
        ('{"n": 1, "at": 2}', ["at"], '{"n":1}'),
        (' \n{"n": 1}', ["at"], '{"n":1}'),
        ('[{"n": 1, "at": 2}]', ["*.at"], '[{"n":1}]'),
        ('[{"n": 1, "at": 2}]', ["at"], '[{"at":2,"n":1}]'),
        (f'{{"n": {2**80}, "at": NaN}}', ["at"], f'{{"n":{2**80}}}'),
    ],
)
def test_ignored_fields_of_a_text_that_is_json_do_not_matter(text, ignore, left):
    assert result_digest(text, ignore=ignore) == digest(left)


@pytest.mark.parametrize(
    "text",
    ["", "at", '"at"', "7", "{", '{"at": 1', "[" * 100_000, '{"at": 1} and more', "{at: 1}", "[" + "1" * 5000 + "]"],
)
def test_a_text_that_is_no_json_object_or_array_is_a_text(text):
    assert result_digest(text, ignore=["at"]) == result_digest(text) == digest(json.dumps(text))


def test_a_text_that_is_json_is_a_text_where_nothing_is_ignored():
    assert result_digest('{"a": 1}') != result_digest('{"a":1}')
    assert result_digest('{"a":1}') != result_digest({"a": 1})


DURATION = re.compile(r"\d+ ms")
REQUEST = re.compile(r"req-\w+")


def test_masks_are_taken_out_of_a_text():
    one, other = "3 hits in 15 ms (req-a1)", "3 hits in 7 ms (req-b22)"
    assert result_digest(one, masks=[DURATION]) != result_digest(other, masks=[DURATION])
    assert result_digest(one, masks=[DURATION, REQUEST]) == result_digest(other, masks=[DURATION, REQUEST])
    assert result_digest(one, masks=[DURATION, REQUEST]) == digest('"3 hits in  ()"')
    assert result_digest("4 hits in 7 ms ()", masks=[DURATION]) != result_digest("3 hits in 7 ms ()", masks=[DURATION])


def test_masks_are_taken_out_of_the_canonical_json_of_anything_else():
    result = {"took": "15 ms", "hits": [1, "req-a1"]}
    assert result_digest(result, masks=[DURATION, REQUEST]) == digest('{"hits":[1,""],"took":""}')
    assert result_digest(json.dumps(result), ignore=["hits"], masks=[DURATION]) == digest('{"took":""}')


def test_only_the_head_of_a_text_is_masked_and_the_rest_still_counts():
    digit = [re.compile("[0-9]")]
    head = "x" * (MASKED_CHARACTERS - 1)
    assert MASKED_CHARACTERS == 65_536
    assert result_digest(head + "1", masks=digit) == result_digest(head + "2", masks=digit)
    assert result_digest(head + "x1", masks=digit) != result_digest(head + "x2", masks=digit)
    assert result_digest(head + "1" + "a" * 10**6, masks=digit) == digest(f'"{head}{"a" * 10**6}"')
    assert result_digest([head, "1"], masks=digit) != result_digest([head, "2"], masks=digit)


# --- properties --------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=[])))
def test_a_text_is_digested_as_its_canonical_json(text):
    assert result_digest(text) == digest(canonical_args(text))


ODD = [*UNKNOWN.values(), *(result for result, _ in REFUSED), *(result for result, _ in GOLDEN)]


@given(
    st.recursive(
        st.integers(0, len(ODD) - 1).map(lambda index: ("odd", index)) | st.text() | st.floats(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.none(), inner, max_size=3),
    ),
    st.lists(st.sampled_from(["a", "*", "0.*", "*.*.a"]), max_size=2),
)
def test_nothing_ever_raises(shape, ignore):
    found = result_digest(fill(shape), ignore=ignore, masks=[DURATION])
    assert found is None or re.fullmatch("[0-9a-f]{16}", found)


def fill(shape):
    if type(shape) is tuple:
        return ODD[shape[1]]
    if type(shape) is list:
        return [fill(item) for item in shape]
    if type(shape) is dict:
        return {key: fill(item) for key, item in shape.items()}
    return shape

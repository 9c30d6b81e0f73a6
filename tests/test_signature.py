"""Signatures: golden vectors, and what keeps two calls apart."""

from __future__ import annotations

import hashlib
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from loopfence.errors import ArgsError, ConfigError
from loopfence.signature import canonical_args, default_key, digest, signature
from loopfence.store.keys import encode_name
from odd_values import REFUSED
from value_types import Name, Text

# A contract between releases and workers: a change of any of these is a major release.
GOLDEN = [
    ("search", None, "search:1349cde127705c16", "search:8b4d5d2e00ce2eba"),
    ("search", {}, "search:1349cde127705c16", "search:8b4d5d2e00ce2eba"),
    (
        "search",
        {"query": "weather in Paris", "limit": 5},
        "search:c7c0a07bde3a1140",
        "search:eeb2130cc27a2094",
    ),
    (
        "read_file",
        {"path": "/etc/hosts", "range": [1, 2.5, None, True]},
        "read_file:f9727a41abe102cb",
        "read_file:5a7d2592698f64c9",
    ),
    ("math", {"x": 1e16, "y": -0.0, "z": 1e-7, "n": 2**80}, "math:b3f9625eb11b2a00", "math:29258ab8de407b23"),
    ("math", {"x": math.nan, "y": math.inf}, "math:09814ea5c5b5eb1a", "math:930d4be9c67e097d"),
    ("say", {"text": 'é漢😀\n"', "lone": "\ud800"}, "say:74df239847cabe5f", "say:b5772038632dc666"),
    ("say", {"text": "e\u0301"}, "say:922e76724e35816b", "say:a3f6bb982d5430fb"),
    ("naïve tool", {"a": 1}, "na%C3%AFve%20tool:c5e3762ffc8453c6", "na%C3%AFve%20tool:5056dd21bb750fa4"),
    ("t", "text", "t:e4f3670d9b50fdab", "t:c8684c4d25fd3883"),
    ("t", [1, "1", True, 1.0], "t:70be10adf0d703b8", "t:639c9b7cb28a872c"),
    ("t", {1: {"b": b"abc", "s": {3, 20, 1}}}, "t:5563d06fb91ba37e", "t:a428c00c9f223e8e"),
]


@pytest.mark.parametrize(("tool", "args", "plain", "keyed"), GOLDEN)
def test_golden_signatures(tool, args, plain, keyed):
    assert signature(tool, args) == plain
    assert signature(tool, args, secret=b"secret") == keyed


@pytest.mark.parametrize(("tool", "args", "plain", "keyed"), GOLDEN)
def test_a_signature_is_the_tool_and_the_digest_of_its_default_key(tool, args, plain, keyed):
    name, text = default_key(tool, args)
    assert name is tool
    assert text == canonical_args(args)
    assert plain.endswith(":" + digest(text))
    assert keyed.endswith(":" + digest(text, b"secret"))


def test_no_arguments_are_the_empty_object_and_a_null_inside_is_a_null():
    assert canonical_args(None) == "{}" == canonical_args({})
    assert canonical_args({"a": None}) == '{"a":null}'
    assert canonical_args([]) == "[]"


DIFFERENT = [
    None,
    {"a": 1},
    {"a": "1"},
    {"a": 1.0},
    {"a": True},
    {"a": "true"},
    {"a": None},
    {"a": "null"},
    {"a": []},
    {"a": {}},
    {"a": ""},
    {"a": 0},
    {"a": -0.0},
    {"a": 0.0},
    {"a": False},
    {"a": math.nan},
    {"a": math.inf},
    {"a": -math.inf},
    {"a": "NaN"},
    {"a": "\u00e9"},
    {"a": "e\u0301"},
    {"a": "\ud800"},
    {"a": "\\ud800"},
    {"a": [1]},
    {"a": [[1]]},
    {"a": [1, None]},
    {"b": 1},
    {"A": 1},
    {"a": 1, "b": 1},
    [],
    [{}],
    "",
    "{}",
    0,
    False,
]


def test_different_calls_differ():
    assert len({signature("t", args) for args in DIFFERENT}) == len(DIFFERENT)
    assert len({signature("t", args, secret=b"s") for args in DIFFERENT}) == len(DIFFERENT)


def test_the_order_of_keys_does_not_matter_at_any_depth():
    one = {"a": 1, "b": [{"c": 2, "d": {"e": 3, "f": 2**80}}]}
    other = {"b": [{"d": {"f": 2**80, "e": 3}, "c": 2}], "a": 1}
    assert signature("t", one) == signature("t", other)


def test_the_tool_is_part_of_the_signature():
    assert signature("a", {}) != signature("b", {})
    assert signature("a:b", {}).split(":") == ["a", "b", digest("{}")]


def test_a_tool_named_by_an_enum_or_a_subclass_is_that_name():
    class Odd(str):
        __slots__ = ()

        def __str__(self):
            return "other"

        def __format__(self, spec):
            return "other"

    assert signature(Name.SEARCH, {}) == signature("search", {})
    assert signature(Odd("search"), {}) == signature("search", {})


def test_an_encoded_name_is_plain_text():
    assert f"{encode_name('session', Name.SEARCH)}" == "search"
    assert type(encode_name("tool", Text("a b"))) is str


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("", "tool must not be empty"),
        ("é" * 257, "tool must be at most 512 bytes of UTF-8 (got 514)"),
        (None, "tool must be a string (got NoneType)"),
        (7, "tool must be a string (got int)"),
        (b"search", "tool must be a string (got bytes)"),
    ],
)
def test_a_bad_tool_is_a_config_error(tool, text):
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        signature(tool, {})


@pytest.mark.parametrize("tool", ["a b", "a\nb", "a\0b", "{}", "*", "é", "\ud800", "a" * 512, "~"])
def test_any_other_text_is_a_tool_and_stays_one_word_of_ascii(tool):
    name, _, last = signature(tool, {}).rpartition(":")
    assert re.fullmatch(r"[A-Za-z0-9._:@/%-]+", name)
    assert last == digest("{}")


@pytest.mark.parametrize(("args", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_arguments_without_a_form_are_an_args_error(args, text):
    for call in (signature, default_key):
        with pytest.raises(ArgsError, match=f"^{re.escape(text)}$"):
            call("t", args)


# --- digests -----------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=[])), st.none() | st.binary(min_size=1, max_size=200))
def test_a_digest_is_sixteen_small_hex_digits(text, secret):
    assert re.fullmatch("[0-9a-f]{16}", digest(text, secret))


def test_the_plain_digest_is_xxh3_of_the_utf8():
    assert digest("é") == xxh3_64_hexdigest("é".encode())
    assert digest("\ud800") == xxh3_64_hexdigest(b"\xed\xa0\x80")


def test_the_keyed_digest_is_blake2b():
    assert digest("é", b"k" * 64) == hashlib.blake2b("é".encode(), digest_size=8, key=b"k" * 64).hexdigest()
    assert digest("é", b"k") != digest("é", b"l")


def test_every_byte_of_a_long_secret_counts():
    assert digest("a", b"k" * 65) == "f6669cd069f604c9"
    assert len({digest("a", b"k" * 64 + tail) for tail in (b"", b"a", b"b", b"ab")}) == 4


def test_an_empty_secret_is_a_config_error():
    with pytest.raises(ConfigError, match=r"^secret must not be empty$"):
        digest("a", b"")

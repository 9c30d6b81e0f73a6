"""Bodies that are no LLM request, odd ones, huge ones, and arbitrary ones."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from loopfence.errors import ArgsError
from loopfence.intent import intent_fingerprint, intent_fingerprint_value


def fingerprint(path: str, request: Any) -> int:
    return intent_fingerprint(path, json.dumps(request).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"plain text",
        b"null",
        b"[]",
        b'"messages"',
        b'{"messages": []}',
        b'{"messages": "hi"}',
        b'{"messages": ["hi"]}',
        b'{"contents": {"a": 1}}',
        b'{"input": {"question": "no model is named"}}',
        b'{"prompt": "no model is named"}',
        b'{"temperature": 1}',
        b'{"messages": [{"role": "user", "content": "tru',
        b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"messages":[' + b"[" * 5_000 + b"]" * 5_000 + b"]}",
        b'{"messages":[{"role":"user","content":' + b"9" * 5_000 + b"}]}",
    ],
    ids=lambda body: body[:24],
)  # fmt: skip
def test_a_body_that_is_no_llm_request_counts_byte_by_byte(body: bytes) -> None:
    raw = xxh3_64_intdigest(b'"/p"\n' + body)
    assert intent_fingerprint("/p", body) == raw
    assert intent_fingerprint("/p", body + b" ") == xxh3_64_intdigest(b'"/p"\n' + body + b" ") != raw


@pytest.mark.parametrize("limit", [1_000, 10_000], ids=["read by no parser", "read, but without a canonical form"])
def test_a_request_that_is_nested_too_deep_counts_byte_by_byte(limit: int) -> None:
    body = b'{"messages":[{"role":"user","content":' + b"[" * 1_500 + b"]" * 1_500 + b"}]}"
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        assert intent_fingerprint("/p", body) == xxh3_64_intdigest(b'"/p"\n' + body)
    finally:
        sys.setrecursionlimit(before)


def test_ten_megabytes_are_read_whole() -> None:
    text = "lorem ipsum " * 850_000
    big = {"model": "m", "messages": [{"role": "user", "content": text}]}
    same = {"temperature": 1, **big}
    other = {"model": "m", "messages": [{"role": "user", "content": text + "."}]}
    assert fingerprint("/c", big) == fingerprint("/c", same) != fingerprint("/c", other)


def test_what_only_json_can_say_is_kept_apart() -> None:
    def asked(argument: str) -> int:
        body = f'{{"model":"m","messages":[{{"role":"user","content":[{{"type":"x","v":{argument}}}]}}]}}'
        assert intent_fingerprint("/c", body.encode()) == intent_fingerprint("/c", b" " + body.encode())
        return intent_fingerprint("/c", body.encode())

    forms = [
        "123456789012345678901",
        "123456789012345678902",
        "NaN",
        "Infinity",
        "null",
        '"\\ud800"',
        "1",
        "1.0",
        "true",
    ]
    assert len({asked(form) for form in forms}) == len(forms)


def test_a_parsed_value_that_is_no_llm_request_counts_by_its_canonical_json() -> None:
    assert intent_fingerprint_value("/p", {"b": 1, "a": 2}) == intent_fingerprint_value("/p", {"a": 2, "b": 1})
    assert intent_fingerprint_value("/p", {"a": 2}) == xxh3_64_intdigest(b'{"/p":{"a":2}}')
    with pytest.raises(ArgsError):
        intent_fingerprint_value("/p", {"a": object()})


def test_fields_of_an_unexpected_type_do_no_harm() -> None:
    odd: list[Any] = [
        None,
        0,
        1.5,
        True,
        "x",
        [],
        [[]],
        {},
        {"type": []},
        {"type": {}, "text": 1},
        [{"id": {}}],
    ]
    names = (
        "role",
        "type",
        "content",
        "parts",
        "id",
        "call_id",
        "tool_call_id",
        "tool_calls",
        "output",
        "status",
    )
    for value in odd:
        for name in names:
            request = {
                "model": "m",
                "messages": [{"role": "user", name: value}],
                "tools": value,
                "system": value,
            }
            assert fingerprint("/c", request) == intent_fingerprint_value("/c", request)
        for name in ("type", "id", "tool_use_id", "content", "functionCall", "functionResponse", "text"):
            request = {"messages": [{"role": "user", "content": [{"type": "tool_result", "x": 1, name: value}]}]}
            assert fingerprint("/c", request) == intent_fingerprint_value("/c", request)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
field_names = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "id",
        "call_id",
        "tool_calls",
        "tool_call_id",
        "parts",
        "name",
        "cache_control",
    ]
)
messages = st.lists(
    st.dictionaries(field_names | st.text(max_size=3), json_values, min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


@given(messages, st.dictionaries(st.sampled_from(["temperature", "seed", "user", "stream", "n"]), json_values))
def test_no_history_is_changed_by_sampling_fields(history: list[Any], sampling: dict[str, Any]) -> None:
    plain = {"messages": history}
    before = copy.deepcopy(plain)
    number = intent_fingerprint_value("/c", plain)
    assert 0 <= number < 2**64
    assert number == intent_fingerprint_value("/c", {**sampling, **plain})
    assert number == fingerprint("/c", {**plain, **sampling})
    assert json.dumps(plain) == json.dumps(before)


@given(messages, messages)
def test_histories_with_other_words_have_other_numbers(one: list[Any], other: list[Any]) -> None:
    def worded(history: list[Any], word: str) -> dict[str, Any]:
        return {"messages": [*history, {"role": "user", "content": word}]}

    assert fingerprint("/c", worded(one, "a")) != fingerprint("/c", worded(other, "b"))


@given(st.binary(max_size=200))
def test_no_body_raises(body: bytes) -> None:
    assert 0 <= intent_fingerprint("/c", body) < 2**64

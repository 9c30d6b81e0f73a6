"""Which LLM requests ask for the same and which do not, and the numbers they have."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from llm_requests import DIALECTS, TRANSPORT
from loopfence.intent import intent_fingerprint, intent_fingerprint_value
from loopfence.signature import canonical_json

GOLDEN = {
    "chat": 17314018464841998925,
    "responses": 16017789031743566303,
    "anthropic": 14825354952211097254,
    "gemini": 14171324910362320352,
    "ollama": 12827160726944170944,
    "generate": 6637369176619268342,
}
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def fingerprint(path: str, request: Any) -> int:
    return intent_fingerprint(path, json.dumps(request).encode())


def edited(request: dict[str, Any], *steps: Any, to: Any) -> dict[str, Any]:
    """A copy of the request with the value at the path replaced."""
    changed = copy.deepcopy(request)
    at: Any = changed
    for step in steps[:-1]:
        at = at[step]
    at[steps[-1]] = to
    return changed


@every_dialect
def test_the_number_of_a_request_is_a_contract_between_releases(dialect: str) -> None:
    path, request = DIALECTS[dialect]
    assert fingerprint(path, request) == GOLDEN[dialect]


def test_what_is_hashed_is_the_canonical_json_of_path_and_intent() -> None:
    told = canonical_json(["/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}])
    body = b'{"messages": [{"content": "hi", "role": "user"}], "model": "m"}'
    assert intent_fingerprint("/v1/chat/completions", body) == xxh3_64_intdigest(told.encode())


@every_dialect
def test_sampling_and_transport_fields_make_no_difference(dialect: str) -> None:
    path, request = DIALECTS[dialect]
    for field, value in TRANSPORT[dialect].items():
        assert fingerprint(path, {**request, field: value}) == GOLDEN[dialect], field


@every_dialect
def test_key_order_and_whitespace_make_no_difference(dialect: str) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(item) for item in value] if isinstance(value, list) else value

    path, request = DIALECTS[dialect]
    assert intent_fingerprint(path, json.dumps(turned(request), indent=3).encode()) == GOLDEN[dialect]
    assert intent_fingerprint(path, json.dumps(request, ensure_ascii=False).encode()) == GOLDEN[dialect]


@every_dialect
def test_a_parsed_request_has_the_same_number(dialect: str) -> None:
    path, request = DIALECTS[dialect]
    assert intent_fingerprint_value(path, request) == GOLDEN[dialect]


@every_dialect
def test_another_path_is_another_intent(dialect: str) -> None:
    path, request = DIALECTS[dialect]
    assert fingerprint(path + "x", request) != GOLDEN[dialect]


@pytest.mark.parametrize(
    ("dialect", "steps", "to"),
    [
        ("chat", ("messages", 1, "content"), "Weather in Rome?"),
        ("chat", ("messages", 0, "role"), "developer"),
        ("chat", ("messages", 1, "name"), "ann"),
        ("chat", ("messages", 2, "tool_calls", 0, "function", "arguments"), '{"city":"Rome"}'),
        ("chat", ("messages", 3, "content"), "19 °C"),
        ("chat", ("messages", 3, "tool_call_id"), "call_of_another_request"),
        ("chat", ("tools", 0, "function", "name"), "forecast"),
        ("chat", ("tools",), []),
        ("chat", ("functions",), [{"name": "old"}]),
        ("responses", ("instructions",), "Be long."),
        ("responses", ("input", 0, "content"), "Weather in Rome?"),
        ("responses", ("input", 1, "name"), "forecast"),
        ("responses", ("input", 2, "output"), "19 °C"),
        ("responses", ("tools", 0, "name"), "forecast"),
        ("responses", ("previous_response_id",), "resp_1"),
        ("responses", ("conversation",), "conv_1"),
        ("responses", ("prompt",), {"id": "pmpt_1", "variables": {"a": "b"}}),
        ("anthropic", ("system",), "Be long."),
        ("anthropic", ("messages", 0, "content"), "Weather in Rome?"),
        ("anthropic", ("messages", 1, "role"), "user"),
        ("anthropic", ("messages", 1, "content", 1, "input", "city"), "Rome"),
        ("anthropic", ("messages", 2, "content", 0, "content"), "19 °C"),
        ("anthropic", ("messages", 2, "content", 0, "is_error"), True),
        ("anthropic", ("tools", 0, "input_schema", "properties", "cache_control"), {"type": "string"}),
        ("gemini", ("systemInstruction", "parts", 0, "text"), "Be long."),
        ("gemini", ("contents", 0, "parts", 0, "text"), "Weather in Rome?"),
        ("gemini", ("contents", 0, "role"), "model"),
        ("gemini", ("contents", 1, "parts", 0, "functionCall", "args"), {"city": "Rome"}),
        ("gemini", ("contents", 2, "parts", 0, "functionResponse", "response"), {"t": 19}),
        ("gemini", ("tools", 0, "functionDeclarations", 0, "name"), "forecast"),
        ("gemini", ("cachedContent",), "cachedContents/1"),
        ("ollama", ("messages", 0, "content"), "Weather in Rome?"),
        ("ollama", ("messages", 0, "images"), ["aGk="]),
        ("ollama", ("messages", 1, "tool_calls", 0, "function", "name"), "forecast"),
        ("generate", ("prompt",), "Why is the sea blue?"),
        ("generate", ("system",), "Be long."),
        ("generate", ("suffix",), "return x"),
        ("generate", ("images",), ["aGk="]),
        ("generate", ("context",), [1, 2, 3]),
    ],
)
def test_another_question_is_another_intent(dialect: str, steps: tuple[Any, ...], to: Any) -> None:
    path, request = DIALECTS[dialect]
    assert fingerprint(path, edited(request, *steps, to=to)) != GOLDEN[dialect]


@pytest.mark.parametrize(
    ("dialect", "steps", "to"),
    [
        ("chat", ("messages", 1, "content"), [{"type": "text", "text": "Weather in Paris?"}]),
        ("chat", ("messages", 2, "refusal"), None),
        ("chat", ("messages", 2, "annotations"), []),
        ("chat", ("messages", 2, "id"), "msg-made-up-by-a-framework"),
        ("responses", ("input", 0, "content"), "Weather in Paris?"),
        ("responses", ("input", 0, "type"), "message"),
        ("responses", ("input", 0, "content", 0, "type"), "text"),
        ("responses", ("input", 1, "id"), "fc_2"),
        ("responses", ("input", 1, "status"), "completed"),
        ("responses", ("input", 2, "output"), [{"type": "input_text", "text": "18 °C"}]),
        (
            "anthropic",
            ("system",),
            [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        ),
        ("anthropic", ("messages", 0, "content"), [{"type": "text", "text": "Weather in Paris?"}]),
        ("anthropic", ("messages", 1, "content", 1, "cache_control"), {"type": "ephemeral"}),
        ("anthropic", ("messages", 2, "content", 0, "content"), [{"type": "text", "text": "18 °C"}]),
        ("anthropic", ("tools", 0, "cache_control"), {"type": "ephemeral", "ttl": "1h"}),
        ("gemini", ("systemInstruction",), "Be brief."),
        ("gemini", ("systemInstruction", "role"), "system"),
        ("gemini", ("system_instruction",), {"parts": [{"text": "Be brief."}]}),
        ("gemini", ("contents", 0), {"parts": [{"text": "Weather in Paris?"}]}),
    ],
)
def test_other_ways_to_say_the_same_are_the_same_intent(dialect: str, steps: tuple[Any, ...], to: Any) -> None:
    path, request = DIALECTS[dialect]
    assert fingerprint(path, edited(request, *steps, to=to)) == GOLDEN[dialect]


def test_a_string_as_responses_input_is_one_user_message() -> None:
    short = {"model": "m", "input": "hi"}
    long = {"model": "m", "input": [{"type": "message", "role": "user", "content": "hi"}]}
    assert fingerprint("/v1/responses", short) == fingerprint("/v1/responses", long)
    assert fingerprint("/v1/responses", short) != fingerprint("/v1/responses", {"model": "m", "input": "ho"})


@pytest.mark.parametrize(
    ("dialect", "old", "new"),
    [
        ("chat", "call_7Ht", "call_9Zq"),
        ("responses", "call_1", "call_2"),
        ("anthropic", "toolu_1", "toolu_2"),
        ("gemini", "f-1", "f-2"),
    ],
)
def test_ids_that_a_model_made_up_again_make_no_difference(dialect: str, old: str, new: str) -> None:
    path, request = DIALECTS[dialect]
    body = json.dumps(request).replace(f'"{old}"', f'"{new}"')
    assert new in body
    assert intent_fingerprint(path, body.encode()) == GOLDEN[dialect]


def test_which_call_a_result_answers_is_part_of_the_intent() -> None:
    def asked(first: str, second: str) -> dict[str, Any]:
        calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ("a", "b")]
        answers = [{"role": "tool", "tool_call_id": i, "content": i} for i in (first, second)]
        return {"messages": [{"role": "assistant", "tool_calls": calls}, *answers]}

    assert fingerprint("/c", asked("a", "b")) != fingerprint("/c", asked("b", "a"))


def test_an_item_that_is_named_by_its_id_keeps_it() -> None:
    one, other = ({"model": "m", "input": [{"type": "item_reference", "id": i}]} for i in ("msg_1", "msg_2"))
    assert fingerprint("/v1/responses", one) != fingerprint("/v1/responses", other)

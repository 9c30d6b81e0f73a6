"""Calls and user turns found in OpenAI and Anthropic message histories."""

import json

import pytest

from loopfence.replay.calls import UNKNOWN, Call, Turn
from loopfence.replay.messages import calls_of_anthropic_messages, calls_of_openai_messages


def chat_call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def shape(items):
    """What a guard needs of each item."""
    return [
        ("turn", item.position)
        if isinstance(item, Turn)
        else (item.tool, item.args, item.result, item.ok, item.id, item.position)
        for item in items
    ]


def test_chat_calls_carry_arguments_result_id_and_position():
    history = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "what is on?"},
        {"role": "assistant", "content": None, "tool_calls": [chat_call("c1", "list", '{"day": "mon"}')]},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
        {"role": "assistant", "content": "Nothing is."},
        {"role": "user", "content": [{"type": "text", "text": "and tuesday?"}]},
        {"role": "assistant", "tool_calls": [chat_call("c2", "list", '{"day": "tue"}')]},
    ]
    assert shape(calls_of_openai_messages(history)) == [
        ("turn", 1),
        ("list", {"day": "mon"}, "nothing", True, "c1", 2),
        ("turn", 5),
        ("list", {"day": "tue"}, UNKNOWN, True, "c2", 6),
    ]


def test_the_session_is_on_every_item():
    history = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [chat_call("c", "f", "{}")]},
    ]
    assert [item.session for item in calls_of_openai_messages(history, "s9")] == ["s9", "s9"]
    blocks = [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]
    assert [item.session for item in calls_of_anthropic_messages(blocks, "s8")] == ["s8"]


def test_parallel_chat_calls_share_a_batch_and_get_their_own_results():
    history = [
        {"role": "assistant", "tool_calls": [chat_call("a", "f", '{"n":1}'), chat_call("b", "f", '{"n":2}')]},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "assistant", "tool_calls": [chat_call("a", "f", '{"n":1}')]},
    ]
    first, second, third = calls_of_openai_messages(history)
    assert (first.result, second.result, third.result) == ("one", "two", UNKNOWN)
    assert first.batch == second.batch != third.batch


def test_a_reused_id_gets_the_result_that_follows_it():
    history = []
    for answer in ("one", "two"):
        history.append({"role": "assistant", "tool_calls": [chat_call("call_0", "f", "{}")]})
        history.append({"role": "tool", "tool_call_id": "call_0", "content": answer})
    assert [call.result for call in calls_of_openai_messages(history)] == ["one", "two"]


def test_a_call_that_was_never_answered_does_not_take_a_later_result():
    history = [
        {"role": "assistant", "tool_calls": [chat_call("call_0", "f", "{}")]},
        {"role": "assistant", "tool_calls": [chat_call("call_0", "f", "{}")]},
        {"role": "tool", "tool_call_id": "call_0", "content": "late"},
    ]
    assert [call.result for call in calls_of_openai_messages(history)] == [UNKNOWN, "late"]


def test_function_calls_of_the_first_chat_api_are_calls():
    history = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"n": 1}'}},
        {"role": "function", "name": "f", "content": "one"},
    ]
    assert shape(calls_of_openai_messages(history)) == [("f", {"n": 1}, "one", True, None, 0)]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("", {}),
        (None, {}),
        ('{"n": 1', '{"n": 1'),
        ("[1]", [1]),
        ({"n": 1}, {"n": 1}),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=["empty", "none", "cut off", "list", "object", "deep"],
)
def test_arguments_that_are_no_json_stay_a_string(raw, value):
    history = [{"role": "assistant", "tool_calls": [chat_call("c", "f", raw)]}]
    [call] = calls_of_openai_messages(history)
    assert call.args == value


def test_a_result_in_text_parts_equals_the_same_result_as_a_string():
    parts = [{"type": "text", "text": "on"}, {"type": "text", "text": "e"}]
    history = [
        {"role": "assistant", "tool_calls": [chat_call("c", "f", "{}")]},
        {"role": "tool", "tool_call_id": "c", "content": parts},
    ]
    [call] = calls_of_openai_messages(history)
    assert call.result == "one"


def test_responses_items_are_calls():
    history = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"n": 1}', "id": "fc_1"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": '{"n": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "custom_tool_call", "call_id": "c3", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "done"},
        {"type": "local_shell_call", "call_id": "c4", "action": {"command": ["ls"]}, "status": "completed"},
        {"type": "local_shell_call_output", "call_id": "c4", "output": "a b", "status": "incomplete"},
        {"type": "mcp_call", "id": "m1", "name": "look", "arguments": "{}", "output": None, "error": "gone"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    items = list(calls_of_openai_messages(history))
    assert shape(items) == [
        ("turn", 0),
        ("f", {"n": 1}, "one", True, "c1", 2),
        ("f", {"n": 2}, "two", True, "c2", 3),
        ("patch", "*** Begin", "done", True, "c3", 6),
        ("local_shell", {"command": ["ls"]}, "a b", False, "c4", 8),
        ("look", {}, "gone", False, "m1", 10),
    ]
    batches = [item.batch for item in items if isinstance(item, Call)]
    assert batches[0] == batches[1]
    assert len(set(batches)) == 4


def test_anthropic_blocks_are_calls():
    history = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "t2", "name": "read", "input": {"path": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t2", "content": "no such file", "is_error": True},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "A"}]},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t3", "name": "read", "input": {"path": "c"}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t3", "content": "C"},
                {"type": "text", "text": "thanks, now d"},
            ],
        },
    ]
    items = list(calls_of_anthropic_messages(history))
    assert shape(items) == [
        ("turn", 0),
        ("read", {"path": "a"}, "A", True, "t1", 1),
        ("read", {"path": "b"}, "no such file", False, "t2", 1),
        ("read", {"path": "c"}, "C", True, "t3", 3),
        ("turn", 4),
    ]
    assert items[1].batch == items[2].batch != items[3].batch


@pytest.mark.parametrize(
    ("beside", "turns"),
    [
        ([{"type": "text", "text": "\n<system-reminder>be careful</system-reminder>"}], 0),
        ([{"type": "text", "text": "<system-reminder>a</system-reminder>"}, {"type": "text", "text": "go on"}], 1),
        ([{"type": "image", "source": {}}], 1),
        ([], 0),
    ],
)
def test_a_reminder_of_the_harness_is_no_turn_of_the_user(beside, turns):
    result = {"type": "tool_result", "tool_use_id": "t", "content": "A"}
    history = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}]},
        {"role": "user", "content": [result, *beside]},
    ]
    call, *rest = calls_of_anthropic_messages(history)
    assert call.result == "A"
    assert len(rest) == turns


def test_tools_run_by_the_server_are_calls_too():
    content = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "redis"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": [{"type": "web_search_result", "url": "u"}],
        },
    ]
    [call] = calls_of_anthropic_messages([{"role": "assistant", "content": content}])
    assert (call.tool, call.args, call.result) == (
        "web_search",
        {"query": "redis"},
        [{"type": "web_search_result", "url": "u"}],
    )


@pytest.mark.parametrize("parse", [calls_of_openai_messages, calls_of_anthropic_messages])
def test_what_is_no_message_is_passed_over(parse):
    junk = [
        None,
        7,
        "text",
        [],
        {},
        {"role": 3},
        {"role": "assistant", "tool_calls": "no", "content": 5},
        {"role": "assistant", "tool_calls": [None, {"function": 3}, {"function": {"name": 4}}]},
        {"role": "assistant", "content": [None, 3, {"type": 4}, {"type": "tool_use", "name": None}]},
        {"type": "function_call", "name": None},
        {"type": "function_call_output", "output": "of nothing"},
        {"role": "tool", "tool_call_id": 5, "content": "x"},
    ]
    assert list(parse(json.loads(json.dumps(junk)))) == []


def test_parsing_histories_needs_no_terminal_library():
    import subprocess
    import sys

    code = (
        "import sys, loopfence.replay.messages; "
        "print([m for m in ('redis', 'typer', 'rich', 'asyncio') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"

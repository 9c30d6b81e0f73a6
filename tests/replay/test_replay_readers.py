"""Every transcript format: its calls, their results and turns, and what in it could not be used."""

from pathlib import Path

import pytest

from loopfence.replay.calls import UNKNOWN, Problems, Turn
from loopfence.replay.files import read_calls, transcript_files

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(autouse=True)
def _in_fixtures(monkeypatch):
    monkeypatch.chdir(FIXTURES)


def read(*paths, **options):
    problems = Problems()
    return list(read_calls(transcript_files(paths), problems, **options)), problems.examples


def shape(items):
    """Session, agent, tool, arguments, result, success; a turn is its reason."""
    return [
        (item.session, item.agent, item.why)
        if isinstance(item, Turn)
        else (item.session, item.agent, item.tool, item.args, item.result, item.ok)
        for item in items
    ]


def calls(items):
    return [item for item in items if not isinstance(item, Turn)]


def test_claude_code_calls_of_the_main_agent_and_of_side_chains():
    items, problems = read("claude_code/main.jsonl", format="claude-code")
    main, lines, side = "3f1c-main", {"command": "wc -l a.py"}, "s1"
    assert shape(items) == [
        (main, None, "user turn"),
        (main, None, "Read", {"file_path": "/w/a.py"}, "x = 1", True),
        (main, None, "Read", {"file_path": "/w/a.py"}, "x = 1", True),
        (main, None, "Bash", {"command": "pytest"}, "1 failed", False),
        (main, None, "compacted"),
        (main, None, "Bash", {"command": "pytest"}, "early", True),
        (main, side, "user turn"),
        (main, None, "Task", {"prompt": "look around"}, "found a.py", True),
        (main, None, "Bash", {"command": "sleep 1"}, UNKNOWN, True),
        (main, side, "Grep", {"pattern": "x"}, "a.py", True),
        (main, "agent7", "user turn"),
        (main, "agent7", "Bash", lines, "1", True),
    ]
    assert problems == [
        "claude_code/main.jsonl:9: broken JSON",
        "claude_code/main.jsonl:10: unknown record: hologram",
        "claude_code/main.jsonl:16: result without a call",
    ]


def test_claude_code_calls_of_one_message_are_one_batch_with_its_times():
    found = calls(read("claude_code/main.jsonl")[0])
    assert [call.batch for call in found] == ["m1", "m1", "m2", "m3", "m4", "m5", "ms1", "mb1"]
    assert [call.ts for call in found[:3]] == [1777888802.0, 1777888803.0, 1777888806.0]


def test_codex_results_are_told_apart_from_their_headers():
    items, problems = read("codex/rollout-2026-06-01T08-00-00-thread-1.jsonl")
    thread, test = "thread-1", {"cmd": "cargo test"}
    assert shape(items) == [
        (thread, None, "user turn"),
        (thread, None, "exec_command", test, "1 failed\n", False),
        (thread, None, "exec_command", test, "1 failed\n", False),
        (thread, None, "shell", {"command": ["ls"]}, "a b\n", False),
        (thread, None, "shell", {"command": ["pwd"]}, "/w\n", True),
        (thread, None, "apply_patch", "*** Begin Patch", "no such file", False),
        (thread, None, "local_shell", {"type": "exec", "command": ["date"]}, "mon", True),
        (thread, None, "compacted"),
        (thread, None, "lookup", {"q": 1}, "nothing", True),
        (thread, None, "lookup", {"q": 1}, "nothing", True),
    ]
    assert problems == [
        "codex/rollout-2026-06-01T08-00-00-thread-1.jsonl:21: unknown record: dream",
        "codex/rollout-2026-06-01T08-00-00-thread-1.jsonl:22: broken JSON",
    ]


def test_codex_calls_made_before_any_answer_are_one_batch():
    found = calls(read("codex/rollout-2026-06-01T08-00-00-thread-1.jsonl")[0])
    batches = [call.batch for call in found]
    assert batches[2] == batches[3]
    assert len(set(batches)) == len(batches) - 1


def test_openai_runs_in_an_array_are_sessions_with_outcomes():
    items, problems = read("openai/runs.json")
    found = calls(items)
    assert [(call.session, call.outcome, call.position) for call in found] == [
        ("task3/trial0", "resolved", 2),
        ("task3/trial0", "resolved", 4),
        ("task3/trial1", "unresolved", 2),
        ("task3/trial1", "unresolved", 4),
        ("task3/trial1", "unresolved", 6),
        ("task3/trial1", "unresolved", 8),
    ]
    assert {(call.tool, call.args["id"], call.result) for call in found} == {("find_order", 7, "none")}
    assert problems == []


def test_openai_messages_one_a_line_are_one_history():
    found = calls(read("openai/one_message_a_line.jsonl")[0])
    assert [call.position for call in found] == [1, 3, 5, 7]
    assert {call.session for call in found} == {"openai/one_message_a_line.jsonl"}


def test_responses_items_name_their_session():
    items, _ = read("openai/responses.json")
    assert shape(items) == [
        ("resp-1", None, "user turn"),
        ("resp-1", None, "find_order", {"id": 7}, "none", True),
    ]


def test_anthropic_arguments_keep_numbers_past_64_bits_apart():
    items, problems = read("anthropic/history.json")
    city = {"city": "Rome"}
    assert shape(items) == [
        ("conv-5", None, "user turn"),
        ("conv-5", None, "weather", {**city, "station": 123456789012345678901}, "sun", True),
        ("conv-5", None, "weather", {**city, "station": 123456789012345678902}, "no such station", False),
    ]
    assert {call.outcome for call in calls(items)} == {"resolved"}
    assert problems == []


def test_gen_ai_spans_are_read_in_the_order_in_which_they_began():
    items, problems = read("otlp/gen_ai.json")
    who = ("conv-1", "weather")
    assert shape(items) == [
        (*who, "user turn"),
        (*who, "get_weather", {"city": "Rome"}, "sun", True),
        (*who, "get_time", {"zone": "UTC"}, "12:00", True),
        (*who, "get_weather", {"city": "Rome"}, UNKNOWN, False),
    ]
    first, second, third = calls(items)
    assert first.batch == second.batch == "m1"
    assert third.batch == "m2"
    assert (first.id, first.ts) == ("k1", 1780000002.0)
    assert problems == ["otlp/gen_ai.json:1: tool span without a name or arguments"]


def test_openinference_spans_take_session_and_agent_from_the_spans_around_them():
    items, problems = read("otlp/openinference.jsonl")
    assert shape(calls(items)) == [
        ("cust-4", "Triage", "lookup", {"id": "A1"}, "shipped", True),
        ("cust-4", None, "lookup", {"id": "A1"}, "shipped", True),
    ]
    assert problems == ["otlp/openinference.jsonl:3: no export of spans"]


def test_swe_agent_tool_calls_leave_demonstrations_and_observations_out():
    items, _ = read("swe_agent/tool_calls.traj")
    name = "swe_agent/tool_calls.traj"
    assert shape(items) == [(name, None, "find", {"name": "a"}, "a.py", True)] * 2
    assert {call.outcome for call in items} == {"unresolved"}


def test_swe_agent_commands_are_calls_of_their_first_word():
    assert shape(read("swe_agent/commands.traj")[0]) == [
        ("swe_agent/commands.traj", None, "ls", {"command": "ls -l"}, "a.py", True),
        ("swe_agent/commands.traj", None, "edit", {"command": "edit 1:2\nx = 2\nend_of_edit"}, "done", True),
    ]
    listed = ("swe_agent/history_only.traj", None, "ls", {"command": "ls"}, "a.py", True)
    assert shape(read("swe_agent/history_only.traj")[0]) == [listed, listed]


def test_own_rows_need_nothing_but_a_tool():
    items, problems = read("own/mixed.jsonl")
    full = items[0]
    assert (full.ts, full.run, full.agent, full.batch, full.outcome) == (10.0, "r1", "a", "3", "resolved")
    assert shape(items[2:]) == [
        ("s2", None, "g", None, "ab12", False),
        ("s2", None, "g", None, None, True),
        ("s2", None, "g", [123456789012345678901], UNKNOWN, True),
        ("own/mixed.jsonl", None, "h", "text", UNKNOWN, True),
    ]
    assert items[2].ts == 1767323045.0
    assert problems == [
        "own/mixed.jsonl:3: broken JSON",
        "own/mixed.jsonl:4: no tool named",
        "own/mixed.jsonl:9: no tool named",
    ]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("own/mixed.jsonl", "loopfence"),
        ("codex/rollout-2026-06-01T08-00-00-thread-1.jsonl", "codex"),
        ("claude_code/main.jsonl", "claude-code"),
        ("otlp/gen_ai.json", "otlp"),
        ("otlp/openinference.jsonl", "otlp"),
        ("swe_agent/tool_calls.traj", "swe-agent"),
        ("swe_agent/history_only.traj", "swe-agent"),
        ("anthropic/history.json", "anthropic"),
        ("openai/runs.json", "openai"),
        ("openai/responses.json", "openai"),
        ("openai/requests.jsonl", "openai"),
        ("openai/one_message_a_line.jsonl", "openai"),
    ],
)
def test_the_format_is_found_and_is_the_one_that_can_be_named(file, name):
    found = read(file)
    assert found == read(file, format=name)
    assert calls(found[0])


def test_a_named_format_is_not_second_guessed():
    items, problems = read("openai/runs.json", format="loopfence")
    assert items == []
    assert problems == [
        "openai/runs.json:2: no tool named",
        "openai/runs.json:55: no tool named",
    ]


def test_a_conversation_without_tools_is_read_and_empty():
    items, problems = read("openai/nothing_called_yet.jsonl")
    assert calls(items) == []
    assert problems == []


def test_a_file_of_no_known_format_is_named(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "app", "version": "1"}')
    (tmp_path / "empty.jsonl").write_text("")
    items, problems = read(tmp_path)
    assert items == []
    assert problems == [
        f"{tmp_path}/empty.jsonl:1: no known transcript format",
        f"{tmp_path}/package.json:1: no known transcript format",
    ]


def test_folders_globs_and_sub_agents_stand_for_their_files_once():
    assert [str(f) for f in transcript_files(["claude_code"])] == [
        "claude_code/main.jsonl",
        "claude_code/main/subagents/agent-7.jsonl",
        "claude_code/resumed.jsonl",
    ]
    assert [str(f) for f in transcript_files(["claude_code/m*.jsonl"])] == [
        "claude_code/main.jsonl",
        "claude_code/main/subagents/agent-7.jsonl",
    ]
    assert [str(f) for f in transcript_files(["**/*.traj", "swe_agent", "./swe_agent/commands.traj"])] == [
        "swe_agent/commands.traj",
        "swe_agent/history_only.traj",
        "swe_agent/tool_calls.traj",
    ]


def test_a_path_without_files_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no transcript file at nowhere"):
        transcript_files(["own", "nowhere"])
    with pytest.raises(FileNotFoundError, match="no transcript file at"):
        transcript_files([tmp_path])


def test_a_file_that_cannot_be_read_is_a_problem_and_the_next_one_is_read():
    problems = Problems()
    items = list(read_calls([Path("gone.jsonl"), Path("openai/responses.json")], problems))
    assert problems.examples == ["gone.jsonl:1: cannot be read: No such file or directory"]
    assert [call.tool for call in calls(items)] == ["find_order"]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("10", 10.0),
        ("-2.5", -2.5),
        ("1767323045", 1767323045.0),
        ("1767323045123", 1767323045.123),
        ("1767323045123456", 1767323045.123456),
        ("1767323045000000000", 1767323045.0),
        ('"2026-01-02T03:04:05Z"', 1767323045.0),
        ('"2026-01-02T05:04:05+02:00"', 1767323045.0),
        ('"2026-01-02T03:04:05"', 1767323045.0),
        ('"0001-01-01T00:00:00+23:00"', -62135679600.0),
        ('"yesterday"', None),
        ("NaN", None),
        ("-Infinity", None),
        ("1e300", None),
        ("1" + "0" * 400, None),
        ("true", None),
        ("[]", None),
    ],
)
def test_times_are_seconds_whatever_wrote_them(tmp_path, written, seconds):
    (tmp_path / "a.jsonl").write_text(f'{{"tool": "f", "args": {{}}, "ts": {written}}}\n')
    [call], problems = read(tmp_path)
    assert call.ts == seconds
    assert problems == []


def test_reading_is_lazy(tmp_path):
    row = b'{"session": "s", "tool": "f", "args": {}}\n'
    long = tmp_path / "long.jsonl"
    long.write_bytes(row * 200_000)
    told = []
    items = read_calls([long], Problems(), advance=told.append)
    next(items)
    assert sum(told) < long.stat().st_size / 4
    for _ in items:
        pass
    assert sum(told) == long.stat().st_size

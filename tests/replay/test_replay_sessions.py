"""Calls are sorted by session, and what was recorded twice counts once."""

import json
from pathlib import Path

import pytest

from loopfence.replay import sessions
from loopfence.replay.calls import Call, Problems, Turn
from loopfence.replay.files import read_calls, transcript_files
from loopfence.replay.sessions import follow

FIXTURES = Path(__file__).parent / "fixtures"


class Listing:
    """A follower that notes what it is told."""

    def __init__(self):
        self.ended = []

    def begin(self, key):
        return (key, [])

    def take(self, state, item):
        state[1].append(item)

    def end(self, state):
        self.ended.append(state)


def followed(*paths, fields=("session", "run", "agent"), items=None):
    listing = Listing()
    files = transcript_files([FIXTURES / path for path in paths])
    duplicates = follow(items or read_calls(files, Problems()), listing, fields)
    return listing.ended, duplicates


def test_interleaved_sessions_are_kept_apart_in_their_order():
    items = [Call(f"s{n % 3}", "f", {"n": n}) for n in range(9)]
    ended, _ = followed(items=items)
    assert [(key["session"], [c.args["n"] for c in found]) for key, found in ended] == [
        ("s0", [0, 3, 6]),
        ("s1", [1, 4, 7]),
        ("s2", [2, 5, 8]),
    ]


def test_a_session_is_made_up_of_the_fields_that_are_asked_for():
    items = [Call("s", "f", {}, run="r", agent=agent) for agent in ("a", "b", None)]
    assert [key for key, _ in followed(items=items)[0]] == [
        {"session": "s", "run": "r", "agent": "a"},
        {"session": "s", "run": "r", "agent": "b"},
        {"session": "s", "run": "r", "agent": None},
    ]
    assert [key for key, _ in followed(items=items, fields=["run"])[0]] == [{"run": "r"}]


def test_beyond_the_limit_the_session_longest_without_a_call_ends(monkeypatch):
    monkeypatch.setattr(sessions, "OPEN_SESSIONS", 2)
    names = ["a", "b", "a", "c", "a", "b"]
    ended, _ = followed(items=[Call(name, "f", {}) for name in names])
    assert [(key["session"], len(found)) for key, found in ended] == [("b", 1), ("c", 1), ("a", 3), ("b", 1)]


def test_a_row_that_is_written_twice_counts_once(tmp_path):
    row = {"session": "s", "seq": 0, "tool": "f", "args": {}}
    rows = [row, row, {**row, "seq": 1}, row]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "b.jsonl").write_text(json.dumps(row) + "\n")
    [(_, found)], duplicates = followed(tmp_path)
    assert (len(found), duplicates) == (2, 3)


def test_equal_rows_without_a_number_are_calls_of_their_own(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"session": "s", "tool": "f", "args": {}}\n' * 3)
    [(_, found)], duplicates = followed(tmp_path)
    assert (len(found), duplicates) == (3, 0)


def test_a_resumed_claude_code_session_adds_only_what_is_new():
    ended, duplicates = followed("claude_code/main.jsonl", "claude_code/resumed.jsonl")
    resumed = {key["session"]: found for key, found in ended if key["agent"] is None}["9d2e-resumed"]
    assert [(call.tool, call.args) for call in resumed] == [("Read", {"file_path": "/w/b.py"})]
    assert duplicates == 3


def test_a_forked_codex_thread_adds_only_what_is_new():
    ended, duplicates = followed("codex")
    forked = {key["session"]: found for key, found in ended}["thread-2"]
    assert [(call.tool, call.result) for call in forked if isinstance(call, Call)] == [("exec_command", "ok\n")]
    assert duplicates == 2


def test_an_id_that_a_model_reuses_hides_no_call():
    ended, _ = followed("codex/rollout-2026-06-01T08-00-00-thread-1.jsonl")
    assert [call.id for call in ended[0][1] if isinstance(call, Call)][-2:] == ["call_0", "call_0"]
    ended, duplicates = followed("openai/one_message_a_line.jsonl")
    assert [item.id for item in ended[0][1] if isinstance(item, Call)] == ["call_0"] * 4
    assert duplicates == 0


def test_logged_requests_that_repeat_their_history_count_each_call_once():
    [(key, found)], duplicates = followed("openai/requests.jsonl")
    assert key["session"] == "chat-9"
    assert [item.position for item in found] == [0, 1, 3, 5]
    assert isinstance(found[0], Turn)
    assert duplicates == 3


def test_a_history_whose_oldest_part_was_cut_off_adds_nothing_twice(tmp_path):
    def turn(text):
        return {"role": "user", "content": text}

    def called(call_id, day):
        function = {"name": "list", "arguments": json.dumps({"day": day})}
        yield {"role": "assistant", "tool_calls": [{"id": call_id, "function": function}]}
        yield {"role": "tool", "tool_call_id": call_id, "content": "none"}

    whole = [turn("a"), *called("c1", 1), *called("c2", 2), turn("b"), *called("c3", 3), *called("c4", 3)]
    cut = [*whole[3:], *called("c5", 3)]
    rows = [{"session_id": "s", "messages": messages} for messages in (whole, cut)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [(_, found)], duplicates = followed(tmp_path)
    assert [item.id if isinstance(item, Call) else "turn" for item in found] == [
        *("turn", "c1", "c2", "turn", "c3", "c4", "c5"),
    ]
    assert duplicates == 3


@pytest.mark.parametrize("kept", [10, 25])
def test_the_memory_of_what_was_seen_is_bounded_but_reaches_back(monkeypatch, kept):
    monkeypatch.setattr(sessions, "_REMEMBERED", kept)
    recent = sessions._Recent()
    assert not any(recent.before(n) for n in range(200))
    assert all(recent.before(n) for n in range(199, 199 - kept, -1))
    assert not recent.before(0)
    assert len(recent._new) + len(recent._old) <= 2 * kept

"""`loopfence hook`: every event is a real process, over a real Redis, with the payloads that the agents send."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from coding_agents import AGENTS, ClaudeCode, Codex, CodingAgent, Gemini

from loopfence import LoopGuard, Policy, ToolRule
from loopfence.integrations import presets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from servers import RedisServer

LOOK = {"command": "git status"}
WRITE = {"command": "echo x > a.txt"}
NOT_RUN = "This call was not run."


@pytest.fixture(params=AGENTS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> type[CodingAgent]:
    return request.param


@pytest.fixture
def url(newest_server: RedisServer) -> str:
    return newest_server.url


@pytest.fixture
def agent(kind: type[CodingAgent], url: str) -> CodingAgent:
    return kind(url)


def allowed(agent: CodingAgent, *calls: tuple[Any, ...]) -> list[bool]:
    return [agent.call(*call) is None for call in calls]


# -- a, and c: no two calls are of one process
def test_the_third_equal_call_is_denied_with_a_reason_for_the_model(agent: CodingAgent) -> None:
    look = (agent.shell, LOOK)
    assert allowed(agent, look, look) == [True, True]
    reason = agent.call(*look)
    assert reason is not None
    assert reason.startswith(f"{NOT_RUN} '{agent.shell}' was called 3 times with the same arguments")
    assert "git status" not in reason
    assert "called 4 times" in (agent.call(*look) or "")
    assert agent.stderr == []


# -- b
def test_equal_calls_with_changing_results_are_never_denied(agent: CodingAgent) -> None:
    assert allowed(agent, *[(agent.shell, LOOK, f"{number} files changed") for number in range(4)]) == [True] * 4


# -- d
@pytest.mark.parametrize("kind", [ClaudeCode, Codex], ids=lambda kind: kind.name)
def test_a_hook_that_is_installed_twice_counts_a_call_once(agent: CodingAgent) -> None:
    for number in range(2):
        call_id = f"toolu_{number:024d}"
        for _ in range(2):
            assert agent.send(agent.before(agent.shell, LOOK, call_id)) is None
        for _ in range(2):
            assert agent.send(agent.after(agent.shell, LOOK, "the same", call_id)) is None
    assert agent.call(agent.shell, LOOK) is not None


@pytest.mark.parametrize("kind", [ClaudeCode, Codex], ids=lambda kind: kind.name)
@pytest.mark.parametrize("call_id", ["call_0", "functions.Bash:0", "7"])
def test_call_ids_that_a_model_uses_again_do_not_hide_a_loop(agent: CodingAgent, call_id: str) -> None:
    look = (agent.shell, LOOK, "the same", call_id)
    assert allowed(agent, look, look, look) == [True, True, False]


def test_without_call_ids_the_latest_call_that_was_not_reported_is_meant(url: str) -> None:
    agent, guard = Gemini(url), LoopGuard(url)
    before, after = agent.before(agent.shell, LOOK, ""), agent.after(agent.shell, LOOK, "the same", "")

    def reported() -> list[bool]:
        return [call.reported for call in guard.session(agent.session).snapshot().calls]

    agent.send(before)  # and the agent is killed
    agent.send({**before, "tool_input": {**LOOK, "description": "anew"}})
    agent.send(after)
    assert reported() == [False, True]
    agent.send(after)  # of two that ran side by side
    assert reported() == [True, True]


# -- e
def test_a_stop_ends_the_run_where_the_agent_can_be_told_to(kind: type[CodingAgent], url: str) -> None:
    agent = kind(f"{url}?threshold=2&stop=3")
    allowed(agent, (agent.shell, LOOK), (agent.shell, LOOK))
    answer = agent.send(agent.before(agent.shell, LOOK, "call_0123456789"))
    assert answer is not None
    assert "3 times" in agent.denied(answer)
    ends = {key: value for key, value in answer.items() if key in ("continue", "stopReason")}
    if kind is Codex:
        assert ends == {}
    else:
        assert ends["continue"] is False
        assert ends["stopReason"].endswith(f"To let it go on: loopfence resume {agent.session}")
    assert "halted" in (agent.call("Read", {"file_path": "other"}) or "")


# -- f
@pytest.mark.parametrize(("on_outage", "runs"), [("local", True), ("allow", True), ("raise", True), ("block", False)])
def test_with_redis_gone_the_outage_policy_decides(
    on_outage: str, runs: bool, start_server: Callable[..., RedisServer]
) -> None:
    server = start_server()
    agent = ClaudeCode(f"{server.url}?on_outage={on_outage}")
    look = (agent.shell, LOOK)
    assert allowed(agent, look, look) == [True, True]
    assert agent.stderr == []
    server.kill()
    answer = agent.send(agent.before(agent.shell, LOOK, "call_0123456789"))
    assert (answer is None) is runs
    assert len(agent.stderr) == 1
    assert agent.stderr[0].startswith("loopfence: Redis is unavailable")


# -- g
def test_two_chats_do_not_mix(kind: type[CodingAgent], url: str) -> None:
    look = (kind.shell, LOOK)
    first, second = kind(url, session="s1"), kind(url, session="s2")
    assert allowed(first, look, look) == allowed(second, look, look) == [True, True]
    assert allowed(first, look) == [False]


@pytest.mark.parametrize("kind", [ClaudeCode, Codex], ids=lambda kind: kind.name)
def test_a_sub_agent_counts_for_itself_under_the_same_session(kind: type[CodingAgent], url: str) -> None:
    look = (kind.shell, LOOK)
    main, child = kind(url, session="s1"), kind(url, session="s1", subagent="a7")
    assert allowed(main, look, look) == allowed(child, look, look) == [True, True]
    assert allowed(child, look) == allowed(main, look) == [False]
    assert sorted(LoopGuard(url).sessions()) == ["s1", "s1/a7"]


# -- h
def test_the_same_look_in_three_user_turns_is_no_loop(agent: CodingAgent) -> None:
    for _ in range(3):
        agent.user_says("And now?")
        assert allowed(agent, (agent.shell, LOOK), (agent.shell, LOOK)) == [True, True]
    assert allowed(agent, (agent.shell, LOOK)) == [False]


@pytest.mark.parametrize("kind", [ClaudeCode, Codex], ids=lambda kind: kind.name)
def test_a_compacted_context_is_progress(agent: CodingAgent) -> None:
    look = (agent.shell, LOOK)
    allowed(agent, look, look)
    assert agent.send({"session_id": agent.session, "hook_event_name": "PreCompact", "trigger": "auto"}) is None
    assert allowed(agent, look) == [True]


def test_what_gemini_sends_before_every_request_to_its_model_is_no_progress(url: str) -> None:
    agent = Gemini(url)
    look = (agent.shell, LOOK)
    allowed(agent, look, look)
    assert agent.send({"session_id": agent.session, "hook_event_name": "PreCompress", "trigger": "auto"}) is None
    assert allowed(agent, look) == [False]


def test_an_edit_is_progress(agent: CodingAgent) -> None:
    look = (agent.shell, LOOK)
    assert allowed(agent, look, look, agent.edit, look, look, look) == [True] * 5 + [False]


def test_an_edit_that_fails_is_no_progress(agent: CodingAgent) -> None:
    look = (agent.shell, LOOK)
    assert allowed(agent, look, look, (*agent.edit, None), look) == [True, True, True, False]


def test_a_writing_shell_command_is_progress(agent: CodingAgent) -> None:
    look = (agent.shell, LOOK)
    assert allowed(agent, look, look, (agent.shell, WRITE), look) == [True] * 4


@pytest.mark.parametrize("kind", [ClaudeCode, Gemini], ids=lambda kind: kind.name)
def test_a_shell_command_that_fails_to_write_is_no_progress(agent: CodingAgent) -> None:
    look = (agent.shell, LOOK)
    assert allowed(agent, look, look, (agent.shell, WRITE, None), look) == [True, True, True, False]


def test_how_long_a_command_took_is_no_other_result(agent: CodingAgent) -> None:
    calls = [(agent.shell, {"command": "pytest"}, f"3 passed in {seconds}s") for seconds in ("0.05", "0.07", "1.2")]
    assert allowed(agent, *calls) == [True, True, False]


@pytest.mark.parametrize("kind", [ClaudeCode, Gemini], ids=lambda kind: kind.name)
def test_the_models_own_comment_on_a_command_is_no_other_command(agent: CodingAgent) -> None:
    calls = [(agent.shell, {**LOOK, "description": f"Look, try {number}"}) for number in range(3)]
    assert allowed(agent, *calls) == [True, True, False]


def test_a_file_that_claude_code_says_is_unchanged_is_no_other_result(url: str) -> None:
    agent = ClaudeCode(url)
    full = {"type": "text", "file": {"filePath": "/a", "content": "x"}}
    for number, response in enumerate([full, {"type": "file_unchanged", "file": {"filePath": "/a"}}]):
        assert agent.send(agent.before("Read", {"file_path": "/a"}, f"toolu_{number:024d}")) is None
        told = agent.after("Read", {"file_path": "/a"}, "", f"toolu_{number:024d}")
        agent.send({**told, "tool_response": response})
    assert agent.call("Read", {"file_path": "/a"}) is not None


def test_a_server_that_is_started_again_in_the_background_is_no_other_result(url: str) -> None:
    agent, start = ClaudeCode(url), {"command": "npm run dev", "run_in_background": True}
    for number in range(2):
        call_id = f"toolu_{number:024d}"
        assert agent.send(agent.before("Bash", start, call_id)) is None
        told = agent.after("Bash", start, "", call_id)
        agent.send({**told, "tool_response": {**told["tool_response"], "backgroundTaskId": f"b{number}wkhu6l4"}})
    assert agent.call("Bash", start) is not None


def test_a_command_that_the_user_interrupted_has_failed(url: str) -> None:
    agent, look = ClaudeCode(url), ("Bash", LOOK)
    allowed(agent, look, look)
    call_id = "toolu_000000000000"
    agent.send(agent.before("Bash", WRITE, call_id))
    told = agent.after("Bash", WRITE, "", call_id)
    agent.send({**told, "tool_response": {**told["tool_response"], "interrupted": True}})
    assert allowed(agent, look) == [False]


def test_looking_at_a_background_command_is_paced() -> None:
    for rules, tool in ((presets.CLAUDE_CODE, "BashOutput"), (presets.GEMINI, "read_background_output")):
        now = [0.0]
        run = LoopGuard("memory://", tools=rules, clock=lambda now=now: now[0])
        for _ in range(5):
            assert run.check(tool, {"id": 1}).allowed
            now[0] += presets.POLL_SECONDS
        fast = []
        for _ in range(3):
            now[0] += 0.5
            fast.append(run.check(tool, {"id": 1}).allowed)
        assert fast == [True, True, False] or fast == [True, False, False]


def test_own_rules_go_over_a_preset_and_come_first() -> None:
    rules = presets.combine({"Bash": ToolRule(pace=30), "mcp__*": ToolRule(exempt=True)}, presets.CLAUDE_CODE)
    policy = Policy(tools=rules)
    assert policy.limits("Bash").rule == ToolRule(pace=30)
    assert policy.limits("mcp__web__search").rule.exempt
    assert policy.limits("Edit").rule.progress is True
    assert policy.limits("Read").rule == presets.CLAUDE_CODE["*"]


def test_a_policy_file_goes_over_the_preset_and_the_url(kind: type[CodingAgent], url: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('threshold = 2\n[tools."mcp__*"]\nexempt = true\n')
    agent = kind(f"{url}?threshold=5&window=6", options=("--policy", str(file)))
    edit = agent.edit
    look, other = (agent.shell, LOOK), ("mcp__web__search", {"q": "x"})
    assert allowed(agent, look, edit, look, look) == [True, True, True, False]
    assert allowed(agent, other, other, other) == [True] * 3


def test_shadow_mode_and_a_warning_change_nothing_for_the_agent(kind: type[CodingAgent], url: str) -> None:
    shadow = kind(f"{url}?threshold=2&enforce=false", session="s1")
    warned = kind(f"{url}?warn=2&threshold=4", session="s2")
    look = (kind.shell, LOOK)
    assert allowed(shadow, look, look, look) == allowed(warned, look, look, look) == [True] * 3


# -- never breaking the agent


def test_without_a_url_the_user_is_told_once_a_session(kind: type[CodingAgent], tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path)}
    agent = kind("", session="s1")
    said = agent.send(agent.turn("Hello"), env=env)
    assert said is not None
    assert said.keys() == {"systemMessage"}
    assert "Set LOOPFENCE_URL, for example to redis://localhost:6379/0" in said["systemMessage"]
    assert len(agent.stderr) == 1
    for url in ({}, {"LOOPFENCE_URL": ""}, {"LOOPFENCE_URL": "memory://"}):
        assert agent.send(agent.before(agent.shell, LOOK, "call_0123456789"), env={**env, **url}) is None
    assert len(agent.stderr) == 1
    other = kind("", session="s2")
    assert other.send(other.turn("Hello"), env=env) == said


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b"[" * 200_000,
        b'{"hook_event_name": "PreToolUse", "session_id": "s"}',
        b'{"hook_event_name": "PreToolUse", "session_id": "", "tool_name": "Bash", "tool_input": {}}',
        b'{"hook_event_name": "PreToolUse", "session_id": 7, "tool_name": "Bash", "tool_input": {}}',
        b'{"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "", "tool_input": {}}',
        json.dumps({"hook_event_name": "PreToolUse", "session_id": "s" * 600, "tool_name": "Bash"}).encode(),
    ],
    ids=range(12),
)
def test_a_payload_that_makes_no_sense_is_one_line_on_stderr(payload: bytes, url: str) -> None:
    agent = ClaudeCode(url)
    assert agent.send(payload) is None
    assert len(agent.stderr) == 1
    assert agent.stderr[0].startswith("loopfence: not guarded: ")


def test_events_that_do_not_matter_are_passed_over(agent: CodingAgent) -> None:
    for event in ("SessionStart", "Stop", "Notification", "SomethingNew"):
        assert agent.send({"session_id": "s", "hook_event_name": event}) is None
    assert agent.stderr == []


def test_any_arguments_that_json_can_say_are_guarded(agent: CodingAgent) -> None:
    strange = {"text": "\ud800 \u2028 é", "number": 10**30, "nan": float("nan"), "deep": [[[{}]]], "": None}
    call = ("mcp__x__y", strange)
    assert allowed(agent, call, call, call) == [True, True, False]


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis://127.0.0.1/0?threshold=1", "threshold must be >= 2 (got 1)"),
        ("nonsense://x", "url must start with"),
        ("redis://user:secret@127.0.0.1:1/0?on_outage=raise", "Redis is unavailable"),
    ],
)
def test_a_bad_setting_is_one_line_without_a_password(url: str, complaint: str) -> None:
    agent = ClaudeCode(url)
    assert agent.send(agent.before("Bash", LOOK, "call_0123456789")) is None
    assert len(agent.stderr) == 1
    assert complaint in agent.stderr[0]
    assert "secret" not in agent.stderr[0]


def test_a_policy_file_that_is_missing_is_one_line(url: str) -> None:
    agent = ClaudeCode(url, options=("--policy", "/no/such/file.toml"))
    assert agent.call("Bash", LOOK) is None
    assert all("cannot read the policy /no/such/file.toml" in line for line in agent.stderr)


def test_the_url_option_goes_before_the_environment(newest_server: RedisServer) -> None:
    agent = ClaudeCode("redis://127.0.0.1:1/0", options=(f"--url={newest_server.url}",))
    assert agent.call("Bash", LOOK) is None
    assert agent.stderr == []
    assert list(LoopGuard(newest_server.url).sessions()) == [agent.session]

"""Agents of the Claude Agent SDK under the guard: the real Claude Code, offline, with a scripted API on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from coding_agents import LOOPFENCE
from scripted_claude import ScriptedClaude
from story import DONE, NOT_RUN, READ, SAME, App, Run, Story, Tools, each

from loopfence import LoopGuard, ToolRule

pytest.importorskip("claude_agent_sdk", reason="needs the extra: pip install 'loopfence[claude-agent]'")

import claude_agent_sdk
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    HookMatcher,
    ResultMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

from loopfence.integrations import presets
from loopfence.integrations.claude_agent import LoopGuardHooks

EXAMPLES = Path(__file__).parents[2] / "examples"

if TYPE_CHECKING:
    from collections.abc import Sequence

    from story import Turn

    from servers import RedisServer

# A run starts a Claude Code and takes about a second, on a busy machine many.
pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::ResourceWarning")]

PREFIX = "mcp__story__"
ALLOWED = ["Bash", "Edit", "Read", "Task", "Write", PREFIX + "read", PREFIX + "write"]


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("ANTHROPIC_", "CLAUDE")):
            monkeypatch.delenv(name)


class ClaudeApp(App):
    """An agent with the story's tools, as an MCP server in this process: there they are called mcp__story__read."""

    def __init__(self, tools: Tools, hooks: LoopGuardHooks) -> None:
        self.hooks = hooks
        self.folder = Path(tempfile.mkdtemp(prefix="claude-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.server = create_sdk_mcp_server("story", tools=[_tool(tools, "read"), _tool(tools, "write")])
        self.chats: dict[str, str] = {}

    def run(self, turns: Sequence[Turn], *, thread: str | None = None, mode: str = "async") -> Run:
        named = [[(PREFIX + name if name.islower() else name, args) for name, args in turn] for turn in turns]
        return asyncio.run(self.converse(named, thread))

    async def converse(self, turns: Sequence[Turn], thread: str | None) -> Run:
        run, open_calls, answered = Run(), set(), set()
        with ScriptedClaude(turns) as model:
            options = ClaudeAgentOptions(
                hooks=self.hooks,
                mcp_servers={"story": self.server},
                allowed_tools=ALLOWED,
                setting_sources=[],
                env=model.env(self.folder),
                cwd=self.folder,
                resume=self.chats.get(thread) if thread else None,
            )
            async for message in query(prompt="Go on.", options=options):
                if isinstance(message, AssistantMessage):
                    open_calls |= {block.id for block in message.content if isinstance(block, ToolUseBlock)}
                elif isinstance(message, UserMessage) and isinstance(message.content, list):
                    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
                    answered |= {block.tool_use_id for block in results}
                    run.seen += [_seen(block) for block in results]
                elif isinstance(message, ResultMessage):
                    run.final = message.result
                    reason = self.hooks.stopped(message.session_id)
                    run.stop = reason["message"].replace(PREFIX, "") if reason is not None else None
                    if hasattr(message, "terminal_reason"):  # SDKs of old do not tell
                        assert (message.terminal_reason == "hook_stopped") == (reason is not None)
                    if thread:
                        self.chats[thread] = message.session_id
        run.model_turns, run.orphans = model.asked, len(open_calls - answered)
        return run


def _tool(tools: Tools, name: str) -> Any:
    @tool(name, "A tool of the story.", {"path": str})
    async def call(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": tools.run(name)}]}

    return call


def _seen(block: ToolResultBlock) -> str:
    """What the model saw, without Claude Code's own words before it and the MCP server's name in it."""
    text = block.content if isinstance(block.content, str) else "".join(part["text"] for part in block.content or [])
    return text.rpartition(" hook error: ")[2].replace(PREFIX, "")


def claude_app(tools: Tools, url: str | None = None, **options: Any) -> ClaudeApp:
    policy = options.pop("policy", None)
    if policy is not None and policy.tools:
        policy = policy.override(tools={PREFIX + glob: rule for glob, rule in policy.tools.items()})
    return ClaudeApp(tools, LoopGuardHooks(url, policy=policy, **options))


class TestStory(Story):
    modes: ClassVar[tuple[str, ...]] = ("async",)
    app = staticmethod(claude_app)  # type: ignore[assignment]

    def test_parallel_equal_calls_of_one_turn_are_one_occurrence(self, mode: str) -> None:
        """They are not, here: the hooks do not tell which calls are of one turn, so each of them counts."""
        tools = Tools()
        run = self.app(tools, "memory://").run([[READ] * 3, [READ]], mode=mode)
        assert tools.ran == ["read", "read"]
        assert [text.startswith(NOT_RUN) for text in run.seen] == [False, False, True, True]

    def test_after_a_stop_the_chat_goes_on_with_the_next_thing_the_user_says(self, mode: str) -> None:
        """It does so once the session is resumed, for here a chat is one session."""
        tools, guard = Tools(), LoopGuard("memory://", threshold=2, stop=3)
        app = claude_app(tools, guard=guard)
        assert app.run(each(READ, READ, READ), thread="chat-2").stop is not None
        guard.session(app.chats["chat-2"]).resume()
        app.hooks = LoopGuardHooks(guard=guard)
        run = app.run(each(READ), thread="chat-2")
        assert (run.seen, run.final, run.stop) == ([SAME], DONE, None)


def ran(run: Run) -> list[bool]:
    return [not text.startswith(NOT_RUN) for text in run.seen]


def test_writing_a_file_is_progress_with_the_presets_alone() -> None:
    app = claude_app(Tools(), "memory://")
    write = ("Write", {"file_path": str(app.folder / "new.txt"), "content": "x"})
    run = app.run(each(READ, READ, write, READ, READ, READ))
    assert ran(run) == [True, True, True, True, True, False]
    assert (app.folder / "new.txt").read_text() == "x"


def test_a_writing_shell_command_is_progress_and_its_description_says_nothing() -> None:
    app = claude_app(Tools(), "memory://")
    look = [("Bash", {"command": "ls /", "description": f"Look, try {number}"}) for number in range(5)]
    run = app.run(each(look[0], look[1], ("Bash", {"command": "echo x > new.txt"}), look[2], look[3], look[4]))
    assert ran(run) == [True, True, True, True, True, False]


def test_a_shell_command_that_fails_to_write_is_no_progress() -> None:
    app = claude_app(Tools(), "memory://")
    look = ("Bash", {"command": "ls /"})
    run = app.run(each(look, look, ("Bash", {"command": "echo x > no/such/folder"}), look))
    assert ran(run) == [True, True, True, False]


def test_own_tool_rules_go_over_the_presets() -> None:
    hooks = LoopGuardHooks("memory://", tools={"Bash": ToolRule(pace=30), "mcp__*": ToolRule(exempt=True)})
    app = ClaudeApp(Tools(), hooks)
    look = ("Bash", {"command": "ls /", "description": "Look"})
    other = ("Bash", {"command": "ls /", "description": "Look again"})
    run = app.run(each(READ, READ, READ, look, other, look, other, look))
    assert ran(run) == [True] * 7 + [False]  # exempt; and without the preset's `ignore` these are two commands


def test_a_ready_guard_is_taken_as_it_is() -> None:
    app = claude_app(Tools(), guard=LoopGuard("memory://", threshold=2))
    run = app.run(each(("Bash", {"command": "echo x > a"}), READ, ("Bash", {"command": "echo x > b"}), READ))
    assert ran(run) == [True, True, True, False]


def test_a_sub_agent_counts_for_itself() -> None:
    tools, guard = Tools(), LoopGuard("memory://", tools=presets.CLAUDE_CODE)
    app = claude_app(tools, guard=guard)
    task = ("Task", {"description": "d", "prompt": "p", "subagent_type": "general-purpose", "run_in_background": False})
    run = app.run([[READ], [READ], [task], [READ], [READ], [], []], thread="main")
    assert run.final == DONE
    assert tools.ran == ["read"] * 4
    main, child = sorted(guard.sessions(), key=len)
    assert main == app.chats["main"]
    assert child.startswith(f"{main}/")
    assert [call.tool for call in guard.session(child).snapshot().calls] == [PREFIX + "read"] * 2
    assert [call.tool for call in guard.session(main).snapshot().calls] == [PREFIX + "read"] * 2 + ["Agent"]


def test_a_call_that_the_guard_lets_through_still_needs_the_permission_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("test_claude_agent.ALLOWED", [])
    tools = Tools()
    run = claude_app(tools, "memory://").run(each(READ, READ))
    assert tools.ran == []
    assert len(run.seen) == 2


async def test_calls_that_never_end_are_forgotten() -> None:
    hooks = LoopGuardHooks("memory://")
    matcher: HookMatcher = hooks["PreToolUse"][0]
    payload = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Read"}
    for number in range(1100):
        asked: Any = {**payload, "tool_input": {"file_path": str(number)}, "tool_use_id": f"toolu_{number:012d}"}
        assert await matcher.hooks[0](asked, asked["tool_use_id"], {"signal": None}) == {}
    assert len(hooks._running) == 1024


def test_the_hooks_are_those_of_the_events_that_matter() -> None:
    events = {"PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "PreCompact"}
    assert set(LoopGuardHooks("memory://")) == events


def test_the_example_shows_a_loop_being_cut() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "claude_agent.py"], capture_output=True, text=True, timeout=240, check=True
    )
    lines = done.stdout.splitlines()
    assert sum("the search tool runs" in line for line in lines) == 2
    assert sum(NOT_RUN in line for line in lines) == 3
    assert lines[-1].startswith("The run was ended by the rule 'repeat' of session ")


def test_claude_code_itself_is_cut_by_the_command_hooks(tmp_path: Path, newest_server: RedisServer) -> None:
    look = ("Bash", {"command": "ls", "description": "Look"})
    with ScriptedClaude([[look]] * 4) as model:
        env = {**model.env(tmp_path), "PATH": os.environ["PATH"]}
        install = [LOOPFENCE, "hook", "install", "claude-code", "--url", newest_server.url]
        subprocess.run(install, env=env, stdout=subprocess.DEVNULL, timeout=60, check=True)
        claude = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
        done = subprocess.run(
            [claude, "-p", "Go on.", "--allowedTools", "Bash", "--output-format", "stream-json", "--verbose"],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=True,
        )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    results = [m["message"]["content"][0]["content"] for m in messages if m["type"] == "user"]
    assert [NOT_RUN in result for result in results] == [False, False, True, True]
    assert messages[-1]["result"] == DONE
    assert model.asked == 5

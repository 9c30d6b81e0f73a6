"""`loopfence hook install`: settings files of users, which are theirs."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from coding_agents import AGENTS, LOOPFENCE, CodingAgent

if TYPE_CHECKING:
    from pathlib import Path

    from servers import RedisServer

OTHERS = {
    "model": "opus",
    "permissions": {"allow": ["Bash(ls:*)"]},
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check é"}]}],
        "BeforeTool": [{"matcher": "x", "hooks": []}],
        "Stop": [],
    },
}
EVENTS = {
    "claude-code": ["PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "PreCompact"],
    "codex": ["PreToolUse", "PostToolUse", "UserPromptSubmit", "PreCompact"],
    "gemini": ["BeforeTool", "AfterTool", "BeforeAgent"],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.json"


def install(*args: Any, code: int = 0, **env: str) -> tuple[str, str]:
    environment = {"PATH": os.environ["PATH"], "LOOPFENCE_URL": "redis://localhost:6379/0", **env}
    done = subprocess.run(
        [LOOPFENCE, "hook", "install", *map(str, args)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def handlers(settings: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Event -> our handlers."""
    found = {
        event: [h for group in groups for h in group["hooks"] if "loopfence" in h["command"]]
        for event, groups in settings.get("hooks", {}).items()
    }
    return {event: own for event, own in found.items() if own}


@pytest.mark.parametrize("agent", EVENTS)
def test_it_writes_one_handler_for_each_event_and_keeps_what_is_there(agent: str, file: Path) -> None:
    file.write_text(json.dumps(OTHERS))
    assert install(agent, "--settings", file)[0].startswith(f"{file}: installed\n")
    settings = json.loads(file.read_text())
    timeout = 5000 if agent == "gemini" else 5
    entry = {"type": "command", "command": f"{LOOPFENCE} hook {agent}", "timeout": timeout}
    assert handlers(settings) == {event: [entry] for event in EVENTS[agent]}
    assert settings["model"] == "opus"
    assert settings["permissions"] == OTHERS["permissions"]
    assert settings["hooks"]["PreToolUse"][0] == {
        "matcher": "Bash",
        "hooks": [{"type": "command", "command": "check é"}],
    }
    assert settings["hooks"]["Stop"] == []
    assert "é" in file.read_text()


@pytest.mark.parametrize("agent", EVENTS)
def test_the_second_time_nothing_is_written(agent: str, file: Path) -> None:
    install(agent, "--settings", file)
    text, written = file.read_text(), file.stat()
    assert install(agent, "--settings", file)[0].startswith(f"{file}: unchanged\n")
    assert file.read_text() == text
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


@pytest.mark.parametrize("before", [OTHERS, {"a": 1}], ids=["others", "none"])
def test_uninstall_gives_back_the_settings_as_they_were(before: dict[str, Any], file: Path) -> None:
    file.write_text(json.dumps(before))
    install("claude-code", "--settings", file)
    assert json.loads(file.read_text()) != before
    assert install("claude-code", "--settings", file, "--uninstall")[0] == f"{file}: removed\n"
    assert json.loads(file.read_text()) == before


def test_uninstall_where_nothing_is_installed_writes_nothing(file: Path) -> None:
    file.write_text('{"a":   1}')
    assert install("claude-code", "--settings", file, "--uninstall")[0] == f"{file}: unchanged\n"
    assert file.read_text() == '{"a":   1}'
    file.unlink()
    install("claude-code", "--settings", file, "--uninstall")
    assert not file.exists()


def test_a_handler_of_another_release_is_replaced_where_it_stands(file: Path) -> None:
    old = {"type": "command", "command": "/old/bin/loopfence hook claude-code --url redis://old/0"}
    mine, other = (
        {"type": "command", "command": "mine"},
        {"matcher": "*", "hooks": [{"command": "loopfence hook codex"}]},
    )
    groups = [{"matcher": "Bash", "hooks": [old, mine]}, {"hooks": [old]}, other]
    file.write_text(json.dumps({"hooks": {"PreToolUse": groups}}))
    install("claude-code", "--settings", file)
    new = {"type": "command", "command": f"{LOOPFENCE} hook claude-code", "timeout": 5}
    wanted = [{"matcher": "Bash", "hooks": [new, mine]}, other]
    assert json.loads(file.read_text())["hooks"]["PreToolUse"] == wanted
    assert install("claude-code", "--settings", file)[0].startswith(f"{file}: unchanged\n")


def test_a_dry_run_shows_the_change_and_writes_nothing(file: Path) -> None:
    file.write_text('{\n  "a": 1\n}\n')
    shown, _ = install("claude-code", "--settings", file, "--dry-run")
    assert f"--- {file}" in shown
    assert '+            "command": "' in shown
    assert file.read_text() == '{\n  "a": 1\n}\n'
    file.unlink()
    install("claude-code", "--settings", file, "--dry-run")
    assert not file.exists()


@pytest.mark.parametrize(
    "text", ["{", "[]", "1", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', '{"a": 1} // comment']
)
def test_settings_that_are_not_understood_are_left_alone(text: str, file: Path) -> None:
    file.write_text(text)
    _, complaint = install("claude-code", "--settings", file, code=2)
    assert "left alone" in complaint
    assert len(complaint.splitlines()) == 1
    assert file.read_text() == text
    assert list(file.parent.iterdir()) == [file]


def test_groups_in_a_form_that_is_not_known_are_kept(file: Path) -> None:
    strange = ["text", {"matcher": "x"}, {"hooks": "text"}, {"hooks": [7, {"command": 7}]}]
    file.write_text(json.dumps({"hooks": {"PreToolUse": strange}}))
    install("claude-code", "--settings", file)
    assert json.loads(file.read_text())["hooks"]["PreToolUse"][:4] == strange


def test_a_linked_settings_file_stays_a_link_and_keeps_its_mode(file: Path) -> None:
    dotfile = file.with_name("dotfile.json")
    dotfile.write_text("{}")
    dotfile.chmod(0o640)
    file.symlink_to(dotfile)
    install("claude-code", "--settings", file)
    assert file.is_symlink()
    assert "loopfence" in dotfile.read_text()
    assert dotfile.stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    _, complaint = install("claude-code", "--settings", blocked / "settings.json", code=2)
    assert len(complaint.splitlines()) == 1


@pytest.mark.parametrize(
    ("agent", "env", "place"),
    [
        ("claude-code", {}, ".claude/settings.json"),
        ("claude-code", {"CLAUDE_CONFIG_DIR": "{home}/config"}, "config/settings.json"),
        ("codex", {}, ".codex/hooks.json"),
        ("codex", {"CODEX_HOME": "{home}/config"}, "config/hooks.json"),
        ("gemini", {}, ".gemini/settings.json"),
    ],
)
def test_without_a_file_it_is_the_users_own(agent: str, env: dict[str, str], place: str, tmp_path: Path) -> None:
    env = {name: value.format(home=tmp_path) for name, value in env.items()}
    install(agent, HOME=str(tmp_path), **env)
    assert handlers(json.loads((tmp_path / place).read_text())).keys() == set(EVENTS[agent])


def test_url_and_policy_go_into_the_command_in_a_form_the_shell_reads_back(file: Path, tmp_path: Path) -> None:
    policy = tmp_path / "my policy.toml"
    policy.write_text("threshold = 4")
    install("claude-code", "--settings", file, "--url", "redis://h/0?window=8&threshold=3", "--policy", policy)
    (handler,) = handlers(json.loads(file.read_text()))["PreToolUse"]
    words = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {handler['command']}"], capture_output=True, text=True, check=True
    )
    url = "redis://h/0?window=8&threshold=3"
    assert words.stdout.splitlines()[1:] == ["hook", "claude-code", "--url", url, "--policy", str(policy)]


def test_a_password_does_not_go_into_a_settings_file(file: Path) -> None:
    _, complaint = install("claude-code", "--settings", file, "--url", "redis://:secret@h/0", code=2)
    assert "set LOOPFENCE_URL" in complaint
    assert "secret" not in complaint
    assert not file.exists()


def test_a_bad_policy_is_refused_at_once(file: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("threshold = 1")
    _, complaint = install("claude-code", "--settings", file, "--policy", policy, code=2)
    assert "threshold must be >= 2 (got 1)" in complaint
    assert not file.exists()


def test_it_says_what_is_still_to_do(file: Path) -> None:
    assert "set LOOPFENCE_URL" in install("claude-code", "--settings", file, LOOPFENCE_URL="")[0]
    assert "set LOOPFENCE_URL" not in install("claude-code", "--settings", file)[0]
    assert "/hooks" in install("codex", "--settings", file)[0]


@pytest.mark.parametrize("kind", AGENTS, ids=lambda kind: kind.name)
def test_the_installed_command_answers_the_agent(
    kind: type[CodingAgent], file: Path, newest_server: RedisServer
) -> None:
    install(kind.name, "--settings", file, "--url", newest_server.url)
    agent = kind("")
    event = agent.before("Bash", {"command": "ls"}, "call_0123456789")
    (handler,) = handlers(json.loads(file.read_text()))[event["hook_event_name"]]
    said = [
        subprocess.run(
            handler["command"],
            shell=True,
            input=json.dumps({**event, "tool_use_id": f"call_012345678{number}"}),
            capture_output=True,
            text=True,
            check=True,
            env={},
        ).stdout
        for number in range(3)
    ]
    assert said[:2] == ["", ""]
    assert "This call was not run." in agent.denied(json.loads(said[2]))


def test_unknown_words_exit_with_1_for_2_would_block_the_tool() -> None:
    for words in ([], ["cursor"], ["claude-code", "--verbose"], ["claude-code", "--url"]):
        done = subprocess.run([LOOPFENCE, "hook", *words], input="{}", capture_output=True, text=True, timeout=60)
        assert done.returncode == (1 if words else 0)
        assert "usage: loopfence hook" in done.stdout + done.stderr

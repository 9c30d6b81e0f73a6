"""Everything that README.md shows is run here: its code, its table, its URLs, its recipes and its commands."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loopfence import LoopGuard, Policy
from loopfence.settings import resolve
from servers import RedisServer, find_binaries, find_redis_cli

if TYPE_CHECKING:
    from collections.abc import Iterator

README = (Path(__file__).resolve().parent.parent / "README.md").read_text("utf-8")
TABLE_RULES = {"edit": {"progress": True}, "poll": {"pace": 60}}


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of its own: recipes name sessions and users."""
    with RedisServer(find_binaries()[0]) as running:
        yield running


def test_every_block_is_of_a_kind_that_is_run_here() -> None:
    assert len(blocks("python")) == 3
    languages = re.findall(r"^```(\w+)$", README, re.MULTILINE)
    assert set(languages) <= {"python", "bash", "toml", "text"}


def test_the_quick_start_blocks_the_third_equal_call(server: RedisServer) -> None:
    ran: list[str] = []
    names: dict[str, Any] = {"TOOLS": {"search": lambda query: ran.append(query) or "nothing found"}}
    exec(blocks("python")[0].replace("redis://localhost:6379/0", server.url), names)
    answers = [names["call_tool"]("run-1", "search", {"query": "tea"}) for _ in range(3)]
    assert ran == ["tea", "tea"]
    assert answers[:2] == ["nothing found", "nothing found"]
    assert answers[2].startswith("This call was not run. 'search' was called 3 times")
    names["guard"].close()


def test_the_shorter_forms_run_as_they_stand() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[1], names)
    assert asyncio.run(names["book"]("LH 400")) == "booked LH 400"


def test_the_celery_recipe_counts_a_redelivered_task_once(server: RedisServer) -> None:
    names: dict[str, Any] = {"TOOLS": {"search": lambda query: f"nothing on {query}"}, "__name__": "readme"}
    exec(blocks("python")[2].replace("redis://localhost:6379/0", server.url), names)
    call_tool, arguments = names["call_tool"], ("run-9", "search", {"query": "tea"})
    for task_id in ("task-1", "task-1", "task-2"):
        assert call_tool.apply(arguments, task_id=task_id).get() == "nothing on tea"
    assert call_tool.apply(arguments, task_id="task-3").get().startswith("This call was not run.")
    assert [call.call_id for call in names["guard"].session("run-9").snapshot().calls] == ["task-1", "task-2", "task-3"]
    names["guard"].close()


def table_rows() -> list[tuple[str, str, str]]:
    found = re.findall(r"^\| (`.*?) \| `(.*?)` \| (BLOCK|ALLOW) \|", README, re.MULTILINE)
    assert len(found) == 12
    return found


@pytest.mark.parametrize(("so_far", "next_call", "verdict"), table_rows())
def test_the_table_of_the_counting_rule_is_true(so_far: str, next_call: str, verdict: str) -> None:
    now = [1_000.0]
    run = LoopGuard("memory://", tools=TABLE_RULES, clock=lambda: now[0], threshold=3).session("run")

    def make(step: str) -> str:
        now[0] += 1
        call, failed, told = re.fullmatch(r"(.*?)(?: (→|✗) (.*))?", step).groups()
        tool, _, call_id = call.partition(" #")
        made = run.check(tool, call_id=call_id or None)
        if failed:
            run.report(made, result=told, ok=failed == "→")
        return made.level.name

    for step in so_far.split(", "):
        if step == "(60 s)":
            now[0] += 60
        elif step == "(user turn)":
            run.note_progress()
        else:
            assert make(step.strip("`")) == "ALLOW"
    assert make(next_call) == verdict


def test_the_policy_file_is_a_policy() -> None:
    (text,) = blocks("toml")
    policy = Policy.from_mapping(tomllib.loads(text))
    assert (policy.window, policy.threshold, policy.stop) == (20, 3, 6)
    assert policy.limits("edit_file").rule.progress is True
    assert policy.limits("job_status").pace == 30_000_000
    assert policy.limits("web_search").rule.ignore == ("request_id",)
    assert policy.limits("think").rule.exempt is True


def test_every_url_form_makes_a_guard_without_connecting() -> None:
    (text,) = blocks("text")
    urls = [line.split()[0] for line in text.splitlines()]
    assert [url.partition("://")[0] for url in urls] == [
        "memory", "memory", "redis", "rediss", "unix", "redis+sentinel", "redis+cluster",
    ]  # fmt: skip
    for url in urls:
        with LoopGuard(url) as guard:
            assert guard.policy == Policy()
    assert resolve(urls[2], policy=None, given={}).url == "redis://user:password@cache:6379/0"


def redis_cli_lines() -> list[str]:
    return [line for block in blocks("bash") for line in block.splitlines() if line.startswith("redis-cli")]


def run_redis_cli(server: RedisServer, line: str) -> str:
    words = shlex.split(line)
    assert words[0] == "redis-cli"
    command = [str(find_redis_cli()), "-p", str(server.port), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_redis_cli_recipes_show_halt_release_and_forget_a_session(server: RedisServer) -> None:
    listing, window, counts, halt, expire, state, release, forget, _ = redis_cli_lines()
    with LoopGuard(server.url) as guard:
        run = guard.session("run-7")
        for _ in range(2):
            run.check("search", {"q": "tea"}, call_id=None)
        assert run_redis_cli(server, listing) == "loopfence:{run-7}:calls"
        members = run_redis_cli(server, window).splitlines()
        assert len(members) == 4
        assert re.fullmatch(r"search:[0-9a-f]{16} \S+", members[0])
        assert run_redis_cli(server, counts).splitlines() == [members[0].split()[0], "2"]
        assert run_redis_cli(server, halt) == "2"
        assert run_redis_cli(server, expire) == "1"
        refused = run.check("anything")
        assert (refused.level.name, refused.allowed, refused.halted) == ("STOP", False, "stopped by hand")
        assert "stopped by hand" in run_redis_cli(server, state)
        assert run_redis_cli(server, release) == "1"
        assert run.check("anything").allowed
        assert run_redis_cli(server, forget) == "3"
        assert run.is_empty


def test_the_acl_line_makes_a_user_for_whom_the_guard_works(server: RedisServer) -> None:
    assert run_redis_cli(server, redis_cli_lines()[-1]) == "OK"
    url = f"redis://loopfence:secret@127.0.0.1:{server.port}/0"
    with LoopGuard(url, on_outage="raise") as guard:
        run = guard.session("run")
        assert [run.check("search").allowed for _ in range(3)] == [True, True, False]
        assert list(guard.sessions()) == ["run"]


def loopfence(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from loopfence.cli import main; sys.exit(main())", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("loopfence ")]
    return [shlex.split(line)[1:] for line in lines]


def test_the_commands_run(server: RedisServer, tmp_path: Path) -> None:
    transcripts = tmp_path / "transcripts"
    transcripts.mkdir()
    call = {"session": "s", "tool": "search", "args": {"q": "tea"}, "result": "nothing"}
    lines = [json.dumps({**call, "seq": number}) for number in range(6)]
    (transcripts / "run.jsonl").write_text("\n".join(lines) + "\n")
    for words in commands():
        done = loopfence(*[word.replace("redis://localhost:6379/0", server.url) for word in words], cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert "search" in (tmp_path / "loops.html").read_text("utf-8")
    Policy.from_mapping(tomllib.loads((tmp_path / "policy.toml").read_text("utf-8")))


def test_the_commands_that_are_named_exist() -> None:
    named = re.search(r"The command does the same: (.*?)\.$", README, re.MULTILINE)
    assert named
    names = [word.split()[-1] for word in re.findall(r"`(.*?)`", named.group(1))]
    assert names == ["sessions", "show", "halt", "resume", "reset", "check", "report", "doctor"]
    text = loopfence("--help").stdout
    assert [name for name in names if f" {name} " not in text] == []


def test_ci_runs_the_test_command_of_the_readme() -> None:
    (command,) = [line for block in blocks("bash") for line in block.splitlines() if "pytest" in line]
    assert command == "pip install -e '.[test]' && pytest"

"""`loopfence replay` and `loopfence tune` as a user runs them: real processes, real files."""

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from loopfence import Policy

FIXTURES = Path(__file__).parent / "fixtures"
CASES = "cases/cycle.jsonl"


def loopfence(*words, env=None, **options):
    """Output, errors and exit code of a command, run where the fixtures lie."""
    done = subprocess.run(
        [sys.executable, "-c", "from loopfence.cli import main; main()", *map(str, words)],
        cwd=FIXTURES,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "140", **(env or {})},
        **options,
    )
    return done.stdout, done.stderr, done.returncode


def test_replay_prints_the_worst_sessions_and_the_totals():
    out, errors, code = loopfence("replay", CASES, "cases/runs.jsonl", "openai/runs.json", "--top", "1")
    assert (errors, code) == ("", 0)
    head, row = (line.split() for line in out.splitlines() if line.split()[:1] in (["session"], ["run-7"]))
    assert head == ["session", "calls", "first", "flag", "not", "run", "redundant", "loop"]
    assert " ".join(row) == ("run-7 12 call 7: repeat 6 6 of 6 search alpha → search beta → search gamma, 4 laps")
    assert out.splitlines()[-5:] == [
        "... and 1 more flagged sessions",
        "8 of 24 calls would not have run, in 2 of 6 sessions",
        "precision 100.0%: 8 of 8 brought nothing new",
        "recall 100.0%: 8 of 8 redundant third-or-later calls",
        "0 of 1 resolved sessions hit",
    ]


def test_replay_names_what_it_could_not_use_and_what_was_there_twice():
    out, errors, code = loopfence("replay", "own/mixed.jsonl", "claude_code")
    assert code == 0
    assert "4 calls were recorded more than once and counted once" in out.splitlines()
    assert errors.splitlines()[:2] == ["own/mixed.jsonl:3: broken JSON", "own/mixed.jsonl:4: no tool named"]
    assert errors.splitlines()[-1].startswith("6 records were not used (2 broken JSON, 2 no tool named, ")


def test_replay_as_json_lists_every_session():
    out, errors, code = loopfence("replay", CASES, "own/mixed.jsonl", "--json")
    assert (errors, code) == ("", 0)
    told = json.loads(out)
    assert [session["session"] for session in told["sessions"]] == ["run-7", "s1", "s2", "own/mixed.jsonl"]
    loop = told["sessions"][0]
    assert (loop["calls"], loop["saved"], loop["loop"]["laps"]) == (12, 6, 4)
    assert loop["flags"][0] == {
        "call": 7,
        "tool": "search",
        "args": '{"q":"alpha"}',
        "rule": "repeat",
        "count": 3,
        "redundant": True,
    }
    assert told["totals"]["calls"] == 17
    assert told["totals"]["precision"] == 1.0
    assert told["duplicates"] == 1
    assert told["problems"]["total"] == 3


def test_replay_as_json_without_any_call_is_json_still():
    out, _, code = loopfence("replay", "openai/nothing_called_yet.jsonl", "--json")
    assert code == 0
    assert json.loads(out)["sessions"][0]["calls"] == 0


def test_replay_takes_a_policy_a_session_key_and_a_format(tmp_path):
    (tmp_path / "policy.toml").write_text('[tools."search"]\nexempt = true\n')
    told = json.loads(loopfence("replay", CASES, "--json", "--policy", tmp_path / "policy.toml")[0])
    assert told["totals"]["flagged"] == 0
    told = json.loads(loopfence("replay", "cases/runs.jsonl", "--json", "--session-key", "session")[0])
    assert [(s["session"], s["calls"], s["flagged"]) for s in told["sessions"]] == [("run-7", 6, 4)]
    told = json.loads(loopfence("replay", CASES, "--json", "--format", "codex")[0])
    assert told["problems"]["kinds"] == {"no rollout record": 12}


def test_replay_writes_a_page(tmp_path):
    out, _, code = loopfence("replay", CASES, "--html", tmp_path / "page.html")
    assert code == 0
    assert "6 of 12 calls would not have run" in out
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert data["sessions"][0]["loop"] == "search alpha → search beta → search gamma, 4 laps"
    assert sorted(map(int, data["sessions"][0]["flags"])) == [6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["replay", "nowhere.jsonl"], "no transcript file at nowhere.jsonl"),
        (["replay", CASES, "--format", "xml"], "--format must be one of loopfence, codex, claude-code, otlp,"),
        (["replay", CASES, "--session-key", "tool"], "--session-key must name some of session, run, agent"),
        (["replay", CASES, "--session-key", "run,run"], "--session-key must name some of session, run, agent"),
        (["replay", CASES, "--policy", "gone.toml"], "cannot read the policy gone.toml"),
        (["replay", CASES, "--html", "gone/page.html"], "cannot write gone/page.html"),
        (["replay", "openai/nothing_called_yet.jsonl"], "no tool calls found in these files"),
        (["tune", CASES, "--window", "10,many"], "--window must be numbers with commas between them"),
        (["tune", CASES, "--window", "1"], "window must be >= 2 (got 1)"),
        (["tune", "openai/nothing_called_yet.jsonl"], "no tool calls found in these files"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, error):
    _, errors, code = loopfence(*words)
    assert code == 2
    assert errors.startswith(f"loopfence: {error}")
    assert len(errors.splitlines()) == 1


def test_a_recording_cannot_speak_to_the_terminal(tmp_path):
    evil = "\x1b[2J\x07"
    rows = [{"session": f"s{evil}", "tool": f"t{evil}", "args": {}, "result": "x"}] * 3
    (tmp_path / "evil.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n[red]")
    out, errors, code = loopfence("replay", tmp_path / "evil.jsonl", env={"FORCE_COLOR": "1"})
    assert code == 0
    assert "\x07" not in out + errors
    assert "\x1b[2J" not in out + errors
    assert "s\\x1b[2J\\x07" in out


def test_tune_tries_all_and_writes_what_it_proposes(tmp_path):
    written = tmp_path / "policy.toml"
    out, errors, code = loopfence("tune", "cases", "--threshold", "2,3,4", "--window", "20", "--write", written)
    assert (errors, code) == ("", 0)
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["→"], ["20"])]
    assert [row[row[0] == "→" :][:2] for row in rows] == [["20", "2"], ["20", "3"], ["20", "4"]]
    proposed = Policy.from_mapping(tomllib.loads(written.read_text(encoding="utf-8")))
    assert f"→ {proposed.window} {proposed.threshold}" in [" ".join(row[:3]) for row in rows]
    assert out.endswith(written.read_text(encoding="utf-8"))
    assert '# [tools."edit_file"]\n# progress = true\n' in out


def test_tune_as_json_gives_every_trial():
    out, _, code = loopfence(
        *("tune", "cases/slow_polls.jsonl", "--json", "--window", "20", "--threshold", "3", "--max-age", "60,200")
    )
    assert code == 0
    told = json.loads(out)
    assert [(t["max_age"], t["flagged"], t["due"]) for t in told["trials"]] == [(60.0, 0, 4), (200.0, 4, 4)]
    assert told["proposed"] == {"window": 20, "threshold": 3, "max_age": 200.0}
    assert tomllib.loads(told["toml"]) == {"window": 20, "threshold": 3, "max_age": 200.0}


def test_tune_says_when_no_policy_is_as_precise_as_wanted(tmp_path):
    rows = [{"session": "s", "tool": "f", "result": result} for result in "xxyyzz"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"args": {}, **row}) + "\n" for row in rows))
    out, _, _ = loopfence("tune", tmp_path, "--threshold", "2", "--window", "20")
    assert "# on 6 recorded calls: precision 60.0%, which is less than the 99.0% wanted, recall 100.0%\n" in out


def test_long_work_shows_a_bar_on_a_terminal(tmp_path):
    row = json.dumps({"session": "s", "tool": "f", "args": {}, "result": "x" * 30_000}) + "\n"
    (tmp_path / "long.jsonl").write_text(row * 800)
    terminal, screen = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from loopfence.cli import main; main()", "replay", tmp_path / "long.jsonl"],
        stdout=subprocess.PIPE,
        stderr=screen,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(screen)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        shown += part
    out = process.communicate()[0].decode()
    os.close(terminal)
    assert "798 of 800 calls would not have run" in out
    assert b"reading" in shown
    assert b"MB" in shown

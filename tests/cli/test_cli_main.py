"""The command as a whole: its pages, what it imports, what it does without the extra and with a closed pipe."""

import importlib.metadata
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from command import COMMAND, Ran, environment

from loopfence import LoopGuard
from loopfence.cli import COMMANDS


def python(code, *words, **env):
    """Run `code` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, encoding="utf-8", env=environment(**env), check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_the_help_page_lists_every_command(run, words):
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    listed = [line.split()[1] for line in out.splitlines() if line.startswith("│ ") and line[2] not in " -"]
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("command", ["demo", "check", "report", "show", "sessions", "halt", "resume", "reset"])
def test_each_command_has_a_page_and_no_page_shows_the_url_of_the_environment(run, command):
    code, out, err = run(command, "--help", LOOPFENCE_URL="redis://:hunter2@cache/0")
    assert (code, err) == (0, "")
    assert f"loopfence {command} " in out
    assert "--url" in out
    assert "LOOPFENCE_URL" in out
    assert "hunter2" not in out


def test_the_version_is_the_installed_one(run):
    assert run("--version") == (0, f"loopfence {importlib.metadata.version('loopfence')}\n", "")


def test_check_and_report_import_no_typer_and_no_rich(newest_server):
    code = (
        "import sys\n"
        "from loopfence.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(sorted({'typer', 'click', 'rich', 'pydantic'} & set(sys.modules)))\n"
    )
    check = python(code, "check", "s", "t", "--call-id", "c", LOOPFENCE_URL=newest_server.url)
    assert check == (0, "ALLOW t: 1 of 3 repeats\n[]\n", "")
    report = python(code, "report", "s", "t", "--call-id", "c", LOOPFENCE_URL=newest_server.url)
    assert report == (0, "[]\n", "")


def test_without_the_extra_one_line_names_it_and_check_works(newest_server, tmp_path):
    """An interpreter whose path holds loopfence and what it requires, and nothing else."""
    for name in ("redis", "orjson", "xxhash", "loopfence"):
        package = Path(find_spec(name).origin).parent
        (tmp_path / name).symlink_to(package)

    def bare(*words):
        code = f"import sys; sys.path.append({str(tmp_path)!r}); from loopfence.cli import main; main(sys.argv[1:])"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, *words],
            capture_output=True,
            encoding="utf-8",
            env=environment(LOOPFENCE_URL=newest_server.url),
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    assert bare("sessions") == (2, "", "loopfence: this needs the extra `cli`: pip install 'loopfence[cli]'\n")
    assert bare("check", "s", "t") == (0, "ALLOW t: 1 of 3 repeats\n", "")


def test_a_reader_that_goes_away_gets_no_traceback(newest_server):
    with LoopGuard(newest_server.url, window=2_000, on_outage="raise", timeout=5.0) as guard:
        guard.record_many([("s", "t", number) for number in range(2_000)])
    page = subprocess.Popen(
        [COMMAND, "show", "s", "--json", "--url", f"{newest_server.url}?window=2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    # Far less than is printed, and more than a pipe holds is never read.
    assert page.stdout.read(10) == b'{"session"'
    page.stdout.close()
    assert (page.stderr.read(), page.wait(timeout=30)) == (b"", 1)
    page.stderr.close()


def test_output_that_the_terminal_cannot_encode_is_escaped(newest_server):
    env = environment(LOOPFENCE_URL=newest_server.url, PYTHONIOENCODING="ascii")
    done = subprocess.run([COMMAND, "check", "s", "é●"], capture_output=True, env=env, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ALLOW \\xe9\\u25cf: 1 of 3 repeats\n", b"")
    demo = subprocess.run([COMMAND, "demo", "--url", ""], capture_output=True, env=env, check=False)
    assert (demo.returncode, demo.stderr) == (0, b"")
    assert b"###  3  BLOCK" in demo.stdout


def test_json_is_ascii_whatever_the_names(on_server):
    out = on_server("check", "é", "\u202e●", "--json").out
    assert out.isascii()
    assert (json.loads(out)["session"], json.loads(out)["tool"]) == ("é", "\u202e●")

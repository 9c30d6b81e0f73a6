"""Whatever is wrong with the input, a setting or the server: exit code 2 and one line on stderr, nothing else."""

import re

import pytest

from servers import free_port

LONG = "s" * 600
POLICY_FIELDS = "window, threshold, warn, stop, ceiling, failures, stagnation, max_age, enforce, tools"
NOTHING_NAMED = (
    "this needs the server that holds the sessions ({}): set LOOPFENCE_URL or --url, "
    "e.g. --url redis://localhost:6379/0"
)
SCHEMES = "memory://, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"
ON_A_SERVER = (
    ["check", "s", "t"],
    ["report", "s", "t", "--call-id", "c"],
    ["show", "s"],
    ["sessions"],
    ["halt", "s", "--reason", "r"],
    ["resume", "s"],
    ["reset", "s"],
)


def name_of(words):
    return words[0]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["check", "s", "t", "{"],
            "ARGS-JSON is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        (["check", "s", "t", ""], "ARGS-JSON is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (["check", "s", "t", "[NaN]"], "ARGS-JSON is not JSON: NaN is no JSON value"),
        (["check", "s", "t", "[" * 100_000], "ARGS-JSON is not JSON: nested too deeply"),
        (
            ["report", "s", "t", "--call-id", "c", "--result-json", "1,"],
            "--result-json is not JSON: Extra data: line 1 column 2 (char 1)",
        ),
        (
            ["report", "s", "t", "--call-id", "c", "--result-json", "1", "--result", "1"],
            "argument --result: not allowed with argument --result-json (see loopfence report --help)",
        ),
        (["report", "s", "t"], "the following arguments are required: --call-id (see loopfence report --help)"),
        (["halt", "s", "--reason", " "], "reason must be a non-empty string (got ' ')"),
        (["check", "s"], "the following arguments are required: TOOL (see loopfence check --help)"),
        (["check", "", "t"], "session must not be empty"),
        (["check", LONG, "t"], "session must be at most 512 bytes of UTF-8 (got 600)"),
        (["check", "s", ""], "tool must not be empty"),
        (["check", "s", "t", "--call-id", ""], "call_id must be a non-empty string or None (got '')"),
        (["show", ""], "session must not be empty"),
        (["reset", LONG], "session must be at most 512 bytes of UTF-8 (got 600)"),
        (["resume", ""], "session must not be empty"),
        (["halt", "", "--reason", "r"], "session must not be empty"),
        (["check", "s", "t", "--colour"], "unrecognized arguments: --colour (see loopfence check --help)"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_bad_input(on_server, words, line):
    assert on_server(*words) == (2, "", f"loopfence: {line}\n")


@pytest.mark.parametrize(
    ("words", "named", "page"),
    [
        (["halt", "s"], "--reason", "loopfence halt"),
        (["show"], "SESSION", "loopfence show"),
        (["sessions", "--colour"], "--colour", "loopfence sessions"),
        (["demo", "--workers", "1"], "--workers", "loopfence demo"),
        (["chekc", "s", "t"], "chekc", "loopfence"),
        (["--colour"], "--colour", "loopfence"),
    ],
)
def test_a_mistake_that_typer_finds_is_one_line_as_well(on_server, words, named, page):
    code, out, err = on_server(*words)
    assert (code, out) == (2, "")
    # The words in between are typer's, and differ between its versions.
    assert re.fullmatch(rf"loopfence: .*{named}.* \(see {page} --help\)\n", err)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"window = \n", "{} is not TOML: Invalid value (at line 1, column 10)"),
        (b"window = 3\nwindow = 4\n", "{} is not TOML: Cannot overwrite a value (at line 2, column 11)"),
        (b"# \xff\n", "{} is not UTF-8 text (byte 2)"),
        (b"x = " + b"[" * 10_000, "{} is not TOML: nested too deeply"),
        (b"windows = 5\n", f"{{}}: windows is no field of Policy; it has: {POLICY_FIELDS}"),
        (b"window = 1\n", "{}: window must be >= 2 (got 1)"),
        (b"threshold = '3'\n", "{}: threshold must be a whole number (got '3')"),
        (b"window = 3\nthreshold = 4\n", "{}: threshold must be <= window (got threshold=4, window=3)"),
        (b"[tools]\nx = 3\n", '{}: tools["x"] must be a tool rule (got int)'),
        (b"[tools.'x*']\npace = -1\n", '{}: tools["x*"].pace must be > 0 and at most 10 years of seconds (got -1)'),
    ],
    ids=lambda value: value.decode("latin-1")[:20].strip() if isinstance(value, bytes) else "",
)
def test_a_bad_policy_file_is_named(on_server, tmp_path, text, line):
    path = tmp_path / "policy.toml"
    path.write_bytes(text)
    assert on_server("check", "s", "t", "--policy", str(path)) == (2, "", f"loopfence: {line.format(path)}\n")


def test_an_unknown_field_of_a_tool_names_the_table_and_what_it_may_hold(on_server, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('[tools."x*"]\nprogres = true\n')
    code, out, err = on_server("check", "s", "t", "--policy", str(path))
    assert (code, out) == (2, "")
    assert err.startswith(f'loopfence: {path}: tools["x*"].progres is no field of ToolRule; it has: threshold, ')
    assert err.count("\n") == 1


def test_a_policy_file_that_is_not_there_is_named(on_server, tmp_path):
    path = tmp_path / "none.toml"
    line = f"loopfence: cannot read the policy {path}: No such file or directory\n"
    assert on_server("check", "s", "t", "--policy", str(path)) == (2, "", line)


@pytest.mark.parametrize("words", ON_A_SERVER, ids=name_of)
def test_every_command_checks_its_policy_file(on_server, tmp_path, words):
    line = f"loopfence: cannot read the policy {tmp_path}: Is a directory\n"
    assert on_server(*words, "--policy", str(tmp_path)) == (2, "", line)


@pytest.mark.parametrize("words", ON_A_SERVER, ids=name_of)
def test_without_a_url_the_line_says_to_set_one(run, words):
    assert run(*words) == (2, "", f"loopfence: {NOTHING_NAMED.format('none given')}\n")


def test_memory_is_no_server(run):
    line = f"loopfence: {NOTHING_NAMED.format('got memory://x')}\n"
    assert run("show", "s", "--url", "memory://x") == (2, "", line)


@pytest.mark.parametrize("words", [*ON_A_SERVER, ["demo"]], ids=name_of)
def test_a_server_that_refuses_connections_is_one_line_without_the_password(run, words):
    url = f"redis://worker:hunter2@127.0.0.1:{free_port()}/0"
    code, out, err = run(*words, "--url", url)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"loopfence: Redis is unavailable \(.*refused.*\)\n", err)
    assert "hunter2" not in err


def test_a_wrong_password_is_one_line_without_it(run, start_server):
    server = start_server(password="sesame")
    code, out, err = run("check", "s", "t", "--url", f"redis://:hunter2@127.0.0.1:{server.port}/0")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"loopfence: Redis .*(password|PASS).*\n", err)
    assert "hunter2" not in err


def test_a_server_that_does_not_answer_is_given_up(run, start_server):
    server = start_server()
    server.freeze()
    try:
        code, out, err = run("check", "s", "t", "--url", f"{server.url}?timeout=0.3")
    finally:
        server.thaw()
    assert (code, out) == (2, "")
    assert re.fullmatch(r"loopfence: Redis is unavailable \(.*\)\n", err)


def test_a_key_of_another_type_is_one_line(on_server, newest_server):
    newest_server.admin.set("loopfence:{s}:calls", "x", ex=60)
    code, out, err = on_server("check", "s", "t")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"loopfence: .*WRONGTYPE.*\n", err)


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://u:hunter2@cache", f"url must start with one of {SCHEMES} (got 'http')"),
        ("redis://cache:6379/0?window=1", "window must be >= 2 (got 1)"),
        ("redis://cache:6379/0?timeout=soon", "timeout must be a number of seconds (got 'soon')"),
        ("redis://cache:6379/0?colour=red", "url: neither loopfence nor redis-py knows the query field 'colour'"),
    ],
)
def test_a_bad_url_is_one_line(run, url, line):
    assert run("check", "s", "t", "--url", url) == (2, "", f"loopfence: {line}\n")

"""`loopfence show` and `sessions`: a session as a table and as JSON, over a real server."""

import json
import re

import pytest

from loopfence import LoopGuard, signature

SEARCH, OPEN = signature("search", {"q": 1}), signature("open", {"page": 2})


@pytest.fixture
def guard(newest_server):
    with LoopGuard(newest_server.url, on_outage="raise", timeout=5.0) as guard:
        yield guard


def make_loop(run):
    """open once, search three times: the last one is at the threshold."""
    for tool, args in (("search", {"q": 1}), ("open", {"page": 2}), ("search", {"q": 1}), ("search", {"q": 1})):
        run.check(tool, args)


def masked(text):
    """The text with what differs from run to run (times) as letters."""
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "HH:MM:SS", text)
    return re.sub(r"\b\d\.\d s", "N.N s", text)


def digest(of):
    return of.rpartition(":")[2]


def test_the_window_is_a_table_of_when_tool_digest_and_repeats(on_server, guard):
    make_loop(guard.session("run-7"))
    code, out, err = on_server("show", "run-7")
    assert (code, err) == (0, "")
    assert masked(out).splitlines() == [
        "run-7  4 calls in the window, idle N.N s, TTL 60 min",
        "",
        "when       ago     tool     digest             repeats   total",
        "─" * 62,
        f"HH:MM:SS   N.N s   search   {digest(SEARCH)}         3       3",
        f"HH:MM:SS   N.N s   open     {digest(OPEN)}         1       1",
        f"HH:MM:SS   N.N s   search   {digest(SEARCH)}         3       3",
        f"HH:MM:SS   N.N s   search   {digest(SEARCH)}         3       3",
    ]


def test_repeats_fall_with_progress_and_the_total_does_not(on_server, guard):
    run = guard.session("run-7")
    run.report(run.check("poll"), result="10 %")
    run.report(run.check("poll"), result="20 %")
    row = on_server("show", "run-7").out.splitlines()[-1]
    assert row.split()[-2:] == ["1", "2"]


def test_kept_arguments_have_a_column(on_server, newest_server):
    with LoopGuard(newest_server.url, on_outage="raise", timeout=5.0, keep_args=True) as guard:
        guard.session("run-7").check("search", ["[b]\x1b"])
    heading, _, row = on_server("show", "run-7").out.splitlines()[2:]
    assert heading.split()[-1] == "args"
    # The canonical JSON with its own escapes: no markup is read in it, no control sign is printed.
    assert row.endswith('   ["[b]\\u001b"]')


def test_a_halt_is_shown_above_the_window_and_harmless_in_a_terminal(on_server, guard):
    run = guard.session("run-7")
    run.check("search")
    run.halt("[bold]by hand\x1b[2J")
    assert masked(on_server("show", "run-7").out).splitlines()[:2] == [
        "run-7  1 call in the window, idle N.N s, TTL 24 h",
        "halted: [bold]by hand\\x1b[2J",
    ]


def test_a_session_that_is_not_there_has_no_calls(on_server):
    assert on_server("show", "run-7") == (0, "run-7  0 calls in the window\n", "")


def test_hostile_names_are_shown_escaped(on_server, guard):
    guard.session("a\nb\x1b[31m").check("[link=x]t\x07")
    lines = on_server("show", "a\nb\x1b[31m").out.splitlines()
    assert lines[0].startswith("a\\nb\\x1b[31m  1 call in the window")
    assert lines[-1].split()[3] == "[link=x]t\\x07"
    assert on_server("sessions").out.splitlines()[-1].startswith("a\\nb\\x1b[31m ")


def test_json_holds_the_window_as_the_guard_sees_it(on_server, guard):
    run = guard.session("run-7")
    make_loop(run)
    run.halt("by hand")
    seen = run.snapshot()
    code, out, err = on_server("show", "run-7", "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert seen.idle <= shown.pop("idle") < seen.idle + 60
    assert seen.ttl - 60 < shown.pop("ttl") <= seen.ttl
    repeats, ids = (3, 1, 3, 3), [call.call_id for call in seen.calls]
    assert shown == {
        "session": "run-7",
        "calls": 4,
        "top_repeat": 3,
        "halted": "by hand",
        "window": [
            {
                "at": call.at,
                "tool": call.tool,
                "digest": call.digest,
                "call_id": call_id,
                "repeats": count,
                "total": count,
                "args": None,
            }
            for call, call_id, count in zip(seen.calls, ids, repeats, strict=True)
        ],
    }
    assert [call["tool"] for call in shown["window"]] == ["search", "open", "search", "search"]


def test_the_window_shown_is_that_of_the_policy(on_server, guard, tmp_path):
    make_loop(guard.session("run-7"))
    path = tmp_path / "policy.toml"
    path.write_text("window = 2\nthreshold = 2\n")
    shown = json.loads(on_server("show", "run-7", "--json", "--policy", str(path)).out)
    assert [(call["tool"], call["total"]) for call in shown["window"]] == [("search", 2), ("search", 2)]


def test_sessions_are_listed_by_name(on_server, guard):
    make_loop(guard.session("run-7"))
    guard.session("run-10").check("open")
    halted = guard.session("a b")
    halted.check("open")
    halted.halt("by hand")
    code, out, err = on_server("sessions")
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in masked(out).splitlines()] == [
        "session   calls   top repeat   idle    TTL      halted",
        "─" * 55,
        "a b           1            1   N.N s   24 h     by hand",
        "run-10        1            1   N.N s   60 min",
        "run-7         4            3   N.N s   60 min",
    ]


def test_sessions_as_json(on_server, guard):
    make_loop(guard.session("run-7"))
    guard.session("é").check("open")
    listed = json.loads(on_server("sessions", "--json").out)
    for session in listed:
        assert 0 <= session.pop("idle") < 60
        assert 3500 < session.pop("ttl") <= 3600
    assert listed == [
        {"session": "run-7", "calls": 4, "top_repeat": 3, "halted": None},
        {"session": "é", "calls": 1, "top_repeat": 1, "halted": None},
    ]


def test_no_sessions(on_server):
    assert on_server("sessions") == (0, "no sessions\n", "")
    assert on_server("sessions", "--json") == (0, "[]\n", "")


def test_the_namespace_of_the_url_is_the_one_looked_at(run, newest_server):
    url = f"{newest_server.url}?namespace=other"
    run("check", "run-7", "open", "--url", url)
    assert [one["session"] for one in json.loads(run("sessions", "--json", "--url", url).out)] == ["run-7"]
    assert run("sessions", "--json", "--url", newest_server.url).out == "[]\n"

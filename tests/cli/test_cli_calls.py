"""`loopfence check` and `report`: exit codes, words and JSON, over a real server, each call its own process."""

import json

import pytest

from loopfence import LoopGuard, signature

ADVICE = (
    "Calling it again will not help: use the result you have, change the arguments, try another way, "
    "or say what you are missing."
)
BLOCKED = (
    "This call was not run. 'search' was called 3 times with the same arguments without progress "
    f"(limit 3 in the last 20 calls). {ADVICE}"
)
ARGS = '{"query": "refund", "page": 1}'


def test_the_third_equal_call_is_refused_whichever_process_makes_it(on_server):
    first = on_server("check", "run-7", "search", ARGS)
    second = on_server("check", "run-7", "search", '{"page":1,"query":"refund"}')
    third = on_server("check", "run-7", "search", ARGS)
    assert first == (0, "ALLOW search: 1 of 3 repeats\n", "")
    assert second == (0, "ALLOW search: 2 of 3 repeats\n", "")
    assert third == (1, f"BLOCK search: 3 of 3 repeats. {BLOCKED}\n", "")


def test_another_session_other_arguments_and_another_tool_are_other_calls(on_server):
    for words in (("a", "t"), ("b", "t"), ("a", "u"), ("a", "t", "[1]"), ("a", "t", "[true]")):
        assert on_server("check", *words) == (0, f"ALLOW {words[1]}: 1 of 3 repeats\n", "")


def test_no_arguments_and_an_empty_object_are_the_same_call(on_server):
    assert on_server("check", "s", "t").out == "ALLOW t: 1 of 3 repeats\n"
    assert on_server("check", "s", "t", "{}").out == "ALLOW t: 2 of 3 repeats\n"


def test_json_is_the_whole_verdict(on_server):
    ran = on_server("check", "run-7", "search", ARGS, "--call-id", "turn-1", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out) == {
        "level": "ALLOW",
        "allowed": True,
        "rule": None,
        "count": 1,
        "total": 1,
        "size": 1,
        "window": 20,
        "threshold": 3,
        "limit": None,
        "streak": 0,
        "tool": "search",
        "signature": signature("search", json.loads(ARGS)),
        "session": "run-7",
        "call_id": "turn-1",
        "duplicate": False,
        "source": "redis",
        "degraded": False,
        "progress": False,
        "halted": None,
        "message": "",
    }


def test_json_of_a_refused_call_names_the_rule_and_holds_the_message(on_server):
    for _ in range(2):
        on_server("check", "run-7", "search", ARGS)
    ran = on_server("check", "run-7", "search", ARGS, "--json")
    assert ran.code == 1
    verdict = json.loads(ran.out)
    assert {name: verdict[name] for name in ("level", "allowed", "rule", "limit", "message")} == {
        "level": "BLOCK",
        "allowed": False,
        "rule": "repeat",
        "limit": 3,
        "message": BLOCKED,
    }


def test_the_same_call_id_counts_once(on_server):
    first, again = (json.loads(on_server("check", "s", "t", "--call-id", "c1", "--json").out) for _ in range(2))
    assert (first["count"], first["duplicate"]) == (1, False)
    assert (again["count"], again["duplicate"]) == (1, True)


def report_twice(on_server, *results):
    """Two reported calls, then the code of a third."""
    for number, words in enumerate(results):
        assert on_server("check", "s", "poll", "--call-id", f"c{number}").code == 0
        assert on_server("report", "s", "poll", "--call-id", f"c{number}", *words) == (0, "", "")
    return on_server("check", "s", "poll").code


def test_equal_results_leave_a_repeat_a_repeat(on_server):
    assert report_twice(on_server, ("--result", "10 %"), ("--result", "10 %")) == 1


def test_a_changed_text_result_is_progress(on_server):
    assert report_twice(on_server, ("--result", "10 %"), ("--result", "20 %")) == 0


def test_a_json_result_is_compared_by_value(on_server):
    assert report_twice(on_server, ("--result-json", '{"a":1,"b":2}'), ("--result-json", '{"b": 2, "a": 1}')) == 1


def test_a_text_and_a_json_number_are_different_results(on_server):
    assert report_twice(on_server, ("--result", "1"), ("--result-json", "1")) == 0


def test_the_call_id_that_check_prints_is_the_one_that_report_takes(on_server):
    for result in ("a", "b"):
        verdict = json.loads(on_server("check", "s", "poll", "{}", "--json").out)
        on_server("report", "s", "poll", "{}", "--call-id", verdict["call_id"], "--result", result)
    assert on_server("check", "s", "poll").code == 0


@pytest.fixture
def policy(tmp_path):
    """`policy("window = 5")`: the option that names a file with this text."""

    def write(text):
        path = tmp_path / "policy.toml"
        path.write_text(text, encoding="utf-8")
        return ("--policy", str(path))

    return write


@pytest.mark.parametrize(("words", "third"), [((), 0), (("--failed",), 1)])
def test_a_success_of_a_progress_tool_ends_a_repetition_and_a_failure_does_not(
    on_server, newest_server, policy, words, third
):
    with LoopGuard(newest_server.url, on_outage="raise", timeout=5.0) as guard:
        run = guard.session("s")
        run.check("run_tests")
        run.check("run_tests")
        run.check("edit_file", call_id="e")
    rules = policy('[tools."edit_*"]\nprogress = true\n')
    assert on_server("report", "s", "edit_file", "--call-id", "e", *words, *rules).code == 0
    assert on_server("check", "s", "run_tests").code == third


def test_the_policy_file_sets_the_threshold_for_all_and_for_single_tools(on_server, newest_server, policy):
    rules = policy('window = 6\nthreshold = 2\n[tools."slow.*"]\nthreshold = 4\n')
    assert [on_server("check", "s", "t", *rules).code for _ in range(2)] == [0, 1]
    with LoopGuard(newest_server.url, threshold=20, on_outage="raise", timeout=5.0) as guard:
        guard.session("s").check("slow.t")
        guard.session("s").check("slow.t")
    assert [on_server("check", "s", "slow.t", *rules).code for _ in range(2)] == [0, 1]


def test_a_stopped_session_refuses_every_tool(on_server, policy):
    rules = policy("threshold = 2\nstop = 3\n")
    assert [on_server("check", "s", "t", *rules).code for _ in range(3)] == [0, 1, 1]
    ran = on_server("check", "s", "other")
    assert ran.code == 1
    assert ran.out.startswith("STOP other: ")


def test_shadow_mode_exits_0(on_server, policy):
    rules = policy("threshold = 2\nenforce = false\n")
    on_server("check", "s", "t", *rules)
    ran = on_server("check", "s", "t", *rules)
    assert ran.code == 0
    assert ran.out.startswith("BLOCK t: 2 of 2 repeats. Shadow mode: ")


def test_a_name_that_would_move_the_cursor_is_printed_escaped(on_server):
    ran = on_server("check", "s", "t\x1b[2J\nx")
    assert ran.out == "ALLOW t\\x1b[2J\\nx: 1 of 3 repeats\n"

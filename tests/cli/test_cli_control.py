"""`loopfence halt`, `resume` and `reset`: an operator's hand on a session, over a real server."""

import json


def test_a_halted_session_refuses_every_tool_and_says_why(on_server):
    assert on_server("halt", "run-7", "--reason", "too costly") == (0, "run-7 is halted: too costly\n", "")
    verdict = json.loads(on_server("check", "run-7", "search", "--json").out)
    assert (verdict["level"], verdict["rule"], verdict["halted"]) == ("STOP", "halted", "too costly")
    assert on_server("check", "run-7", "open").code == 1
    assert on_server("check", "run-8", "open").code == 0


def test_a_resumed_session_goes_on_with_its_window(on_server):
    on_server("check", "run-7", "search")
    on_server("halt", "run-7", "--reason", "r")
    assert on_server("resume", "run-7") == (0, "run-7 may go on\n", "")
    assert on_server("check", "run-7", "search") == (0, "ALLOW search: 2 of 3 repeats\n", "")


def test_a_reset_session_is_forgotten_with_its_halt(on_server, newest_server):
    on_server("check", "run-7", "search")
    on_server("halt", "run-7", "--reason", "r")
    assert on_server("reset", "run-7") == (0, "run-7 is forgotten\n", "")
    assert newest_server.admin.keys() == []
    assert on_server("check", "run-7", "search") == (0, "ALLOW search: 1 of 3 repeats\n", "")


def test_an_answer_repeats_names_escaped(on_server):
    assert on_server("halt", "a\x1b[2J", "--reason", "b\nc").out == "a\\x1b[2J is halted: b\\nc\n"
    assert on_server("resume", "a\x1b[2J").out == "a\\x1b[2J may go on\n"
    assert on_server("reset", "a\x1b[2J").out == "a\\x1b[2J is forgotten\n"

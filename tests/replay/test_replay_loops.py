"""Loops get the name that a reader would give them."""

import pytest

from loopfence import Policy
from loopfence.replay.backtest import Backtest
from loopfence.replay.calls import Call, Problems
from loopfence.replay.loops import worst_loop
from loopfence.replay.sessions import follow


def history_of(words, **policy):
    """A session in which each word is a call; `tool:args` gives it arguments. Equal calls have equal results."""
    items = []
    for word in words.split():
        tool, _, args = word.partition(":")
        items.append(Call("s", tool, {"arg": args} if args else {}, word))
    histories = []
    follow(items, Backtest(Policy(**policy), histories.append, Problems()))
    return histories[0]


@pytest.mark.parametrize(
    ("tools", "text", "first"),
    [
        ("read edit test " * 6, "read → edit → test, 6 laps", 1),
        ("list " * 5, "list, 5 times", 1),
        ("open find read " + "grep " * 4 + " write", "grep, 4 times", 4),
        ("a:1 b:1 a:1 b:1 a:1", "a → b, 3 laps", 1),
        ("f:x f:y " * 3, "f x → f y, 3 laps", 1),
        ("look " + "p q " * 4 + "z z z", "p → q, 4 laps", 2),
        ("ls a ls b ls c ls d", "ls, 4 times", 1),
        ("a a b b c c " * 2 + "a", "a → a → b → b → c → c, 3 laps", 1),
    ],
)
def test_the_worst_loop_is_named(tools, text, first):
    loop = worst_loop(history_of(tools))
    assert (loop.text, loop.first) == (text, first)


def test_a_session_without_flags_has_no_loop():
    assert worst_loop(history_of("a b a b c d e f")) is None


def test_a_repeat_that_was_not_flagged_is_not_the_loop():
    history = history_of("a b a b a b c c c", tools={"a": {"threshold": 9}, "b": {"threshold": 9}})
    assert worst_loop(history).text == "c, 3 times"


def test_long_arguments_are_cut_and_stay_on_one_line():
    command = "cd /srv/application\n&& grep -rn needle src/ | sort | uniq"
    items = [Call("s", "bash", {"command": c, "timeout": 5}, "") for _ in range(3) for c in (command, "ls")]
    histories = []
    follow(items, Backtest(Policy(), histories.append, Problems()))
    assert worst_loop(histories[0]).text == "bash cd /srv/application && grep -rn needle … → bash ls 5, 3 laps"

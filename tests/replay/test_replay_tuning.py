"""The sweep says of each policy what a backtest says, and proposes by what was asked for."""

import tomllib
from pathlib import Path

import pytest

from loopfence import ConfigError, Policy, ToolRule
from loopfence.replay.backtest import Backtest
from loopfence.replay.calls import Call, Problems, Turn
from loopfence.replay.files import read_calls, transcript_files
from loopfence.replay.guesses import Guess, Guesses
from loopfence.replay.policy_toml import policy_toml
from loopfence.replay.sessions import follow
from loopfence.replay.summary import Totals
from loopfence.replay.tuning import Trial, Tuner, combinations, propose

CASES = Path(__file__).parent / "fixtures" / "cases"


def calls():
    for file in transcript_files([CASES]):
        for item in read_calls([file], Problems()):
            item.session = file.stem
            yield item


def test_a_trial_comes_to_what_a_backtest_comes_to():
    base = Policy(tools={"edit_file": {"progress": True}}, stop=6)
    swept = {"window": [5, 20], "threshold": [2, 3, 4], "ceiling": [None, 5], "max_age": [None, 90.0]}
    tuner = Tuner(combinations(base, swept), Problems())
    follow(calls(), tuner)
    # a stop of 6 does not fit a window of 5
    assert len(tuner.trials) == 12
    for trial in tuner.trials:
        totals = Totals()
        follow(calls(), Backtest(trial.policy, totals.add, Problems()))
        assert trial.totals == totals
    assert len({(t.totals.flagged, t.totals.halted, t.totals.caught) for t in tuner.trials}) > 6


def test_combinations_that_are_no_policy_are_left_out():
    found = combinations(Policy(failures=3), {"window": [2, 4], "threshold": [2, 3, 5]})
    assert [(policy.window, policy.threshold) for policy in found] == [(2, 2), (4, 2), (4, 3)]
    assert {policy.failures for policy in found} == {3}
    with pytest.raises(ConfigError, match=r"window must be >= 2 \(got 1\)"):
        combinations(Policy(), {"window": [1], "threshold": [3]})


def trial(window=20, threshold=3, **totals):
    return Trial(Policy(window=window, threshold=threshold), Totals(**totals))


def test_the_one_that_catches_most_of_the_precise_ones_is_proposed():
    trials = [
        trial(threshold=2, redundant=90, wrong=10, due=100, caught=90),
        trial(threshold=3, redundant=80, wrong=1, due=100, caught=80),
        trial(threshold=4, redundant=50, wrong=0, due=100, caught=50),
        trial(threshold=5, due=100),
    ]
    assert propose(trials, 0.8) is trials[0]
    assert propose(trials, 0.98) is trials[1]
    assert propose(trials, 0.99) is trials[2]


def test_the_most_precise_is_proposed_where_none_is_precise_enough():
    trials = [trial(threshold=n, redundant=10, wrong=n, due=20, caught=10) for n in (4, 2, 3)]
    assert propose(trials, 0.99) is trials[1]


def test_among_equals_the_default_is_proposed():
    trials = [trial(w, t, redundant=5, due=5, caught=5) for w in (10, 20, 50) for t in (3, 4)]
    assert propose(trials, 0.99).policy == Policy(window=20, threshold=3)
    assert propose([trial(10, 4), trial(20, 3), trial(50, 2)], 0.99).policy == Policy(window=20, threshold=3)


def guesses(*sessions):
    found = Guesses()
    for session in sessions:
        found.watch(session)
    return [(guess.tool, guess.rule) for guess in found.all()], [guess.why for guess in found.all()]


def call(tool, args=None, result="", **more):
    return Call("s", tool, args or {}, result, **more)


def test_a_tool_after_which_equal_calls_answer_anew_makes_progress():
    session = []
    for lap in range(4):
        session += [call("shell", {"n": lap}, "done"), call("check", result=f"{9 - lap} left"), call("look")]
    session += [call("check", result="6 left"), call("look")] * 4
    found, why = guesses(session)
    assert found == [("shell", "progress = true")]
    assert why == ["with it in between, the next equal call had another result 3 times of 6 (without it 0 of 8)"]


def test_a_tool_that_only_stands_beside_such_a_one_is_not_guessed():
    session = []
    for lap in range(5):
        session += [call("edit", {"n": lap}, "ok"), call("read", {"n": lap}, "text"), call("check", result=str(lap))]
    assert guesses(session)[0] == [("edit", "progress = true")]


def test_a_failed_call_is_no_evidence_and_neither_is_what_a_turn_changed():
    failed = [x for n in range(5) for x in (call("shell", {"n": n}, ok=False), call("check", result=str(n)))]
    turned = [x for n in range(5) for x in (call("shell", {"n": n}), Turn("s"), call("check", result=str(n)))]
    assert guesses(failed, turned)[0] == []


@pytest.mark.parametrize("tool", ["write_file", "sendEmail", "orders.cancel", "apply-patch", "DeleteUser2"])
def test_a_name_that_says_so_is_enough_without_evidence_against_it(tool):
    found, why = guesses([call(tool)])
    assert found == [(tool, "progress = true")]
    assert why == ["its name says that it changes something (1 calls)"]
    unchanged = [x for n in range(4) for x in (call(tool, {"n": n}), call("check", result="same"))]
    assert guesses(unchanged)[0] == []


@pytest.mark.parametrize("tool", ["read_file", "settings", "address", "Updates", "postcode"])
def test_other_names_are_not(tool):
    assert guesses([call(tool)])[0] == []


def test_a_call_that_comes_again_after_a_while_and_in_the_end_answers_anew_polls():
    session = [call("state", {"id": 7}, "running" if n < 5 else "done", ts=30.0 * n) for n in range(6)]
    found, why = guesses(session)
    assert found == [("state", "pace = 24.0")]
    assert why == [
        "5 times it was called again with nothing in between, 30 s later (median), and the answer changed 1 times"
    ]


@pytest.mark.parametrize(
    "session",
    [
        [call("state", {}, "running", ts=30.0 * n) for n in range(6)],
        [call("state", {}, str(n), ts=0.5 * n) for n in range(6)],
        [call("state", {}, str(n)) for n in range(6)],
        [x for n in range(6) for x in (call("state", {}, str(n), ts=30.0 * n), call("f", {"n": n}, ts=30.0 * n))],
    ],
    ids=["never changes", "too fast", "no times", "others in between"],
)
def test_what_is_no_poll(session):
    assert ("state", "pace") not in [(tool, rule.split()[0]) for tool, rule in guesses(session)[0]]


def test_the_policy_is_read_back_as_it_was_written():
    policy = Policy(
        window=30,
        threshold=4,
        ceiling=9,
        max_age=12.5,
        stop=7,
        tools={
            'a"*\n\\\x7f': ToolRule(progress=True, threshold=2, result_mask=(r"\d+ ms", '"')),
            "é.*": ToolRule(pace=3, ignore=("a.b", "c"), exempt=True),
        },
    )
    text = policy_toml(policy, [Guess("poll\nme", "pace = 2.0", "line\none")], ["reached 99 %"])
    assert Policy.from_mapping(tomllib.loads(text)) == policy
    assert text.startswith("# reached 99 %\nwindow = 30\nthreshold = 4\n")
    assert text.endswith('\n# line one\n# [tools."poll\\nme"]\n# pace = 2.0\n')


def test_only_what_differs_from_the_default_is_written():
    assert policy_toml(Policy()) == "window = 20\nthreshold = 3\n"

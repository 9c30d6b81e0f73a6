"""The policy and its rules for single tools: every wrong one is refused in words, every right one holds."""

from __future__ import annotations

import dataclasses
import math
import pickle
from typing import Any

import pytest

from loopfence import ConfigError, LoopGuard, Policy, ToolRule

POLICY_FIELDS = "window, threshold, warn, stop, ceiling, failures, stagnation, max_age, enforce, tools"
RULE_FIELDS = "threshold, warn, stop, ceiling, exempt, pace, progress, ignore, only, result_ignore, result_mask"

WRONG_POLICIES = [
    ({"window": 1}, "window must be >= 2 (got 1)"),
    ({"window": 10_001}, "window must be <= 10000 (got 10001)"),
    ({"window": "8"}, "window must be a whole number (got '8')"),
    ({"window": 8.0}, "window must be a whole number (got 8.0)"),
    ({"window": True}, "window must be a whole number (got True)"),
    ({"window": None}, "window must be a whole number (got None)"),
    ({"threshold": 1}, "threshold must be >= 2 (got 1)"),
    ({"threshold": None}, "threshold must be a whole number (got None)"),
    ({"threshold": 4, "window": 3}, "threshold must be <= window (got threshold=4, window=3)"),
    ({"warn": 0}, "warn must be >= 1 (got 0)"),
    ({"warn": 3}, "warn must be < threshold (got warn=3, threshold=3)"),
    ({"stop": 1}, "stop must be >= 2 (got 1)"),
    ({"stop": 3}, "stop must be > threshold (got stop=3, threshold=3)"),
    ({"stop": 21}, "stop must be <= window (got stop=21, window=20)"),
    ({"ceiling": 1}, "ceiling must be >= 2 (got 1)"),
    ({"ceiling": 21}, "ceiling must be <= window (got ceiling=21, window=20)"),
    ({"failures": 1}, "failures must be >= 2 (got 1)"),
    ({"stagnation": 1}, "stagnation must be >= 2 (got 1)"),
    ({"max_age": 0}, "max_age must be > 0 and at most 10 years of seconds (got 0)"),
    ({"max_age": -1.5}, "max_age must be > 0 and at most 10 years of seconds (got -1.5)"),
    ({"max_age": math.nan}, "max_age must be > 0 and at most 10 years of seconds (got nan)"),
    ({"max_age": math.inf}, "max_age must be > 0 and at most 10 years of seconds (got inf)"),
    ({"max_age": "60"}, "max_age must be a number of seconds (got '60')"),
    ({"max_age": True}, "max_age must be a number of seconds (got True)"),
    ({"enforce": 1}, "enforce must be true or false (got 1)"),
    ({"tools": ["search"]}, "tools must map globs to tool rules (got list)"),
    ({"tools": {"": ToolRule()}}, "tools must be keyed by globs (got '')"),
    ({"tools": {7: ToolRule()}}, "tools must be keyed by globs (got 7)"),
    ({"tools": {"web*": 3}}, 'tools["web*"] must be a tool rule (got int)'),
    (
        {"tools": {"web*": {"pause": 3}}},
        f'tools["web*"].pause is no field of ToolRule; it has: {RULE_FIELDS}',
    ),
    ({"tools": {"web*": {"pace": 0}}}, 'tools["web*"].pace must be > 0 and at most 10 years of seconds (got 0)'),
    (
        {"tools": {"web*": ToolRule(threshold=21)}},
        'tools["web*"].threshold must be <= window (got threshold=21, window=20)',
    ),
    (
        {"tools": {"web*": ToolRule(threshold=2)}, "warn": 2},
        'tools["web*"].warn must be < threshold (got warn=2, threshold=2)',
    ),
    (
        {"tools": {"web*": ToolRule(threshold=5)}, "stop": 5},
        'tools["web*"].stop must be > threshold (got stop=5, threshold=5)',
    ),
    ({"tools": {"web*": ToolRule(stop=21)}}, 'tools["web*"].stop must be <= window (got stop=21, window=20)'),
    ({"tools": {"web*": ToolRule(ceiling=21)}}, 'tools["web*"].ceiling must be <= window (got ceiling=21, window=20)'),
]

WRONG_RULES = [
    ({"threshold": 1}, "threshold must be >= 2 (got 1)"),
    ({"warn": 0}, "warn must be >= 1 (got 0)"),
    ({"stop": 1}, "stop must be >= 2 (got 1)"),
    ({"ceiling": 1}, "ceiling must be >= 2 (got 1)"),
    ({"exempt": "yes"}, "exempt must be true or false (got 'yes')"),
    ({"pace": -1}, "pace must be > 0 and at most 10 years of seconds (got -1)"),
    ({"pace": "1"}, "pace must be a number of seconds (got '1')"),
    ({"progress": "yes"}, "progress must be true, false or a callable (got 'yes')"),
    ({"ignore": "page"}, "ignore must be a list of strings (got 'page')"),
    ({"only": [1]}, "only must be a list of strings (got [1])"),
    ({"result_ignore": None}, "result_ignore must be a list of strings (got None)"),
    (
        {"result_mask": ["("]},
        "result_mask must hold regular expressions (got '(': missing ), unterminated subpattern at position 0)",
    ),
]


@pytest.mark.parametrize(("fields", "text"), WRONG_POLICIES)
def test_a_wrong_policy_names_field_value_and_rule(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy(**fields)
    assert str(caught.value) == text
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("fields", "text"), [*WRONG_POLICIES, ({"window": 1}, "window must be >= 2 (got 1)")])
def test_a_guard_checks_its_keywords_alike(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LoopGuard("memory://", **fields)
    assert str(caught.value) == text


@pytest.mark.parametrize(("fields", "text"), WRONG_RULES)
def test_a_wrong_tool_rule_names_field_value_and_rule(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ToolRule(**fields)
    assert str(caught.value) == text


def test_the_bounds_themselves_are_right() -> None:
    Policy(window=2, threshold=2, warn=1, ceiling=2, failures=2, stagnation=2, max_age=1e-6)
    Policy(window=10_000, threshold=9_999, warn=9_998, stop=10_000, ceiling=10_000)


def test_the_defaults() -> None:
    assert dataclasses.asdict(Policy()) == {
        "window": 20,
        "threshold": 3,
        "warn": None,
        "stop": None,
        "ceiling": None,
        "failures": 8,
        "stagnation": None,
        "max_age": None,
        "enforce": True,
        "tools": {},
    }


def test_policies_and_rules_are_frozen_and_survive_pickle() -> None:
    policy = Policy(threshold=4, tools={"web*": ToolRule(pace=2.5)})
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.window = 5  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.tools["web*"].pace = 5  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(policy))
    assert again == policy
    assert again.given == policy.given == {"threshold": 4, "tools": {"web*": ToolRule(pace=2.5)}}


# -- rules of single tools


def test_the_first_glob_that_matches_wins() -> None:
    policy = Policy(
        tools={"web_search": ToolRule(threshold=5), "web_*": ToolRule(threshold=4), "*": ToolRule(threshold=2)}
    )
    assert [policy.limits(tool).threshold for tool in ("web_search", "web_fetch", "shell")] == [5, 4, 2]


def test_globs_match_the_whole_name_and_its_case() -> None:
    policy = Policy(tools={"web?": ToolRule(threshold=5), "[ab]": ToolRule(threshold=6)})
    names = ("web1", "Web1", "web", "web12", "my web1", "a", "c")
    assert [policy.limits(name).threshold for name in names] == [5, 3, 3, 3, 3, 6, 3]


def test_a_rule_overrides_what_it_names_and_nothing_else() -> None:
    policy = Policy(
        warn=2, stop=6, ceiling=7, tools={"web": ToolRule(threshold=4, stop=5), "shell": ToolRule(warn=1, ceiling=9)}
    )
    web, shell, other = (policy.limits(tool) for tool in ("web", "shell", "other"))
    assert (web.threshold, web.warn, web.stop, web.ceiling) == (4, 2, 5, 7)
    assert (shell.threshold, shell.warn, shell.stop, shell.ceiling) == (3, 1, 6, 9)
    assert (other.threshold, other.warn, other.stop, other.ceiling) == (3, 2, 6, 7)


def test_globs_use_the_callers_tool_name_also_with_a_custom_key() -> None:
    guard = LoopGuard("memory://", key=lambda tool, args: ("everything", "same"), tools={"web": ToolRule(threshold=2)})
    verdicts = [guard.check(tool) for tool in ("shell", "web")]
    assert [(verdict.tool, verdict.threshold, verdict.count) for verdict in verdicts] == [
        ("shell", 3, 1),
        ("web", 2, 2),
    ]
    assert not verdicts[1].allowed


def test_ignored_fields_make_no_difference_and_only_these_do() -> None:
    tools = {"web": ToolRule(ignore=["page", "meta.at"]), "shell": ToolRule(only=["cmd"])}
    guard = LoopGuard("memory://", tools=tools)
    assert guard.check("web", {"q": 1, "page": 1, "meta": {"at": 1, "by": 1}}).count == 1
    assert guard.check("web", {"q": 1, "page": 2, "meta": {"at": 2, "by": 1}}).count == 2
    assert guard.check("web", {"q": 1, "page": 2, "meta": {"at": 2, "by": 2}}).count == 1
    assert guard.check("shell", {"cmd": "ls", "why": "look"}).count == 1
    assert guard.check("shell", {"cmd": "ls", "why": "look again"}).count == 2
    assert guard.check("shell", {"cmd": "pwd", "why": "look"}).count == 1


def test_ignored_and_masked_parts_of_a_result_make_no_change() -> None:
    tools = {"web": ToolRule(result_ignore=["took.ms"]), "shell": ToolRule(result_mask=[r"\d+:\d+"])}
    guard = LoopGuard("memory://", threshold=5, tools=tools)

    def counts(tool: str, *results: Any) -> list[int]:
        found = []
        for result in results:
            verdict = guard.check(tool)
            guard.report(verdict, result=result)
            found.append(verdict.count)
        return found

    assert counts("web", {"n": 1, "took": {"ms": 3}}, {"n": 1, "took": {"ms": 4}}, {"n": 2}, {"n": 2}) == [1, 2, 3, 2]
    assert counts("shell", "at 10:31 none", "at 10:32 none", "at 10:33 one", "at 10:34 one") == [1, 2, 3, 2]


# -- plain data


def test_a_policy_is_made_of_plain_data() -> None:
    plain = {"window": 8, "threshold": 2, "tools": {"web*": {"pace": 2, "ignore": ["page"]}}}
    assert Policy.from_mapping(plain) == Policy(
        window=8, threshold=2, tools={"web*": ToolRule(pace=2, ignore=("page",))}
    )


def test_plain_data_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.from_mapping({"treshold": 2})
    assert str(caught.value) == f"treshold is no field of Policy; it has: {POLICY_FIELDS}"


def test_an_override_is_checked_as_a_whole() -> None:
    policy = Policy(threshold=4, failures=5)
    assert policy.override(window=6) == Policy(window=6, threshold=4, failures=5)
    with pytest.raises(ConfigError, match=r"threshold must be <= window \(got threshold=4, window=3\)"):
        policy.override(window=3)

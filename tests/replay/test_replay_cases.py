"""Every kind of loop, and of honest work that looks like one, trips at its exact call or never."""

from pathlib import Path

import pytest

from loopfence import Policy
from loopfence.replay.backtest import Backtest
from loopfence.replay.calls import SESSION_FIELDS, Problems
from loopfence.replay.files import read_calls
from loopfence.replay.sessions import follow

CASES = Path(__file__).parent / "fixtures" / "cases"
PROGRESS = {"tools": {"edit_file": {"progress": True}}}

NEVER = None


def first_trips(name, policy, fields=SESSION_FIELDS):
    """Session -> its first blocked call, from 1; sessions that are never blocked are left out."""
    histories, problems = [], Problems()
    test = Backtest(Policy.from_mapping(policy), histories.append, problems)
    follow(read_calls([CASES / f"{name}.jsonl"], problems), test, fields)
    assert problems.examples == []
    return {h.label.removeprefix("run-7").strip("/"): h.flags[0].call for h in histories if h.flags}


@pytest.mark.parametrize(
    ("name", "policy", "trip"),
    [
        ("same_result", {}, 3),
        ("same_result", {"threshold": 4}, 4),
        ("same_result", {"threshold": 4, "ceiling": 2}, 2),
        ("same_result_after_a_first_other_one", {}, 4),
        ("changing_result", {}, NEVER),
        ("changing_result", {"ceiling": 6}, 6),
        ("cycle", {}, 7),
        ("cycle", {"window": 3}, NEVER),
        ("cycle", {"window": 6}, NEVER),
        ("cycle", {"window": 7}, 7),
        ("near_cycle_of_other_arguments", {}, NEVER),
        ("failing_edit", PROGRESS, 5),
        ("succeeding_edits", PROGRESS, NEVER),
        ("succeeding_edits", {}, 6),
        ("volatile_result", {}, NEVER),
        ("volatile_result", {"tools": {"start_*": {"result_mask": ["job [0-9a-f]+", r"\d+ ms"]}}}, 3),
        ("volatile_argument", {}, NEVER),
        ("volatile_argument", {"tools": {"http_get": {"ignore": ["headers.x-request-id"]}}}, 3),
        ("volatile_argument", {"tools": {"http_get": {"only": ["url"]}}}, 3),
        ("volatile_argument_without_a_field", {}, NEVER),
        ("volatile_argument_without_a_field", {"stagnation": 6}, 6),
        ("tool_failures", {}, 8),
        ("tool_failures", {"failures": 4}, 4),
        ("tool_failures_with_a_success", {"failures": 7}, NEVER),
        ("tool_failures_with_a_success", {"failures": 6}, 6),
        ("slow_polls", {}, 3),
        ("slow_polls", {"max_age": 100.0}, NEVER),
        ("slow_polls", {"max_age": 121.0}, 3),
        ("slow_polls", {"tools": {"job_state": {"pace": 30}}}, NEVER),
        ("fast_polls", {"tools": {"job_state": {"pace": 30}}}, 3),
        ("parallel_batch", {}, NEVER),
        ("parallel_batch", {"threshold": 2}, 5),
        ("batches_of_one", {}, 3),
        ("parallel_failures", {}, NEVER),
        ("retries_with_back_off", {}, 3),
        ("retries_with_back_off", {"tools": {"charge": {"pace": 1}}}, NEVER),
        ("retries_without_pause", {"tools": {"charge": {"pace": 1}}}, 3),
    ],
)
def test_a_case_trips_at_its_exact_call(name, policy, trip):
    assert first_trips(name, policy) == ({} if trip is NEVER else {"": trip})


@pytest.mark.parametrize(
    ("name", "fields", "trips"),
    [
        ("sub_agents", ["session", "run", "agent"], {}),
        ("sub_agents", ["session"], {"": 3}),
        ("sub_agent_that_loops", ["session", "run", "agent"], {"coder": 3}),
        ("handed_back_and_forth", ["session"], {"": 5}),
        ("handed_back_and_forth", ["session", "agent"], {"support": 3, "billing": 3}),
        ("runs", ["session", "run", "agent"], {}),
        ("runs", ["session"], {"": 3}),
        ("run_that_loops", ["session", "run"], {"r1": 3}),
    ],
)
def test_counts_stay_within_the_fields_that_make_up_a_session(name, fields, trips):
    assert first_trips(name, {}, fields) == trips

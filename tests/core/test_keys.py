"""What stands in Redis: names, types, members, scores, TTLs; and what no longer stands there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from counting import EDIT, OTHER, SEARCH, call, counts
from redis.crc import key_slot

from loopfence import ConfigError, ToolRule, signature

if TYPE_CHECKING:
    from keyspace import Keys

    from conftest import StoreUnderTest

SEARCH_SIGNATURE = "search:09ab59cc57eb3dec"
EDIT_SIGNATURE = "edit:f6ffccb4b7735106"
NONE_DIGEST = "40f11b7e4ae80652"
"""Of the result "none"."""


def test_plain_calls_stand_in_two_keys(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard().session("run")
    before = time.time_ns() // 1000
    for number in "123":
        session.check(*SEARCH, call_id=number)
    session.peek(*OTHER)
    found = keys.all()
    assert list(found) == ["loopfence:{run}:calls", "loopfence:{run}:counts"]
    members, scores = zip(*found["loopfence:{run}:calls"], strict=True)
    assert members == (f"{SEARCH_SIGNATURE} 1", f"{SEARCH_SIGNATURE} 2", f"{SEARCH_SIGNATURE} 3")
    assert before <= scores[0] < scores[1] < scores[2] <= time.time_ns() // 1000 + 2
    assert all(score == int(score) for score in scores)
    assert found["loopfence:{run}:counts"] == {SEARCH_SIGNATURE: "3"}


def test_scores_go_on_from_the_last_one_where_the_clock_stands_behind_it(
    redis_store: StoreUnderTest, keys: Keys
) -> None:
    session = redis_store.guard().session("run")
    session.check(*SEARCH, call_id="1")
    ahead = time.time_ns() // 1000 + 60_000_000
    keys.client.zadd("loopfence:{run}:calls", {f"{SEARCH_SIGNATURE} 1": ahead})
    session.check(*SEARCH, call_id="2")
    session.check(*SEARCH, call_id="3")
    assert [score for _, score in keys.content("loopfence:{run}:calls")] == [ahead, ahead + 1, ahead + 2]


def test_signatures_are_a_contract() -> None:
    assert signature(*SEARCH) == SEARCH_SIGNATURE
    assert signature(*EDIT) == EDIT_SIGNATURE
    assert signature("search", None) == signature("search", {}) == "search:1349cde127705c16"
    awkward = {"é": [1, 1.0, True, None, "\u2028"]}
    assert signature("web/fetch page", awkward) == "web/fetch%20page:6ac6ab5f21283147"
    assert signature("naïve {tool}", []) == "na%C3%AFve%20%7Btool%7D:831154110e30ac6a"
    assert signature("t", 2**80) == "t:cb42de9d1a8cda8b"
    assert signature(*SEARCH, secret=b"pepper") == "search:eda6ac449e4d315c"


def test_state_is_a_contract(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard(tools={"edit": ToolRule(progress=True)}).session("run")
    session.report(session.check(*SEARCH, call_id="1"), result="none")
    session.report(session.check(*SEARCH, call_id="2"), ok=False)
    session.report(session.check(*EDIT, call_id="3"))
    scores = {member: round(score) for member, score in keys.content("loopfence:{run}:calls")}
    first = {
        "version": "1",
        f"call:{SEARCH_SIGNATURE} 1": "1 search",
        f"call:{SEARCH_SIGNATURE} 2": "0 search",
        f"call:{EDIT_SIGNATURE} 3": "1 edit",
        f"sig:{SEARCH_SIGNATURE}": f"0 0 {NONE_DIGEST} 0",
        "tool:search": f"0 1 1 {NONE_DIGEST} {scores[f'{SEARCH_SIGNATURE} 2']}",
        "tool:edit": f"0 0 0 - {scores[f'{EDIT_SIGNATURE} 3']}",
        "epoch": "1",
        "epoch_by": EDIT_SIGNATURE,
        "epoch_before": "0",
    }
    assert keys.content("loopfence:{run}:state") == first
    session.check(*SEARCH, call_id="4")
    session.note_progress()
    session.halt("enough")
    second = keys.content("loopfence:{run}:state")
    assert len(second.pop("epoch_token")) > 8
    assert second == first | {
        f"sig:{SEARCH_SIGNATURE}": f"1 2 {NONE_DIGEST} 0",
        "epoch": "2",
        "epoch_by": "",
        "epoch_before": "1",
        "halted": "enough",
    }


def test_a_pace_keeps_the_latest_score_of_its_signature(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard(tools={"search": ToolRule(pace=60)}).session("run")
    session.check(*SEARCH, call_id="1")
    ((_, score),) = keys.content("loopfence:{run}:calls")
    assert keys.content("loopfence:{run}:state") == {
        "version": "1",
        f"sig:{SEARCH_SIGNATURE}": f"0 0 - {score:.0f}",
    }


def test_a_policys_halt_is_written_with_the_call_that_reached_it(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard(threshold=2, stop=3).session("run")
    counts(session, SEARCH, SEARCH)
    assert "loopfence:{run}:state" not in keys.all()
    counts(session, SEARCH)
    assert keys.content("loopfence:{run}:state") == {
        "version": "1",
        "halted": "search was called 3 times without progress",
    }


def test_arguments_stand_in_redis_only_where_they_are_kept(redis_store: StoreUnderTest, keys: Keys) -> None:
    redis_store.guard().session("plain").check("search", {"q": "hunter2"})
    redis_store.guard(keep_args=True).session("kept").check("search", {"q": "hunter2"})
    found = keys.all()
    text = found.pop("loopfence:{kept}:args")
    assert text == {signature("search", {"q": "hunter2"}): '{"q":"hunter2"}'}
    assert "hunter2" not in repr(found)
    assert not any(key.endswith(":args") for key in found)


@pytest.mark.parametrize("sign", ["x", "é", "😀"])
def test_at_most_4096_bytes_of_the_arguments_are_kept_and_no_half_character(
    redis_store: StoreUnderTest, keys: Keys, sign: str
) -> None:
    redis_store.guard(keep_args=True).session("run").check("search", {"q": sign * 5000})
    (text,) = keys.content("loopfence:{run}:args").values()
    width = len(sign.encode())
    assert text == '{"q":"' + sign * ((4096 - 6) // width)


HOSTILE = {
    "}": "%7D",
    "{x}": "%7Bx%7D",
    "a}{b": "a%7D%7Bb",
    "{}": "%7B%7D",
    "nul\0 newline\n": "nul%00%20newline%0A",
    "😀": "%F0%9F%98%80",
    "\ud800": "%ED%A0%80",
    "100%~*?[]\\": "100%25%7E%2A%3F%5B%5D%5C",
    "user@host:8080/path-to_x.y": "user@host:8080/path-to_x.y",
    "é" * 256: "%C3%A9" * 256,
}


@pytest.mark.parametrize(("name", "encoded"), HOSTILE.items())
def test_names_are_percent_encoded_and_all_keys_of_a_session_share_its_slot(
    redis_store: StoreUnderTest, keys: Keys, name: str, encoded: str
) -> None:
    guard = redis_store.guard(keep_args=True)
    session = guard.session(name)
    session.report(session.check(name, {}, call_id="}{ \n"), result=1)
    found = keys.all()
    assert list(found) == [f"loopfence:{{{encoded}}}:{kind}" for kind in ("args", "calls", "counts", "state")]
    assert [member for member, _ in found[f"loopfence:{{{encoded}}}:calls"]] == [
        f"{encoded}:1349cde127705c16 %7D%7B%20%0A"
    ]
    assert {key_slot(key.encode()) for key in found} == {key_slot(encoded.encode())}
    assert list(guard.sessions()) == [name]
    assert [(one.tool, one.digest) for one in session.snapshot().calls] == [(name, "1349cde127705c16")]


def test_a_call_id_of_more_than_16_characters_stands_as_its_digest(redis_store: StoreUnderTest, keys: Keys) -> None:
    session = redis_store.guard().session("run")
    session.check(*SEARCH, call_id="exactly sixteen!")
    session.check(*SEARCH, call_id="a long identifier 1")
    assert [member.split(" ")[1] for member, _ in keys.content("loopfence:{run}:calls")] == [
        "exactly%20sixteen%21",
        "c3a95af7bd3b0054",
    ]


# -- several workers, several namespaces


def test_workers_with_different_windows_share_a_session_without_a_wrong_count(store: StoreUnderTest) -> None:
    old, new = (store.guard(window=window, threshold=3).session("run") for window in (5, 3))
    assert counts(old, SEARCH, OTHER, SEARCH, OTHER, SEARCH) == [1, 1, 2, 2, 3]
    assert (new.peek(*SEARCH).count, new.peek(*SEARCH).size, len(new), len(old)) == (2, 3, 3, 5)
    assert counts(new, SEARCH) == [2]
    assert (len(new), len(old)) == (3, 3)
    assert counts(old, SEARCH, SEARCH) == [3, 4]
    assert counts(new, SEARCH) == [3]
    snapshot = old.snapshot()
    assert snapshot.counts == {SEARCH_SIGNATURE: 3}


def test_a_namespace_keeps_its_sessions_to_itself(store: StoreUnderTest) -> None:
    mine, theirs = store.guard(namespace="fleet"), store.guard(namespace="fleet:b")
    counts(mine.session("run"), SEARCH)
    theirs.session("halted only").halt("enough")
    assert mine.session("run").peek(*SEARCH).count == 2
    assert theirs.session("run").peek(*SEARCH).count == 1
    assert (list(mine.sessions()), list(theirs.sessions())) == (["run"], ["halted only"])
    assert (mine.tracked_sessions(), theirs.tracked_sessions()) == (1, 1)


def test_a_session_is_listed_once(redis_store: StoreUnderTest, keys: Keys) -> None:
    guard = redis_store.guard()
    for number in range(50):
        call(guard.session(f"run {number}"), result=1)
    keys.client.set("loopfence:{not ours}:calls:more", 1, px=60_000)
    assert sorted(guard.sessions()) == sorted(f"run {number}" for number in range(50))


@pytest.mark.parametrize("sign", "{}*?[]\\")
def test_a_namespace_holds_no_sign_of_a_pattern_or_a_hash_tag(store: StoreUnderTest, sign: str) -> None:
    with pytest.raises(ConfigError, match="namespace must hold none of"):
        store.guard(namespace=f"a{sign}b")

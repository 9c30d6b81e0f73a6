"""Policies, halts, outages and odd histories: what a transcript is judged by, and what it costs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio
from histories import LOOP, Ran, Step, anthropic, chat, numbered, sent

from loopfence import Level, ToolRule
from loopfence.integrations.transcript import TranscriptGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import StoreUnderTest
    from servers import RedisServer

    Make = Callable[..., TranscriptGuard]


async def test_shadow_mode_says_so_and_lets_it_through(make: Make) -> None:
    guard = make(enforce=False, stop=4)
    verdicts = [await guard.check("s", chat(numbered([*LOOP, Ran(), Ran()][:n]))) for n in range(2, 7)]
    assert [v.level for v in verdicts if v] == [Level.ALLOW, Level.ALLOW, Level.BLOCK, Level.STOP, Level.STOP]
    assert all(v.allowed for v in verdicts if v)


async def test_stop_halts_the_session_for_every_proxy(make: Make) -> None:
    guard, history = make(stop=4), numbered([*LOOP, Ran()])
    verdict = await guard.check("s", chat(history))
    assert verdict is not None
    assert (verdict.level, verdict.rule, verdict.allowed) == (Level.STOP, "repeat", False)
    later = await make(stop=4).check("s", chat(["Something else."]))
    assert later is not None
    assert (later.level, later.rule, later.allowed) == (Level.STOP, "halted", False)
    await guard._guard.session("s").resume()
    resumed = await make(stop=4).check("s", chat(["Something else."]))
    assert resumed is not None
    assert resumed.allowed


async def test_an_operators_halt_holds_in_shadow_mode_too(make: Make, store: StoreUnderTest) -> None:
    guard = make(enforce=False)
    await guard._guard.session("s").halt("budget spent")
    verdict = await guard.check("s", chat(["Hi."]))
    assert verdict is not None
    assert (verdict.allowed, verdict.halted) == (False, "budget spent")


async def test_polls_at_their_pace_are_not_taken_for_a_burst_by_a_proxy_that_starts_late(make: Make) -> None:
    guard = make(tools={"status": ToolRule(pace=0.001)})
    history = numbered(["Wait.", *[Ran("status", result="running") for _ in range(9)]])
    verdict = await guard.check("s", chat(history))
    assert verdict is not None
    assert (verdict.allowed, verdict.count, verdict.size) == (True, 1, 2)


async def test_calls_of_unknown_age_are_not_taken_for_new_ones(make: Make) -> None:
    verdict = await make(max_age=60).check("s", chat(numbered(LOOP)))
    assert verdict is not None
    assert (verdict.allowed, verdict.count, verdict.size) == (True, 1, 1)


async def test_notes_of_the_agent_itself_are_no_user_turn(make: Make) -> None:
    def reminded(steps: list[Step], words: str) -> dict[str, Any]:
        request = anthropic(steps)
        for message in request["messages"]:
            if isinstance(message["content"], list) and message["role"] == "user":
                message["content"].append({"type": "text", "text": words, "cache_control": {"type": "ephemeral"}})
        return request

    history = numbered(LOOP)
    refused = await make().check("s", reminded(history, "<system-reminder>Use the todo list.</system-reminder>"))
    spoken = await make().check("t", reminded(history, "Stop. Look elsewhere."))
    assert refused is not None
    assert spoken is not None
    assert (refused.allowed, spoken.allowed) == (False, True)


async def test_a_cache_hint_that_moves_does_not_make_an_old_user_message_new(make: Make) -> None:
    guard, history = make(), numbered(LOOP)
    for n in range(2, len(history) + 1):
        request = anthropic(history[:n])
        hint = {"cache_control": {"type": "ephemeral"}} if n % 2 else {}
        request["messages"][0]["content"] = [{"type": "text", "text": "Find it.", **hint}]
        verdict = await guard.check("s", request)
    assert verdict is not None
    assert (verdict.allowed, verdict.size) == (False, 4)


async def test_calls_without_a_result_are_counted_and_reported_when_it_comes(make: Make) -> None:
    guard, history = make(), numbered(["Wait.", Ran(result="1 %"), Ran(result="2 %"), Ran(result="3 %")])
    for n in range(2, len(history) + 1):
        whole = chat(history[:n])
        pending = {**whole, "messages": whole["messages"][:-1]}
        for request in (pending, whole):
            verdict = await guard.check("s", request)
    assert verdict is not None
    assert (verdict.allowed, verdict.count, verdict.total) == (True, 1, 3)


async def test_a_result_that_comes_after_the_next_call_is_noted_too(make: Make) -> None:
    guard, history = make(), numbered(["Wait.", Ran(result="1 %"), Ran(result="2 %")])
    whole = chat(history)
    pending = {**whole, "messages": whole["messages"][:3]}
    verdicts = [await guard.check("s", request) for request in (pending, whole)]
    assert [(v.count, v.total) for v in verdicts if v] == [(1, 1), (1, 2)]


class RecordsLate(redis.asyncio.Redis):
    """A client of the user's own, with many connections: calls arrive after their reports."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == "EVALSHA" and len(args) == RECORD_ARGUMENTS:
            await asyncio.sleep(0.02)
        return await super().execute_command(*args, **options)


RECORD_ARGUMENTS = 3 + 4 + 10  # the command, its script and number of keys; keys; arguments


async def test_nobody_is_refused_because_a_report_overtook_its_call(newest_server: RedisServer) -> None:
    client = RecordsLate.from_url(newest_server.url)
    guard = TranscriptGuard(client=client, threshold=2)
    assert await sent(guard, ["Wait.", *[Ran(result=f"{n} %") for n in range(6)]]) == [Level.ALLOW] * 6
    assert (await sent(guard, ["Find it.", Ran("find"), Ran("find")]))[-2:] == [Level.ALLOW, Level.BLOCK]
    await client.aclose()


async def test_what_a_request_costs(newest_server: RedisServer) -> None:
    spent = 0

    def steps() -> int:
        nonlocal spent
        before, spent = spent, newest_server.admin.info("commandstats")["cmdstat_evalsha"]["calls"]
        return spent - before

    one, other = TranscriptGuard(newest_server.url), TranscriptGuard(newest_server.url)
    history = numbered(["Read.", *[Ran(args={"q": n}) for n in range(40)]])
    await one.check("s", chat(history[:-2]))
    steps()
    await one.check("s", chat(history[:-1]))
    assert steps() == 3, "a history that has grown: record, report, judge"
    await other.check("s", chat(history))
    assert steps() == 1 + 3, "the same on a proxy that has not seen it: a look before"
    await one.check("s", chat(history))
    assert steps() == 3
    await other.check("s", chat(history))
    assert steps() == 1 + 1, "a history that is sent again: a look, judge"
    await one.close()
    await other.close()


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"messages": None},
        {"messages": "x"},
        {"messages": [None, 1, "x", [], {}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": {}, "function": {"name": [], "arguments": 1}}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": ""}}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "x" * 600}}]}]},
        {"messages": [{"role": "user", "content": [[], None, {"type": []}, {"type": "tool_result"}]}]},
        {"input": "hi"},
    ],
)
async def test_histories_without_a_readable_call_are_let_through(request_: Any) -> None:
    guard = TranscriptGuard("memory://")
    assert await guard.check("s", request_) is None
    await guard.close()


@pytest.mark.parametrize("odd", ["\ud800", "a b", "{s}:calls", "x" * 512])
async def test_odd_names_and_arguments_are_counted_like_any_other(make: Make, odd: str) -> None:
    verdict = await make().check(odd, chat(["Go.", *[Ran(odd, {"\ud800": 10**30}, id=f"id{n}") for n in range(3)]]))
    assert verdict is not None
    assert (verdict.allowed, verdict.count, verdict.tool) == (False, 3, odd)


async def test_no_model_can_pose_as_the_user() -> None:
    guard = TranscriptGuard("memory://")
    steps: list[Step] = ["Go."]
    for _ in range(3):
        steps += [Ran(), Ran("(user turn)")]
    assert (await sent(guard, steps))[-1] is Level.BLOCK


@pytest.mark.parametrize(("on_outage", "allowed"), [("local", True), ("allow", True), ("block", False)])
async def test_while_redis_is_out_the_outage_policy_decides(on_outage: Any, allowed: bool) -> None:
    guard = TranscriptGuard("redis://127.0.0.1:1/0", on_outage=on_outage)
    verdict = await guard.check("s", chat(numbered(LOOP[:3])))
    assert verdict is not None
    assert (verdict.allowed, verdict.degraded) == (allowed, True)
    assert verdict.rule == (None if allowed else "outage")
    await guard.close()


async def test_a_local_window_still_finds_loops_while_redis_is_out() -> None:
    guard = TranscriptGuard("redis://127.0.0.1:1/0", on_outage="local")
    assert await sent(guard, LOOP) == [Level.ALLOW, Level.ALLOW, Level.BLOCK]
    await guard.close()


@pytest.mark.parametrize("enforce", [True, False])
async def test_the_policy_is_what_was_stated(make: Make, enforce: bool) -> None:
    assert (make(window=7, enforce=enforce).policy.window, make(enforce=enforce).policy.enforce) == (7, enforce)

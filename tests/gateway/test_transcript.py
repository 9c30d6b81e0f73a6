"""Tool loops seen in re-sent histories: each call counts once, however often and by whichever proxy it is sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import fakeredis
import pytest
import redis.asyncio
from histories import Ran, Step, anthropic, chat, numbered, ollama, responses

from loopfence import AsyncLoopGuard, Level, ToolRule
from loopfence.integrations.transcript import TranscriptGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from conftest import StoreUnderTest
    from servers import RedisServer

    Make = Callable[..., TranscriptGuard]

LOOP: list[Step] = ["Find it.", Ran(), Ran(), Ran()]


@pytest.fixture
async def make(store: StoreUnderTest) -> AsyncIterator[Make]:
    """`make(threshold=…)`: a guard of one more proxy; all share the store."""
    made: list[TranscriptGuard] = []

    def one(**settings: Any) -> TranscriptGuard:
        if store.name == "fakeredis":
            settings["client"] = fakeredis.FakeAsyncRedis(server=store._fake)
        made.append(TranscriptGuard(None if store.name == "fakeredis" else store.url, **settings))
        return made[-1]

    yield one
    for guard in made:
        await guard.close()


async def sent(guard: TranscriptGuard, steps: list[Step], form: Any = chat) -> list[Level]:
    """The levels of a growing history's requests, one after each step."""
    history = numbered(steps)
    verdicts = [await guard.check("s", form(history[: n + 1])) for n in range(len(history))]
    return [verdict.level for verdict in verdicts if verdict is not None]


async def window(guard: TranscriptGuard) -> list[str]:
    """The call ids in the session's window, oldest first."""
    return [call.call_id for call in (await guard._guard.session("s").snapshot()).calls]


@pytest.mark.parametrize("form", [chat, anthropic, responses, ollama])
async def test_the_third_equal_call_without_progress_is_refused(make: Make, form: Any) -> None:
    guard, history = make(), numbered(LOOP)
    assert await guard.check("s", form(history[:1])) is None
    for n in (1, 2):
        verdict = await guard.check("s", form(history[: n + 1]))
        assert verdict is not None
        assert (verdict.allowed, verdict.count, verdict.rule) == (True, n, None)
    verdict = await guard.check("s", form(history))
    assert verdict is not None
    assert (verdict.allowed, verdict.level, verdict.rule, verdict.tool) == (False, Level.BLOCK, "repeat", "search")
    assert verdict.text == "tool 'search' called 3 times in the last 20 calls (threshold=3)"


async def test_a_history_that_is_sent_again_counts_once(make: Make) -> None:
    guard, history = make(), chat(numbered(LOOP[:3]))
    for _ in range(10):
        verdict = await guard.check("s", history)
        assert verdict is not None
        assert (verdict.allowed, verdict.count, verdict.total, verdict.size) == (True, 2, 2, 3)


async def test_a_refused_history_stays_refused(make: Make) -> None:
    guard, history = make(), chat(numbered(LOOP))
    for _ in range(5):
        verdict = await guard.check("s", history)
        assert verdict is not None
        assert (verdict.allowed, verdict.count) == (False, 3)


async def test_two_proxies_share_the_view_and_count_once(make: Make) -> None:
    first, second = make(), make()
    history = numbered(["Find it.", *[Ran(args={"q": n}) for n in range(5)], Ran(), Ran(), Ran()])
    for n in range(1, len(history) - 1):
        for guard in (first, second)[:: 1 if n % 2 else -1]:
            verdict = await guard.check("s", chat(history[: n + 1]))
            assert verdict is not None
            assert verdict.allowed
    assert await window(first) == await window(second)
    assert len(await window(first)) == len(history) - 1
    for guard in (second, first):
        verdict = await guard.check("s", chat(history))
        assert verdict is not None
        assert (verdict.allowed, verdict.count) == (False, 3)


async def test_results_that_change_are_progress_also_that_of_the_last_call(make: Make) -> None:
    polls: list[Step] = ["Wait for it.", *[Ran("status", {"id": 7}, f"{n} %") for n in range(30)]]
    assert await sent(make(), polls) == [Level.ALLOW] * 30


async def test_a_result_that_stops_changing_is_a_loop_again(make: Make) -> None:
    steps: list[Step] = ["Wait.", *[Ran(result=r) for r in ("1 %", "2 %", "2 %", "2 %", "2 %")]]
    assert await sent(make(), steps) == [Level.ALLOW] * 3 + [Level.BLOCK] * 1 + [Level.BLOCK]


async def test_a_user_message_is_a_new_turn(make: Make) -> None:
    guard = make()
    assert await sent(guard, [*LOOP, "Try again, please."]) == [Level.ALLOW, Level.ALLOW, Level.BLOCK, Level.ALLOW]
    levels = await sent(guard, [*LOOP, "Try again, please.", Ran(), Ran(), Ran()])
    assert levels[-4:] == [Level.ALLOW, Level.ALLOW, Level.ALLOW, Level.BLOCK]


async def test_a_user_message_is_progress_once_and_not_on_each_sending(make: Make) -> None:
    guards, history = [make(), make()], numbered(LOOP)
    for n in (2, 3):
        for _ in range(4):
            for guard in guards:
                assert (await guard.check("s", chat(history[:n]))).allowed  # type: ignore[union-attr]
    for guard in guards:
        assert not (await guard.check("s", chat(history))).allowed  # type: ignore[union-attr]


async def test_a_user_who_says_the_same_again_and_again_is_in_no_loop(make: Make) -> None:
    steps: list[Step] = ["Go on."]
    for n in range(6):
        steps += [Ran(args={"page": n}), "Go on."]
    assert set(await sent(make(), steps)) == {Level.ALLOW}


async def test_a_history_longer_than_the_window_is_not_entered_again_by_a_proxy_that_never_saw_it(make: Make) -> None:
    history = numbered(["Read it all.", *[Ran("read", {"page": n % 7}, f"page {n % 7}") for n in range(40)]])
    first = make(window=5)
    for n in range(1, len(history)):
        await first.check("s", chat(history[: n + 1]))
    before = await window(first)
    for _ in range(3):
        assert (await make(window=5).check("s", chat(history))).count == 1  # type: ignore[union-attr]
    assert await window(first) == before
    assert len(before) == 5


async def test_a_proxy_that_starts_in_mid_session_enters_the_last_window_in_order(make: Make) -> None:
    history = numbered(["Find it.", *[Ran(args={"q": n}) for n in range(12)], Ran(), Ran(), Ran()])
    one, whole = make(window=6), make(window=6)
    verdict = await one.check("s", chat(history))
    assert verdict is not None
    assert (verdict.allowed, verdict.count, verdict.size) == (False, 3, 6)
    assert [call.tool for call in (await whole._guard.session("s").snapshot()).calls] == ["search"] * 6
    assert await whole.check("s", chat(history)) == verdict


@pytest.mark.parametrize("form", [chat, anthropic, responses])
async def test_a_compacted_history_does_not_count_again_what_it_kept(make: Make, form: Any) -> None:
    guard, history = make(), numbered(["Find it.", *[Ran(args={"q": n}) for n in range(6)], Ran(), Ran()])
    assert (await guard.check("s", form(history))).count == 2  # type: ignore[union-attr]
    before = await window(guard)
    for cut in (1, 4, 7):
        verdict = await guard.check("s", form(history[cut:]))
        assert verdict is not None
        assert (verdict.allowed, verdict.count) == (True, 2)
    assert await window(guard) == before
    verdict = await guard.check("s", form([*history[7:], *numbered([Ran(id="call_new")])]))
    assert verdict is not None
    assert (verdict.allowed, verdict.count) == (False, 3)


async def test_a_user_who_repeats_words_that_were_cut_off_has_spoken_again(make: Make) -> None:
    guard = make()
    history = numbered(["Go on.", Ran(args={"page": 1}), "Go on.", Ran(), Ran()])
    for n in range(2, len(history) + 1):
        await guard.check("s", chat(history[:n]))
    cut = [*history[2:], *numbered(["Go on.", Ran(id="call_new")])]
    for n in (len(cut) - 1, len(cut)):
        verdict = await guard.check("s", chat(cut[:n]))
    assert verdict is not None
    assert (verdict.allowed, verdict.count, verdict.total) == (True, 1, 3)


async def test_ids_that_the_model_uses_again_are_told_apart(make: Make) -> None:
    steps: list[Step] = ["Find it.", *[Ran(args={"q": n % 2}, id="call_0") for n in range(6)]]
    assert await sent(make(), steps) == [Level.ALLOW] * 4 + [Level.BLOCK] * 2


async def test_a_cut_history_with_ids_used_again_is_never_overcounted(make: Make) -> None:
    guard = make()
    history: list[Step] = ["Find it.", *[Ran(args={"q": n % 3}, id="call_0") for n in range(6)]]
    for n in range(2, len(history) + 1):
        await guard.check("s", chat(history[:n]))
    for cut in range(1, len(history)):
        verdict = await guard.check("s", chat(history[cut:]))
        assert verdict is not None
        assert (verdict.allowed, verdict.count) == (True, 2)


async def test_equal_calls_of_one_turn_are_one(make: Make) -> None:
    steps: list[Step] = ["Find it.", [Ran(), Ran(), Ran()], [Ran(), Ran()]]
    assert await sent(make(), steps) == [Level.ALLOW, Level.ALLOW]
    assert (await sent(make(), [*steps, [Ran(), Ran()]]))[-1] is Level.BLOCK


async def test_a_turn_that_also_does_something_new_goes_on(make: Make) -> None:
    steps: list[Step] = ["Find it.", *[[Ran(), Ran("read", {"page": n})] for n in range(4)]]
    assert set(await sent(make(), steps)) == {Level.ALLOW}
    stuck: list[Step] = ["Find it.", *[[Ran(), Ran("read")] for _ in range(3)]]
    assert (await sent(make(), stuck))[-1] is Level.BLOCK


async def test_a_tool_that_is_declared_to_make_progress_clears_the_others(make: Make) -> None:
    guard = make(tools={"edit": ToolRule(progress=True)})
    steps: list[Step] = ["Fix it.", Ran("test"), Ran("test"), Ran("edit"), Ran("test"), Ran("test"), Ran("test")]
    assert await sent(guard, steps) == [Level.ALLOW] * 5 + [Level.BLOCK]


async def test_calls_that_all_failed_are_refused_by_the_failures_rule(make: Make) -> None:
    steps: list[Step] = ["Do it.", *[Ran("run", {"n": n}, "error", failed=True) for n in range(4)]]
    assert await sent(make(failures=5), steps, anthropic) == [Level.ALLOW] * 3 + [Level.BLOCK]


async def test_requests_in_flight_at_once_count_once(make: Make) -> None:
    guards, history = [make(), make()], chat(numbered(LOOP[:3]))
    verdicts = await asyncio.gather(*[guards[n % 2].check("s", history) for n in range(20)])
    assert {(v.allowed, v.count, v.size) for v in verdicts if v is not None} == {(True, 2, 3)}
    assert len(await window(guards[0])) == 3


async def test_two_histories_in_one_session_do_not_disturb_each_other(make: Make) -> None:
    guard = make()
    ours = numbered(["Main.", Ran("a"), Ran("b", {"n": 1}), Ran("a")])
    theirs = numbered(["Sub.", Ran("c", id="toolu_1"), Ran("d", id="toolu_2"), Ran("c", id="toolu_3")])
    for n in range(2, 5):
        for history in (ours, theirs, ours):
            verdict = await guard.check("s", chat(history[:n]))
            assert verdict is not None
            assert verdict.allowed
    assert len(await window(guard)) == 8


async def test_what_others_pushed_out_of_the_window_does_not_enter_it_again(make: Make) -> None:
    guard = make(window=6)
    ours = numbered(["Find it.", Ran("list"), Ran(), Ran(), Ran()])
    theirs = [Ran("read", {"page": n}, id=f"toolu_{n}") for n in range(3)]
    await guard.check("s", chat(ours[:4]))
    await guard.check("s", chat(theirs))
    before = await window(guard)
    await guard.check("s", chat(ours[:4]))
    assert await window(guard) == before
    verdict = await guard.check("s", chat(ours))
    assert verdict is not None
    assert (verdict.allowed, verdict.count, verdict.size) == (False, 3, 6)


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


async def test_the_policy_is_what_was_stated(make: Make) -> None:
    guard = make(window=7, tools={"read": ToolRule(exempt=True)})
    assert (guard.policy.window, guard.policy.enforce) == (7, True)
    assert AsyncLoopGuard(window=7).policy.window == 7

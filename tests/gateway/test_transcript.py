"""Tool loops seen in re-sent histories: each call counts once, however often and by whichever proxy it is sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from histories import LOOP, Ran, Step, anthropic, chat, numbered, ollama, responses, sent, window

from loopfence import Level, ToolRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence.integrations.transcript import TranscriptGuard

    Make = Callable[..., TranscriptGuard]


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

"""Laws of re-sent histories, over histories that nobody thought of."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from histories import Ran, Step, anthropic, chat, numbered, ollama, responses
from hypothesis import given, settings
from hypothesis import strategies as st

from loopfence import LoopGuard, ToolRule
from loopfence.integrations._history import USER_TURN, Event, events_of
from loopfence.integrations.transcript import TranscriptGuard

if TYPE_CHECKING:
    from servers import RedisServer

pytestmark = pytest.mark.timeout(300)

WINDOW = 5
POLICY: dict[str, Any] = {"window": WINDOW, "failures": 4, "tools": {"edit": ToolRule(progress=True)}}

runs = st.builds(
    Ran,
    tool=st.sampled_from(["search", "read", "edit"]),
    args=st.sampled_from([{"q": 1}, {"q": 2}]),
    result=st.sampled_from(["a", "b"]),
    failed=st.booleans(),
)
turns = st.lists(runs, min_size=1, max_size=3, unique_by=lambda run: (run.tool, str(run.args)))
steps = st.lists(st.sampled_from(["Go on.", "Stop it."]) | turns, min_size=1, max_size=25)
forms = st.sampled_from([chat, anthropic, responses])


@given(steps, st.sampled_from([chat, anthropic, responses, ollama]), st.sampled_from([None, "call_0"]), st.data())
def test_the_end_of_a_long_history_is_read_like_the_whole(history: list[Any], form: Any, same: Any, data: Any) -> None:
    if same:  # a model that uses its ids again
        history = [
            s if isinstance(s, str) else [Ran(r.tool, r.args, r.result, same, r.failed) for r in s] for s in history
        ]
    request, most = form(numbered(history)), data.draw(st.integers(1, 6))

    def seen(events: list[Event]) -> list[Any]:
        return [(event.tool, event.args, event.call_id, event.result, event.ok) for event in events]

    whole = events_of(request, 10_000)
    assert seen(events_of(request, most)) == seen(whole)[-most:]
    assert len({event.call_id for event in whole}) == len(whole)


def serial(history: list[Event]) -> tuple[list[str], bool]:
    """What a guard says that stood beside the tools: the window, and whether the last turn is a loop."""
    with LoopGuard(
        enforce=False, **{**POLICY, "tools": {USER_TURN: ToolRule(progress=True), **POLICY["tools"]}}
    ) as guard:
        session = guard.session("s")
        last = [event for event in history if event.turn == history[-1].turn]
        for turn in sorted({event.turn for event in history}):
            for event in (event for event in history if event.turn == turn):
                session.check(event.tool, event.args, call_id=event.call_id)
                session.report_call(
                    event.tool, event.args, call_id=event.call_id, result=event.result, ok=event.ok
                )  # fmt: skip
        verdicts = [session.check(event.tool, event.args, call_id=event.call_id) for event in last]
        return [call.call_id for call in session.snapshot().calls], all(v.level >= 2 for v in verdicts)


async def resent(url: str, requests: list[Any], plan: list[int]) -> tuple[list[str], bool | None]:
    """Each request in turn, some of them several times, through two proxies that share a store."""
    proxies = [TranscriptGuard(url, **POLICY) for _ in range(2)]
    verdict = None
    for request, times in zip(requests, plan, strict=False):
        for n in range(times):
            verdict = await proxies[(times + n) % 2].check("s", request)
    seen = await proxies[0]._guard.session("s").snapshot()
    for proxy in proxies:
        await proxy.close()
    return [call.call_id for call in seen.calls], None if verdict is None else not verdict.allowed


def holds(url: str, history: list[Step], form: Any, plan: list[int]) -> None:
    named = numbered(history)
    first_call = next((n for n, step in enumerate(named) if not isinstance(step, str)), None)
    if first_call is None:
        return
    requests = [form(named[: n + 1]) for n in range(len(named))]
    window, refused = asyncio.run(resent(url, requests, [*plan, *[1] * len(requests)]))
    assert (window, refused) == serial(events_of(requests[-1], 10_000))


plans = st.lists(st.integers(1, 3), max_size=25)


@given(steps, forms, plans)
def test_resending_through_two_proxies_is_the_same_as_standing_beside_the_tools(
    history: list[Step], form: Any, plan: list[int]
) -> None:
    holds(f"memory://{uuid.uuid4()}", history, form, plan)


@settings(max_examples=40)
@given(steps, forms, plans)
def test_and_so_it_is_on_redis(newest_server: RedisServer, history: list[Step], form: Any, plan: list[int]) -> None:
    newest_server.flush()
    holds(newest_server.url, history, form, plan)


@given(steps, forms, st.data())
def test_a_cut_history_enters_no_call_again(history: list[Step], form: Any, data: Any) -> None:
    async def story() -> None:
        guard, named = TranscriptGuard(**POLICY), numbered(history)

        async def calls() -> list[str]:
            seen = await guard._guard.session("s").snapshot()
            return [call.call_id for call in seen.calls if call.tool != USER_TURN]

        for n in range(len(named)):
            await guard.check("s", form(named[: n + 1]))
        before = await calls()
        cut = named[data.draw(st.integers(0, len(named) - 1)) :]
        await guard.check("s", form(cut))
        after = await calls()
        # A user turn may enter again, where the call that it followed was cut off, and push out the oldest call.
        assert after == before[len(before) - len(after) :]

    asyncio.run(story())

"""How a task waits for its reply on asyncio: as for a Future, though it goes on inside the callback that reads."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

import pytest

from loopfence import AsyncLoopGuard
from proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from servers import RedisServer

name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


async def test_a_task_goes_on_in_its_own_context_and_as_itself(newest_server: RedisServer) -> None:
    async def agent(guard: AsyncLoopGuard, mine: str) -> None:
        name.set(mine)
        task = asyncio.current_task()
        for number in range(20):
            await guard.session(mine).check("search", {"n": number})
            assert (name.get(), asyncio.current_task()) == (mine, task)
            await asyncio.sleep(0)

    async with AsyncLoopGuard(newest_server.url, timeout=5) as guard:
        await asyncio.create_task(agent(guard, "alone"))
        await asyncio.gather(*[agent(guard, f"agent-{number}") for number in range(10)])
        assert name.get() == "nobody"


async def test_tasks_go_on_in_the_order_of_their_calls(newest_server: RedisServer) -> None:
    order: list[int] = []

    async def agent(guard: AsyncLoopGuard, number: int) -> None:
        await guard.session("s").check("search", {"n": number})
        order.append(number)

    async with AsyncLoopGuard(newest_server.url, timeout=5) as guard:
        await guard.session("s").check("search")
        await asyncio.gather(*[agent(guard, number) for number in range(50)])
    assert order == list(range(50))


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, SystemExit])
def test_what_a_task_raises_after_its_reply_stops_the_loop_and_nothing_else(
    newest_server: RedisServer, stopped_by: type[BaseException]
) -> None:
    guard = AsyncLoopGuard(newest_server.url, timeout=5, on_outage="raise")
    session = guard.session("s")

    async def check_and_stop() -> None:
        await session.check("search")
        raise stopped_by

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(session.check("search"))
        with pytest.raises(stopped_by):
            loop.run_until_complete(check_and_stop())
        assert [loop.run_until_complete(session.check("search")).total for _ in range(3)] == [3, 4, 5]
    finally:
        loop.run_until_complete(guard.close())
        loop.close()


async def test_a_task_may_close_the_guard_while_others_wait_for_theirs(newest_server: RedisServer) -> None:
    async def check_and_close(guard: AsyncLoopGuard, number: int) -> int:
        verdict = await guard.session("s").check("search")
        if number == 0:
            await guard.close()
        return verdict.total

    async with AsyncLoopGuard(newest_server.url, timeout=5, on_outage="raise") as guard:
        await guard.session("other").check("search")
        totals = await asyncio.gather(*[check_and_close(guard, number) for number in range(20)])
        # Who was still waiting has asked again, and was counted once.
        assert (totals[0], max(totals), await guard.session("s").size()) == (1, 20, 20)


@pytest.fixture
async def delayed(newest_server: RedisServer) -> AsyncIterator[tuple[AsyncLoopGuard, Proxy]]:
    """A guard that has made a call in session "s", and the proxy before its server."""
    with Proxy(newest_server.address) as proxy:
        async with AsyncLoopGuard(proxy.url, timeout=5, on_outage="raise") as guard:
            await guard.session("s").check("search", {"n": -1})
            yield guard, proxy


async def test_a_cancelled_task_is_told_why(delayed: tuple[AsyncLoopGuard, Proxy]) -> None:
    guard, proxy = delayed
    proxy.inject("delay", seconds=0.1)
    task = asyncio.create_task(guard.session("s").check("search"))
    await asyncio.sleep(0.02)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.args == ("enough",)
    # The reply that came for the cancelled one is not taken for the next one's.
    assert (await guard.session("s").check("other")).total == 1


async def test_a_task_that_gives_up_by_itself_gets_its_timeout(delayed: tuple[AsyncLoopGuard, Proxy]) -> None:
    guard, proxy = delayed
    session = guard.session("s")
    proxy.inject("delay", seconds=0.2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.check("search")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.check("search"), 0.02)
    assert (await session.check("other")).total == 1


async def test_a_batch_that_comes_in_pieces_is_handed_out_whole(delayed: tuple[AsyncLoopGuard, Proxy]) -> None:
    guard, proxy = delayed
    proxy.inject("drip", times=None, seconds=0.0003)
    batch, single = await asyncio.gather(
        guard.record_many([("s", "search", {"n": number}) for number in range(30)]),
        guard.session("t").check("search"),
    )
    assert ([verdict.size for verdict in batch], single.size) == ([min(n + 2, 20) for n in range(30)], 1)

"""The asyncio guard on uvloop, the event loop that most ASGI servers run on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("uvloop", reason="needs the extra: pip install 'loopfence[gateway-test]'")

import uvloop

from loopfence import AsyncLoopGuard

if TYPE_CHECKING:
    from servers import RedisServer


def test_calls_at_once_are_counted_exactly(redis_url: str) -> None:
    async def story() -> None:
        async with AsyncLoopGuard(redis_url, timeout=5) as guard:
            session = guard.session("run-1")
            verdicts = await asyncio.gather(*[session.check("search", {"q": 1}) for _ in range(20)])
            assert sorted(verdict.count for verdict in verdicts) == list(range(1, 21))

    uvloop.run(story())


def test_deadlines_that_are_nearly_now_are_kept(newest_server: RedisServer) -> None:
    async def story() -> None:
        async with AsyncLoopGuard(newest_server.url, timeout=5) as guard:
            session = guard.session("run-1")
            await session.check("search")
            # Under half a millisecond uvloop makes no timer.
            guard._store._link._link._timeout = 0.0004
            verdicts = await asyncio.gather(*[session.check("search") for _ in range(20)])
            assert {verdict.source for verdict in verdicts} <= {"redis", "local"}

    uvloop.run(story())


def test_a_server_that_hangs_is_left_alone_and_found_again(newest_server: RedisServer) -> None:
    async def story() -> None:
        async with AsyncLoopGuard(newest_server.url, timeout=0.1) as guard:
            session = guard.session("run-1")
            assert (await session.check("search")).source == "redis"
            newest_server.freeze()
            try:
                verdicts = await asyncio.gather(*[session.check("search") for _ in range(50)])
            finally:
                newest_server.thaw()
            assert {verdict.source for verdict in verdicts} == {"local"}
            async with asyncio.timeout(10):
                while (await session.check("search")).source != "redis":
                    await asyncio.sleep(0.05)

    uvloop.run(story())

"""One test body for both guards: drives AsyncLoopGuard, on a loop of its own, as if it were synchronous."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Protocol

import redis
import redis.asyncio

from loopfence import AsyncLoopGuard, LoopGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Flavour(Protocol):
    """Makes guards, and the user's own clients for them, of one kind; closes them all."""

    name: str

    def guard(self, *args: Any, **options: Any) -> Any: ...
    def client(self, url: str, **options: Any) -> Any: ...
    def close(self) -> None: ...


class Sync:
    name = "sync"

    def __init__(self) -> None:
        self._made: list[Any] = []

    def guard(self, *args: Any, **options: Any) -> LoopGuard:
        return self._keep(LoopGuard(*args, **options))

    def client(self, url: str, **options: Any) -> redis.Redis:
        return self._keep(redis.Redis.from_url(url, **options))

    def _keep(self, made: Any) -> Any:
        self._made.append(made)
        return made

    def close(self) -> None:
        for made in reversed(self._made):
            made.close()


class Async:
    name = "async"

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._guards: list[AsyncLoopGuard] = []
        self._clients: list[redis.asyncio.Redis] = []

    def guard(self, *args: Any, **options: Any) -> Any:
        self._guards.append(AsyncLoopGuard(*args, **options))
        return _Driven(self._guards[-1], self.runner)

    def client(self, url: str, **options: Any) -> redis.asyncio.Redis:
        self._clients.append(redis.asyncio.Redis.from_url(url, **options))
        return self._clients[-1]

    def close(self) -> None:
        with self.runner as runner:
            for guard in self._guards:
                runner.run(guard.close())
            for client in self._clients:
                runner.run(client.aclose())
            runner.run(asyncio.sleep(0.01))  # what was closed is gone after the loop's next turns


FLAVOURS = {"sync": Sync, "async": Async}


class _Driven:
    """An AsyncLoopGuard or AsyncSession whose methods have been awaited when they return."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner

    def session(self, session_id: str) -> _Driven:
        return _Driven(self._target.session(session_id), self._runner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._wait_for(found) if callable(found) else found

    def _wait_for(self, method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            answer = method(*args, **options)
            if inspect.isawaitable(answer):
                return self._runner.run(_awaited(answer))
            if inspect.isasyncgen(answer):
                return iter(self._runner.run(_listed(answer)))
            return answer

        return call


async def _awaited(answer: Any) -> Any:
    return await answer


async def _listed(answers: AsyncIterator[Any]) -> list[Any]:
    return [answer async for answer in answers]


def flavours() -> Iterator[str]:
    """The parameter list of tests that hold for both."""
    return iter(FLAVOURS)

"""What the tests of the gateway share: guards of transcripts over every store, and guarded servers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import fakeredis
import pytest

from loopfence import AsyncLoopBreaker
from loopfence.integrations.asgi import LoopGuardMiddleware
from loopfence.integrations.transcript import TranscriptGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from gateways import Gateway
    from serving import Provider

    from conftest import StoreUnderTest


@pytest.fixture
def start() -> Iterator[Callable[..., Gateway]]:
    """`start(max_body=…)`: one more gateway; by default two equal requests pass, in memory."""
    # These need the packages of the extra.
    from gateways import Gateway
    from serving import Provider, serving

    with contextlib.ExitStack() as stack:

        def one(url: str | None = None, *, provider: Provider | None = None, **options: Any) -> Gateway:
            if url is None and not options.keys() & {"breaker", "transcript"}:
                options["breaker"] = AsyncLoopBreaker(max_repeats=2)
                options.setdefault("secret", "s3cret")
            provider = provider or Provider()
            middleware = LoopGuardMiddleware(provider, url, **options)
            at = stack.enter_context(serving(middleware))
            return stack.enter_context(Gateway(at, provider, middleware))

        yield one


@pytest.fixture
async def make(store: StoreUnderTest) -> AsyncIterator[Callable[..., TranscriptGuard]]:
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

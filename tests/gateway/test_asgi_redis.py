"""The middleware over real Redis servers: one loop view for all proxies, no secrets in keys, and life without Redis."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("httpx", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'loopfence[gateway-test]'")

import httpx
from histories import Ran, chat, numbered
from serving import Provider, serving

from loopfence import AsyncLoopBreaker, ConfigError, canonical_json, intent_fingerprint_value, signature
from loopfence.integrations.asgi import LoopGuardMiddleware
from loopfence.signature import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import RedisServer

CHAT = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
SESSION = {"x-session-id": "run-1", "authorization": "Bearer sk-planted-credential"}


@contextlib.contextmanager
def gateway(url: str, **options: Any) -> Any:
    """A provider behind the middleware; yields a function that posts a request to it."""
    provider = Provider()
    guard = LoopGuardMiddleware(provider, url, **{"secret": "s3cret", **options})
    with serving(guard) as at, httpx.Client(base_url=at, headers=SESSION, timeout=10) as client:

        def post(body: Any = CHAT, **headers: str) -> httpx.Response:
            return client.post("/v1/chat/completions", json=body, headers=headers)

        post.provider, post.guard = provider, guard  # type: ignore[attr-defined]
        yield post


def test_two_gateways_share_the_loop_view(redis_url: str) -> None:
    with gateway(redis_url) as first, gateway(redis_url) as second:
        codes = [(first, second)[n % 2]().status_code for n in range(7)]
        assert codes == [200] * 5 + [400] * 2
        history = numbered(["Find it.", Ran(), Ran(), Ran()])
        codes = [(first, second)[n % 2](chat(history[:n])).status_code for n in range(1, 5)]
        assert codes == [200, 200, 200, 400]


def test_without_a_common_secret_a_shared_store_is_refused(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="secret must be given"):
        LoopGuardMiddleware(Provider(), redis_url)
    with pytest.raises(ConfigError, match="secret must be given"):
        LoopGuardMiddleware(Provider(), breaker=AsyncLoopBreaker(url=redis_url))
    with pytest.raises(ConfigError, match="secret must not be empty"):
        LoopGuardMiddleware(Provider(), redis_url, secret="")
    LoopGuardMiddleware(Provider(), redis_url, tenant=lambda scope: "me")
    LoopGuardMiddleware(Provider(), "memory://")


@pytest.mark.parametrize("secret", ["s3cret", None])
def test_neither_credentials_nor_contents_are_in_redis(newest_server: RedisServer, secret: str | None) -> None:
    history = chat(numbered(["planted words", Ran("search", {"q": "planted argument"}, "planted result", "call_0")]))
    options = {"secret": secret} if secret else {"secret": None, "tenant": lambda scope: "me"}
    with gateway(newest_server.url, **options) as post:
        assert post(history).status_code == 200
        client = newest_server.admin
        keys = list(client.scan_iter())
        dump = b"".join(key + (client.dump(key) or b"") for key in keys)
    assert len(keys) >= 4
    assert all(b"/run-1}" in key for key in keys)
    for planted in (b"planted", b"credential", b"sk-"):
        assert planted not in dump
    # Nor can a guess be confirmed where a secret was given.
    guesses = [
        f"{intent_fingerprint_value('/v1/chat/completions', history):016x}",
        signature("search", {"q": "planted argument"}),
        digest(canonical_json([None, ["(user turn)", ["planted words"]], 0])),
        digest(canonical_json(["call_0", ["search", {"q": "planted argument"}], 0])),
    ]
    assert [guess.encode() in dump for guess in guesses] == [secret is None] * len(guesses)


@pytest.mark.parametrize(
    ("on_outage", "codes"),
    [
        ("local", [200, 200, 200, 200, 200, 400]),
        ("allow", [200] * 6),
        ("block", [503] * 6),
        ("raise", [200] * 6),
    ],
)
def test_while_redis_is_out_the_outage_policy_decides(on_outage: str, codes: list[int]) -> None:
    with gateway(f"redis://127.0.0.1:1/0?on_outage={on_outage}") as post:
        answers = [post() for _ in codes]
        assert [answer.status_code for answer in answers] == codes
        assert post.provider.reached == codes.count(200)
        if on_outage == "block":
            assert answers[0].json()["error"]["code"] == "guard_unavailable"


def test_a_redis_that_hangs_delays_a_request_once_and_by_no_more_than_the_timeout(
    start_server: Callable[..., RedisServer],
) -> None:
    server = start_server()
    with gateway(f"{server.url}?timeout=0.2") as post:
        assert post().status_code == 200
        server.freeze()
        try:
            assert _seconds(post) < 0.2 + 0.1 + 0.2
            assert _seconds(post) < 0.2
        finally:
            server.thaw()
        assert post().status_code == 200


def _seconds(post: Any) -> float:
    began = time.monotonic()
    assert post().status_code == 200
    return time.monotonic() - began


def test_damaged_keys_never_take_a_request_down(newest_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    with gateway(f"{newest_server.url}?on_outage=raise") as post:
        assert post().status_code == 200
        for key in list(newest_server.admin.scan_iter()):
            newest_server.admin.delete(key)
            newest_server.admin.set(key, "damage", ex=60)
        assert [post().status_code for _ in range(4)] == [200] * 4
        assert post.provider.reached == 5
    assert any("not guarded" in record.message for record in caplog.records)


async def test_connections_are_closed_when_the_server_shuts_the_app_down(newest_server: RedisServer) -> None:
    before = len(newest_server.admin.client_list())
    guard = LoopGuardMiddleware(Provider(), newest_server.url, secret="s3cret")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://test") as client:
        history = chat(numbered(["Hi.", Ran()]))
        assert (await client.post("/v1/chat/completions", json=history, headers=SESSION)).status_code == 200
    assert len(newest_server.admin.client_list()) > before
    events = iter(["lifespan.startup", "lifespan.shutdown"])
    said: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": next(events)}

    async def send(message: Any) -> None:
        said.append(message["type"])

    await guard({"type": "lifespan"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    deadline = time.monotonic() + 5
    while len(newest_server.admin.client_list()) > before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_another_secret_makes_other_sessions(redis_url: str) -> None:
    with gateway(redis_url) as one, gateway(redis_url, secret="other") as other:
        assert [one().status_code for _ in range(6)] == [200] * 5 + [400]
        assert [other().status_code for _ in range(6)] == [200] * 5 + [400]

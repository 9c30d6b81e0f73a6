"""The middleware before a real server, called by the official clients: what reaches the provider and what does not."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("anthropic", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("httpx", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("openai", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("starlette", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'loopfence[gateway-test]'")

import openai
from gateways import CHAT, HEAD
from serving import Provider, serving
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from loopfence import AsyncLoopBreaker
from loopfence.integrations.asgi import LoopGuardMiddleware
from loopfence.integrations.transcript import TranscriptGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateways import Gateway


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_streamed_answer_is_passed_on_piece_by_piece(start: Callable[..., Gateway]) -> None:
    gateway = start()
    with gateway.openai().chat.completions.create(**CHAT, stream=True) as stream:  # type: ignore[call-overload]
        pieces = iter(stream)
        # The provider sends the second piece only after this one has arrived.
        assert next(pieces).choices[0].delta.content == "Hel"
        gateway.provider.go_on.set()
        assert next(pieces).choices[0].delta.content == "lo."


def test_a_stream_that_is_refused_is_an_error_before_its_first_piece(start: Callable[..., Gateway]) -> None:
    gateway = start()
    gateway.provider.go_on.set()
    for _ in range(2):
        list(gateway.openai().chat.completions.create(**CHAT, stream=True))  # type: ignore[call-overload]
    with pytest.raises(openai.BadRequestError):
        gateway.openai().chat.completions.create(**CHAT, stream=True)  # type: ignore[call-overload]


def test_a_caller_who_hangs_up_is_noticed_by_the_app(start: Callable[..., Gateway]) -> None:
    gateway = start()
    with gateway.openai().chat.completions.create(**CHAT, stream=True) as stream:  # type: ignore[call-overload]
        next(iter(stream))
        assert not gateway.provider.hung_up.is_set()
    assert gateway.provider.hung_up.wait(5)


def test_a_caller_who_hangs_up_in_the_middle_of_the_body_reaches_the_app_as_that(
    start: Callable[..., Gateway],
) -> None:
    gateway = start()
    with gateway.connect() as caller:
        caller.sendall(HEAD % 100 + b"{")
    assert gateway.provider.hung_up.wait(5)
    assert (gateway.seen, gateway.provider.reached) == ({"hung_up": 1}, 0)


def test_a_body_is_handed_on_byte_by_byte_and_piece_by_piece(start: Callable[..., Gateway]) -> None:
    gateway = start()
    body = json.dumps({**CHAT, "padding": "é" * 2_500_000}, ensure_ascii=False, indent=1).encode()
    answer = gateway.post("/api/generate", body)
    assert answer.json() == {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
    assert len(gateway.provider.pieces) > 1
    assert gateway.seen == {"passed": 1}


def test_a_chunked_body_is_judged_like_any_other(start: Callable[..., Gateway]) -> None:
    gateway = start()
    whole = json.dumps(CHAT).encode()

    def chunked() -> int:
        pieces = iter([whole[:9], whole[9:30], whole[30:]])
        return gateway.post(body=pieces).status_code

    assert [chunked(), gateway.post().status_code, chunked()] == [200, 200, 400]


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_over_the_cap_passes_whole_and_is_counted(start: Callable[..., Gateway], declared: bool) -> None:
    gateway = start(max_body=100_000)
    body = json.dumps({**CHAT, "padding": "x" * 300_000}).encode()
    for _ in range(4):
        content: Any = body if declared else iter([body[:50_000], body[50_000:180_000], body[180_000:]])
        answer = gateway.post("/api/generate", content)
        assert answer.json() == {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
    assert gateway.seen == {"too_large": 4}
    at_the_cap = json.dumps(CHAT).encode().ljust(100_000)
    assert [gateway.post(body=at_the_cap).status_code for _ in range(3)] == [200, 200, 400]


def test_a_body_that_says_it_is_too_large_is_not_held_back(start: Callable[..., Gateway]) -> None:
    gateway = start(max_body=100_000)
    with gateway.connect() as caller:
        caller.sendall(HEAD % 300_000 + b"the first piece")
        _wait_until(lambda: gateway.provider.pieces == [15])
    assert gateway.seen == {"too_large": 1}


def test_without_a_session_nothing_is_guarded(start: Callable[..., Gateway]) -> None:
    gateway = start()
    for _ in range(6):
        gateway.openai(session=None).chat.completions.create(**CHAT)  # type: ignore[call-overload]
    assert (gateway.provider.reached, gateway.seen) == (6, {"no_session": 6})


def test_the_header_of_the_session_can_be_another(start: Callable[..., Gateway]) -> None:
    gateway = start(session_header="X-Run")
    by_run = [gateway.post(headers={"x-run": "r"}).status_code for _ in range(3)]
    assert by_run == [200, 200, 400]
    assert gateway.post(headers={"x-run": "other"}).status_code == 200


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"headers": {"authorization": "Bearer a"}}, {"headers": {"authorization": "Bearer b"}}),
        ({"headers": {"x-api-key": "a"}}, {"headers": {"x-api-key": "b"}}),
        ({"headers": {"api-key": "a"}}, {"headers": {"x-api-key": "a"}}),
        ({"headers": {"x-goog-api-key": "a"}}, {"headers": {}}),
        ({"params": {"key": "a"}}, {"params": {"key": "b"}}),
        ({"headers": {"x-api-key": "a"}}, {"headers": {"x-api-key": "a", "authorization": "Bearer b"}}),
    ],
)
def test_nobody_can_use_up_the_session_of_another(start: Callable[..., Gateway], mine: Any, theirs: Any) -> None:
    gateway = start()
    assert [gateway.post(**theirs).status_code for _ in range(3)] == [200, 200, 400]
    assert [gateway.post(**mine).status_code for _ in range(3)] == [200, 200, 400]


def test_a_tenant_can_be_named_by_the_app(start: Callable[..., Gateway]) -> None:
    def tenant(scope: Any) -> str | None:
        name = dict(scope["headers"]).get(b"x-user", b"").decode()
        if name == "broken":
            raise RuntimeError("no such user")
        return name or None

    gateway = start(tenant=tenant)

    def codes(user: str, session: str) -> list[int]:
        headers = {"x-user": user, "x-session-id": session}
        return [gateway.post(headers=headers).status_code for _ in range(3)]

    assert codes("a/b", "c") == [200, 200, 400]
    assert codes("a", "b/c") == [200, 200, 400]
    assert codes("", "c") == [200, 200, 200]
    assert codes("broken", "c") == [200, 200, 200]
    assert gateway.seen == {"passed": 4, "refused": 2, "no_session": 6}


def test_long_and_odd_session_names_are_told_apart(start: Callable[..., Gateway]) -> None:
    gateway = start()
    names = ["x" * 2000, "x" * 2000 + "y", "{}", "*", "a b", "é".encode("latin-1")]
    for _ in range(2):
        assert {gateway.post(headers={"x-session-id": name}).status_code for name in names} == {200}  # type: ignore[dict-item]
    assert {gateway.post(headers={"x-session-id": name}).status_code for name in names} == {400}  # type: ignore[dict-item]


def test_only_the_listed_paths_are_guarded(start: Callable[..., Gateway]) -> None:
    gateway = start()
    for path in ("/v1/embeddings", "/v1/messages/count_tokens", "/v1/threads/t/messages", "/chat/completions/c/x"):
        assert {gateway.post(path).status_code for _ in range(4)} == {200}
    assert {gateway.client.get("/v1/chat/completions").status_code for _ in range(4)} == {200}
    assert gateway.seen == {}
    for path in ("/chat/completions", "/v1/completions", "/openai/deployments/d/chat/completions", "/v1/responses"):
        assert [gateway.post(path).status_code for _ in range(3)] == [200, 200, 400]
    own = start(paths=["/ask"])
    assert [own.post("/ask").status_code for _ in range(3)] == [200, 200, 400]
    assert [own.post("/v1/messages").status_code for _ in range(3)] == [200] * 3


def test_a_body_that_is_no_llm_request_counts_by_its_bytes(start: Callable[..., Gateway]) -> None:
    gateway = start()
    assert [gateway.post(body=b"\xff{").status_code for _ in range(3)] == [200, 200, 400]
    assert [gateway.post(body=b"[" * 50_000).status_code for _ in range(3)] == [200, 200, 400]


def test_a_request_that_is_nested_too_deep_counts_by_its_bytes(start: Callable[..., Gateway]) -> None:
    gateway = start()
    body = b'{"messages":[{"role":"user","content":' + b"[" * 1_500 + b"]" * 1_500 + b"}]}"
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # that of newer Pythons
    try:
        assert [gateway.post(body=body).status_code for _ in range(3)] == [200, 200, 400]
    finally:
        sys.setrecursionlimit(before)


def test_what_is_given_judges_and_nothing_else(start: Callable[..., Gateway]) -> None:
    gateway = start(transcript=TranscriptGuard("memory://"), secret="s")
    assert {gateway.post().status_code for _ in range(9)} == {200}
    with pytest.raises(TypeError, match="not both"):
        LoopGuardMiddleware(Provider(), "memory://", breaker=AsyncLoopBreaker(), secret="s")


def test_inside_starlette_with_mounts(start: Callable[..., Gateway]) -> None:
    provider = Provider()
    guard = Middleware(LoopGuardMiddleware, breaker=AsyncLoopBreaker(max_repeats=1), secret="s")
    app = Starlette(routes=[Mount("/llm", provider)], middleware=[guard])
    with serving(app) as url:
        headers = {"x-session-id": "s"}
        with openai.OpenAI(base_url=f"{url}/llm/v1", api_key="k", default_headers=headers) as client:
            client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
            with pytest.raises(openai.BadRequestError):
                client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
    assert provider.reached == 1

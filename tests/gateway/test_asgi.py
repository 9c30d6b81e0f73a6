"""The middleware before a real server, called by the official clients: what reaches the provider and what does not."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

pytest.importorskip("anthropic", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("httpx", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("openai", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("starlette", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'loopfence[gateway-test]'")

import anthropic
import httpx
import openai
from serving import Provider, serving
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from loopfence import AsyncLoopBreaker
from loopfence.integrations.asgi import LoopGuardMiddleware
from loopfence.integrations.transcript import TranscriptGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


CHAT = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-session-id: s\r\ncontent-length: %d\r\n\r\n"


class Gateway:
    """A provider behind the middleware, on a real server."""

    def __init__(self, url: str, provider: Provider, middleware: LoopGuardMiddleware) -> None:
        self.url, self.provider, self.middleware = url, provider, middleware
        self._open = contextlib.ExitStack()
        self.client = self._open.enter_context(httpx.Client(base_url=url, headers={"x-session-id": "run-1"}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def seen(self) -> dict[str, int]:
        return dict(self.middleware.seen)

    def openai(self, session: str | None = "run-1", key: str = "sk-1", **options: Any) -> openai.OpenAI:
        headers = {"x-session-id": session} if session else {}
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, default_headers=headers, **options)
        return self._open.enter_context(client)

    def anthropic(self) -> anthropic.Anthropic:
        client = anthropic.Anthropic(base_url=self.url, api_key="k", default_headers={"x-session-id": "run-1"})
        return self._open.enter_context(client)

    def connect(self) -> socket.socket:
        """A bare connection, to send what no client library would."""
        return socket.create_connection((self.client.base_url.host, self.client.base_url.port or 0))

    def post(self, path: str = "/v1/chat/completions", body: Any = CHAT, **options: Any) -> httpx.Response:
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        return self.client.post(path, content=content, **options)


@pytest.fixture
def start() -> Iterator[Callable[..., Gateway]]:
    """`start(max_body=…)`: one more gateway; by default two equal requests pass, in memory."""
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


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_openai_chat_gets_a_bad_request_that_it_does_not_repeat(start: Callable[..., Gateway]) -> None:
    gateway = start()
    client = gateway.openai()
    for temperature in (0.1, 0.9):
        answer = client.chat.completions.create(**CHAT, temperature=temperature)  # type: ignore[call-overload]
        assert answer.choices[0].message.content == "Hello."
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**CHAT, seed=1)  # type: ignore[call-overload]
    error: Any = caught.value.body
    assert (caught.value.status_code, caught.value.code, caught.value.type) == (
        400,
        "loop_detected",
        "invalid_request_error",
    )
    assert error["session"] == "run-1"
    assert error["message"] == (
        "loop detected: this same request was sent 3 times in the last 30 seconds (limit 2); session 'run-1'"
    )
    assert (gateway.provider.reached, gateway.seen) == (2, {"passed": 2, "refused": 1})


def test_openai_responses_gets_the_same(start: Callable[..., Gateway]) -> None:
    gateway = start()
    client = gateway.openai()
    for _ in range(2):
        assert client.responses.create(model="m", input="hi").output_text == "Hello."
    with pytest.raises(openai.BadRequestError, match="loop detected") as caught:
        client.responses.create(model="m", input=[{"role": "user", "content": "hi"}])
    assert caught.value.code == "loop_detected"
    assert client.responses.create(model="m", input="ho").output_text == "Hello."
    assert gateway.provider.reached == 3


def test_anthropic_gets_its_own_error_shape(start: Callable[..., Gateway]) -> None:
    gateway = start()
    client = gateway.anthropic()
    ask: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    for tokens in (10, 20):
        assert client.messages.create(max_tokens=tokens, **ask).content[0].text == "Hello."  # type: ignore[union-attr]
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(max_tokens=30, **ask)
    assert caught.value.body == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "loop detected: this same request was sent 3 times in the last 30 seconds (limit 2); "
            "session 'run-1'",
        },
    }
    assert gateway.provider.reached == 2


def test_gemini_and_ollama_get_their_error_shapes(start: Callable[..., Gateway]) -> None:
    gateway = start(breaker=AsyncLoopBreaker(max_repeats=1), secret="s")
    gemini = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    path = "/v1beta/models/gemini-3-pro:generateContent"
    assert gateway.post(path, gemini).status_code == 200
    refused = gateway.post(path, {**gemini, "generationConfig": {"temperature": 1}})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")
    assert error["details"][0]["reason"] == "LOOP_DETECTED"
    assert error["details"][0]["metadata"] == {"session": "run-1"}
    ollama = {"model": "llama3.2", "messages": [{"role": "user", "content": "hi"}]}
    assert gateway.post("/api/chat", ollama).status_code == 200
    refused = gateway.post("/api/chat", {**ollama, "options": {"seed": 1}})
    assert (refused.status_code, list(refused.json())) == (400, ["error"])
    assert refused.json()["error"].endswith("(limit 1); session 'run-1'")


def test_an_agent_whose_history_grows_is_stopped_before_the_provider_is_asked_again(
    start: Callable[..., Gateway],
) -> None:
    call = {"type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    script = [{"role": "assistant", "tool_calls": [{**call, "id": f"call_{n:020d}"}]} for n in range(9)]
    gateway = start("memory://gateway-agent", provider=Provider(script))
    client, history = gateway.openai(), [{"role": "user", "content": "Find x."}]
    with pytest.raises(openai.BadRequestError) as caught:  # noqa: PT012 - the agent's own loop
        for _ in range(9):
            said = client.chat.completions.create(model="m", messages=history).choices[0].message  # type: ignore[arg-type]
            history.append(said.model_dump())
            for made in said.tool_calls or []:
                history.append({"role": "tool", "tool_call_id": made.id, "content": "nothing found"})
    assert gateway.provider.reached == 3
    assert caught.value.code == "loop_detected"
    assert caught.value.body["message"] == (  # type: ignore[index]
        "loop detected: tool 'search' called 3 times in the last 20 calls (threshold=3); session 'run-1'"
    )


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

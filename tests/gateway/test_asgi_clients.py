"""The official clients before the middleware: what they are told when a loop is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("anthropic", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("httpx", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("openai", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("starlette", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'loopfence[gateway-test]'")

import anthropic
import openai
from gateways import CHAT
from serving import Provider

from loopfence import AsyncLoopBreaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateways import Gateway


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

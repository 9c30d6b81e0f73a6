"""The example proxy in processes of its own: an agent changes its base URL and nothing else."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("httpx", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("openai", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("starlette", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'loopfence[gateway-test]'")

import httpx
import openai
from serving import Provider, serving

from servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import RedisServer

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAT = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}


@contextlib.contextmanager
def proxy(upstream: str, redis_url: str) -> Iterator[str]:
    """The example as its own process, as its text says to start it; yields its URL."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "llm_proxy:app", "--port", str(port)]
    settings = {"UPSTREAM": upstream, "LOOPFENCE_URL": redis_url, "LOOPFENCE_SECRET": "s3cret"}
    process = subprocess.Popen([*command, "--log-level", "warning"], env={**os.environ, **settings})
    try:
        _wait_for(f"http://127.0.0.1:{port}/v1/models", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        assert process.poll() is None, "the proxy ended"
        assert time.monotonic() < deadline, "the proxy did not start"
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url)
            return
        time.sleep(0.05)


def agent(base_url: str, monkeypatch: pytest.MonkeyPatch) -> openai.OpenAI:
    """An OpenAI client as an unchanged agent makes it: all but the session comes from the environment."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{base_url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-agent")
    return openai.OpenAI(default_headers={"x-session-id": "run-1"})


def test_two_proxies_in_two_processes_share_one_loop_view(
    newest_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Provider()
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(serving(provider))
        urls = [stack.enter_context(proxy(upstream, newest_server.url)) for _ in range(2)]
        agents = [stack.enter_context(agent(url, monkeypatch)) for url in urls]
        for n in range(5):
            answer = agents[n % 2].chat.completions.create(**CHAT)  # type: ignore[call-overload]
            assert answer.choices[0].message.content == "Hello."
        for client in agents:
            with pytest.raises(openai.BadRequestError) as caught:
                client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
            assert caught.value.code == "loop_detected"
        assert provider.reached == 5
        path, headers, _ = provider.requests[0]
        assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer sk-agent")


def test_an_agent_that_calls_one_tool_again_and_again_is_stopped_across_proxies(
    newest_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = {"type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    script = [{"role": "assistant", "tool_calls": [{**call, "id": f"call_{n:020d}"}]} for n in range(9)]
    provider, history = Provider(script), [{"role": "user", "content": "Find x."}]
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(serving(provider))
        urls = [stack.enter_context(proxy(upstream, newest_server.url)) for _ in range(2)]
        agents = [stack.enter_context(agent(url, monkeypatch)) for url in urls]
        with pytest.raises(openai.BadRequestError, match="tool 'search' called 3 times"):  # noqa: PT012
            for n in range(9):
                said: Any = agents[n % 2].chat.completions.create(model="m", messages=history).choices[0].message  # type: ignore[arg-type]
                history.append(said.model_dump())
                history.append({"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "nothing"})
        assert provider.reached == 3


def test_a_stream_passes_through_piece_by_piece(newest_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider()
    with serving(provider) as upstream, proxy(upstream, newest_server.url) as url, agent(url, monkeypatch) as client:
        with client.chat.completions.create(**CHAT, stream=True) as stream:  # type: ignore[call-overload]
            pieces = iter(stream)
            assert next(pieces).choices[0].delta.content == "Hel"
            provider.go_on.set()
            assert next(pieces).choices[0].delta.content == "lo."
        provider.go_on.clear()
        with client.chat.completions.create(**CHAT, stream=True) as stream:  # type: ignore[call-overload]
            next(iter(stream))
        assert provider.hung_up.wait(5)

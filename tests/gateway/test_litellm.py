"""LiteLLM itself under the guard: `acompletion` in this process, and the LiteLLM proxy in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network at import
pytest.importorskip("anthropic", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("httpx", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("litellm.proxy.proxy_cli", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("openai", reason="needs the extra: pip install 'loopfence[gateway-test]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'loopfence[gateway-test]'")

import anthropic
import httpx
import litellm
import openai
from histories import Ran, chat, numbered
from serving import Provider, serving

import loopfence
from loopfence import AsyncLoopBreaker
from loopfence.integrations.litellm import LoopGuardHook
from loopfence.integrations.transcript import TranscriptGuard
from servers import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from servers import RedisServer

pytestmark = pytest.mark.filterwarnings("ignore")  # what LiteLLM and its parts warn of is theirs

HI = [{"role": "user", "content": "hi"}]
STOPPED = (
    "This request was stopped and no model was asked: "
    "loop detected: this same request was sent 3 times in the last 30 seconds (limit 2)."
)


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    provider.go_on.set()
    with serving(provider) as provider.url:  # type: ignore[attr-defined]
        yield provider


@pytest.fixture
async def hook(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., LoopGuardHook]]:
    """`hook(answer=…)`: the guard among LiteLLM's callbacks; two equal requests pass."""
    made: list[LoopGuardHook] = []

    def one(**options: Any) -> LoopGuardHook:
        if not options.keys() & {"breaker", "transcript"}:
            options["breaker"] = AsyncLoopBreaker(max_repeats=2)
        made.append(LoopGuardHook(**options))
        monkeypatch.setattr(litellm, "callbacks", [made[-1]])
        return made[-1]

    yield one
    for each in made:
        await each.close()


async def ask(provider: Any, messages: Any = HI, **options: Any) -> Any:
    options = {"litellm_session_id": "run-1", **options}
    return await litellm.acompletion(
        model="openai/gpt-4o", messages=messages, api_base=f"{provider.url}/v1", api_key="k", max_retries=0, **options
    )


async def test_acompletion_raises_a_bad_request_before_the_provider_is_asked(hook: Any, provider: Provider) -> None:
    hook()
    for temperature in (0.1, 0.9):
        answer = await ask(provider, temperature=temperature)
        assert answer.choices[0].message.content == "Hello."
    with pytest.raises(litellm.BadRequestError, match="this same request was sent 3 times") as caught:
        await ask(provider, seed=3)
    assert caught.value.status_code == 400
    assert provider.reached == 2
    await ask(provider, [{"role": "user", "content": "something else"}])
    assert provider.reached == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_acompletion_can_answer_instead(hook: Any, provider: Provider, stream: bool) -> None:
    hook(answer="message")
    for _ in range(2):
        await ask(provider)
    answer = await ask(provider, stream=stream)
    if stream:
        said = "".join([piece.choices[0].delta.content or "" async for piece in answer])
    else:
        said = answer.choices[0].message.content
    assert said == STOPPED
    assert provider.reached == 2


@pytest.mark.parametrize("api", ["aresponses", "anthropic_messages"])
async def test_other_apis_answer_too_where_litellm_can(hook: Any, provider: Any, api: str) -> None:
    hook(answer="message", breaker=AsyncLoopBreaker(max_repeats=1))
    call = getattr(litellm, api)
    request = {"model": "openai/gpt-4o", "api_base": f"{provider.url}/v1", "input": "hi"}
    if api == "anthropic_messages":
        request = {"model": "anthropic/claude-x", "api_base": provider.url, "max_tokens": 5, "messages": HI}
    for _ in range(2):
        answer = await call(**request, api_key="k", litellm_session_id="run-1")
    assert "loop detected: this same request was sent 2 times" in str(answer)
    with pytest.raises(litellm.BadRequestError):
        await call(**request, api_key="k", litellm_session_id="run-1", stream=True)
    assert provider.reached == 1


async def test_other_sessions_and_no_session(hook: Any, provider: Provider) -> None:
    hook()
    for n in range(4):
        await ask(provider, litellm_session_id=None)
        await ask(provider, litellm_session_id=f"run-{n}")
    assert provider.reached == 8


@pytest.mark.parametrize("named", [{"metadata": {"session_id": "run-2"}}, {}])
async def test_where_the_session_comes_from(hook: Any, provider: Provider, named: Any) -> None:
    hook()
    with loopfence.session("run-3"):
        for _ in range(2):
            await ask(provider, litellm_session_id=None, **named)
        with pytest.raises(litellm.BadRequestError):
            await ask(provider, litellm_session_id=None, **named)
        await ask(provider, litellm_session_id="another")


async def test_a_session_callable_decides_and_may_fail(hook: Any, provider: Provider) -> None:
    def session(data: Any) -> str:
        return data["user"]

    hook(session=session)
    for _ in range(2):
        await ask(provider, user="ann", litellm_session_id="x")
    with pytest.raises(litellm.BadRequestError):
        await ask(provider, user="ann", litellm_session_id="y")
    for _ in range(4):
        await ask(provider)  # no user: the callable raises, and nothing is guarded


async def test_an_agent_that_keeps_litellms_own_message_objects_is_stopped(hook: Any) -> None:
    call = {"type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    script = [{"role": "assistant", "tool_calls": [{**call, "id": f"call_{n:020d}"}]} for n in range(9)]
    provider, history = Provider(script), [{"role": "user", "content": "Find x."}]
    hook(transcript=TranscriptGuard("memory://"))
    with serving(provider) as provider.url:  # type: ignore[attr-defined]
        with pytest.raises(litellm.BadRequestError, match="tool 'search' called 3 times"):  # noqa: PT012
            for _ in range(9):
                said = (await ask(provider, history)).choices[0].message
                history.append(said)
                history.append({"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "nothing"})
        assert provider.reached == 3


async def test_embeddings_are_not_guarded(hook: Any, provider: Provider) -> None:
    guard = hook(breaker=AsyncLoopBreaker(max_repeats=1))
    kwargs = {"model": "m", "input": ["text"], "litellm_session_id": "run-1"}
    for _ in range(4):
        assert await guard.async_pre_call_deployment_hook(kwargs, litellm.types.utils.CallTypes.aembedding) is None
    assert await guard.async_pre_call_deployment_hook(kwargs, litellm.types.utils.CallTypes.aresponses) is None
    with pytest.raises(litellm.BadRequestError):
        await guard.async_pre_call_deployment_hook(kwargs, litellm.types.utils.CallTypes.aresponses)


async def test_a_redis_that_is_out_never_takes_a_request_down(hook: Any, provider: Provider) -> None:
    hook(breaker=AsyncLoopBreaker(max_repeats=9, url="redis://127.0.0.1:1/0?on_outage=raise"))
    for _ in range(3):
        assert (await ask(provider)).choices[0].message.content == "Hello."
    hook(breaker=AsyncLoopBreaker(max_repeats=9, url="redis://127.0.0.1:1/0?on_outage=block"))
    with pytest.raises(litellm.ServiceUnavailableError):
        await ask(provider)


CONFIG = """
model_list:
  - model_name: gpt
    litellm_params: {{model: openai/gpt-4o, api_base: "{upstream}/v1", api_key: k}}
  - model_name: claude
    litellm_params: {{model: anthropic/claude-sonnet-5, api_base: "{upstream}", api_key: k}}
litellm_settings:
  callbacks: guard.hook
general_settings:
  master_key: sk-master
"""
GUARD = "from loopfence.integrations.litellm import LoopGuardHook\nhook = LoopGuardHook({options})\n"


@contextlib.contextmanager
def litellm_proxy(folder: Path, provider: Any, options: str, redis_url: str) -> Iterator[str]:
    """The LiteLLM proxy as its own process, with the guard named in its config; yields its URL."""
    (folder / "config.yaml").write_text(CONFIG.format(upstream=provider.url))
    (folder / "guard.py").write_text(GUARD.format(options=options))
    port = free_port()
    command = [Path(sys.executable).with_name("litellm"), "--config", folder / "config.yaml", "--host", "127.0.0.1"]
    settings = {"PYTHONPATH": str(folder), "LOOPFENCE_URL": redis_url, "LOOP_MAX_REPEATS": "2"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)], env={**os.environ, **settings}, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 100
        while not _is_up(f"http://127.0.0.1:{port}/health/liveliness"):
            assert process.poll() is None, (folder / "log").read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "the proxy did not start"
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _is_up(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.timeout(240)
def test_the_proxy_refuses_with_an_error(tmp_path: Path, provider: Provider, newest_server: RedisServer) -> None:
    session = {"x-litellm-session-id": "run-1"}
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(litellm_proxy(tmp_path, provider, "", newest_server.url))
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-master", default_headers=session)
        client = stack.enter_context(client)
        for _ in range(2):
            assert client.chat.completions.create(model="gpt", messages=HI).choices[0].message.content == "Hello."  # type: ignore[arg-type]
        with pytest.raises(openai.BadRequestError, match="this same request was sent 3 times"):
            client.chat.completions.create(model="gpt", messages=HI)  # type: ignore[arg-type]
        assert provider.reached == 2
        for n in (2, 3):
            client.chat.completions.create(**_history(n))
        with pytest.raises(openai.BadRequestError, match="tool 'search' called 3 times"):
            client.chat.completions.create(**_history(4))
        assert provider.reached == 4
        claude = anthropic.Anthropic(base_url=url, api_key="sk-master", default_headers=session)
        claude = stack.enter_context(claude)
        for tokens in (5, 6):
            claude.messages.create(model="claude", max_tokens=tokens, messages=HI)  # type: ignore[arg-type]
        with pytest.raises(anthropic.BadRequestError, match="this same request was sent 3 times"):
            claude.messages.create(model="claude", max_tokens=7, messages=HI)  # type: ignore[arg-type]
        assert provider.reached == 6
        # Another key's session of the same name is another session, and a request without a session is not guarded.
        for _ in range(4):
            client.chat.completions.create(model="gpt", messages=HI, extra_headers={"x-litellm-session-id": ""})  # type: ignore[arg-type]
        assert provider.reached == 10
    assert b"sk-master" not in b"".join(newest_server.admin.scan_iter())


@pytest.mark.timeout(240)
def test_the_proxy_answers_instead(tmp_path: Path, provider: Provider, newest_server: RedisServer) -> None:
    session = {"x-litellm-session-id": "run-1"}
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(litellm_proxy(tmp_path, provider, "answer='message'", newest_server.url))
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-master", default_headers=session)
        client = stack.enter_context(client)
        for _ in range(2):
            client.chat.completions.create(model="gpt", messages=HI)  # type: ignore[arg-type]
        answer = client.chat.completions.create(model="gpt", messages=HI)  # type: ignore[arg-type]
        assert answer.choices[0].message.content == STOPPED
        with client.chat.completions.create(model="gpt", messages=HI, stream=True) as stream:  # type: ignore[call-overload]
            said = "".join(piece.choices[0].delta.content or "" for piece in stream if piece.choices)
        assert said == STOPPED.replace("3 times", "4 times")
        assert provider.reached == 2
        claude = anthropic.Anthropic(base_url=url, api_key="sk-master", default_headers=session)
        claude = stack.enter_context(claude)
        for _ in range(2):
            claude.messages.create(model="claude", max_tokens=5, messages=HI)  # type: ignore[arg-type]
        assert claude.messages.create(model="claude", max_tokens=5, messages=HI).content[0].text == STOPPED  # type: ignore[arg-type, union-attr]
        with pytest.raises(anthropic.BadRequestError, match="loop detected"):
            claude.messages.create(model="claude", max_tokens=5, messages=HI, stream=True)  # type: ignore[call-overload]
        for _ in range(2):
            client.responses.create(model="gpt", input="hi")
        assert client.responses.create(model="gpt", input="hi").output_text == STOPPED
        with pytest.raises(openai.BadRequestError, match="loop detected"):
            client.responses.create(model="gpt", input="hi", stream=True)
        assert provider.reached == 6


def _history(steps: int) -> dict[str, Any]:
    request = chat(numbered(["Find it.", Ran(), Ran(), Ran()][:steps]))
    return {**request, "model": "gpt"}

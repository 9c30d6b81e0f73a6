"""What the ASGI middleware adds to a request whose provider takes 20 ms, and whether streams pass it unbuffered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Row, in_turns, row
from loopfence.integrations.asgi import LoopGuardMiddleware

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

PROVIDER_SECONDS = 0.020
STREAMS = 200
PIECES = 10
PIECE_SECONDS = 0.100
_fresh = itertools.count()


async def provider(scope: Any, receive: Any, send: Any) -> None:
    """Stands for an LLM provider: 20 ms for an answer, ten pieces 100 ms apart for a stream."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    streamed = b'"stream": true' in body
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in range(PIECES) if streamed else ():
        await send({"type": "http.response.body", "body": b"data: %d\n\n" % piece, "more_body": True})
        await asyncio.sleep(PIECE_SECONDS if piece < PIECES - 1 else 0)
    if not streamed:
        await asyncio.sleep(PROVIDER_SECONDS)
    await send({"type": "http.response.body", "body": b""})


def guarded() -> LoopGuardMiddleware:
    """The provider behind the middleware, as uvicorn's factory makes it."""
    return LoopGuardMiddleware(provider, os.environ["LOOPFENCE_URL"], secret="benchmark")


def gateway_rows(url: str, *, quick: bool) -> Iterator[Row]:
    """Latency for histories of several sizes, then 200 streams at once; needs uvicorn and httpx."""
    import httpx

    calls, repeats = (20, 5) if quick else (50, 11)
    with _served("provider", url) as plain, _served("guarded", url, "--factory") as guard:
        with httpx.Client() as client:
            for steps in (2, 20, 100):
                measures = [partial(_milliseconds, client, at, steps, calls) for at in (guard, plain)]
                ours, theirs = in_turns(measures, repeats)
                size = len(_history("size", steps)) // 1024
                name = f"ASGI middleware, history of {steps} calls ({size} KiB)"
                yield row(name, ours, "ms", "without it, 20 ms provider", theirs, "<= 1.1")
        sent = PIECE_SECONDS * (PIECES - 1)
        spans = asyncio.run(_spans(guard))
        yield row(
            f"{STREAMS} streams at once: shortest from first to last piece", min(spans), "s", "sent", sent, ">= 0.9"
        )


@contextlib.contextmanager
def _served(app: str, redis_url: str, *options: str) -> Iterator[str]:
    from servers import free_port

    port = str(free_port())
    command = [sys.executable, "-m", "uvicorn", f"benchmarks.gateway:{app}", "--port", port, "--lifespan", "off"]
    environment = {**os.environ, "LOOPFENCE_URL": redis_url}
    process = subprocess.Popen([*command, "--log-level", "warning", *options], env=environment)
    try:
        _wait_for(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}/v1/chat/completions"
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(url: str) -> None:
    import httpx

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url)
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing answers at {url}")


def _milliseconds(client: httpx.Client, url: str, steps: int, calls: int) -> float:
    """One agent's next requests: each history is one call longer than the one before, as it is in real life."""
    session = f"bench-{next(_fresh)}"
    bodies = [_history(session, steps + n) for n in range(calls + 1)]
    headers = {"x-session-id": session, "authorization": "Bearer benchmark"}
    _post(client, url, bodies[0], headers)
    start = time.perf_counter()
    for body in bodies[1:]:
        _post(client, url, body, headers)
    return (time.perf_counter() - start) / calls * 1000


def _post(client: httpx.Client, url: str, body: bytes, headers: dict[str, str]) -> None:
    answer = client.post(url, content=body, headers=headers)
    if answer.status_code != 200:
        raise RuntimeError(f"refused: {answer.text}")


def _history(session: str, steps: int, *, stream: bool = False) -> bytes:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Fix the tests of {session}."}]
    for n in range(steps):
        call = {"name": "read_file", "arguments": json.dumps({"path": f"src/module_{n}.py"})}
        call_id = f"call_{session}_{n:08d}"
        messages.append({"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": call}]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": f"{n}: some lines of code\n" * 20})
    return json.dumps({"model": "m", "messages": messages, "stream": stream}).encode()


async def _spans(url: str) -> list[float]:
    """For each of many streams at once: seconds from its first piece to its last, as they arrive."""
    import httpx

    limits = httpx.Limits(max_connections=STREAMS)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:
        return await asyncio.gather(*[_span(client, url, n) for n in range(STREAMS)])


async def _span(client: httpx.AsyncClient, url: str, number: int) -> float:
    headers = {"x-session-id": f"stream-{number}", "authorization": "Bearer benchmark"}
    body = _history(f"stream-{number}", 2, stream=True)
    async with client.stream("POST", url, content=body, headers=headers) as answer:
        arrived = [time.perf_counter() async for _ in answer.aiter_raw()]
    return arrived[-1] - arrived[0]

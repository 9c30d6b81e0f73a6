"""The public API as a user writes it; `mypy --strict` checks this file, nothing runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

import loopfence
from loopfence import (
    Allow,
    AsyncLoopGuard,
    AsyncSession,
    Break,
    Level,
    LoopBreaker,
    LoopDecision,
    LoopDetectedError,
    LoopDetector,
    LoopGuard,
    Policy,
    Session,
    SessionSnapshot,
    ToolRule,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

guard = LoopGuard("redis://localhost:6379/0", window=8, threshold=3, tools={"edit": ToolRule(progress=True)})
aguard = AsyncLoopGuard(policy=Policy(window=8, warn=2, tools={"poll": ToolRule(pace=2.5)}), on_outage="block")


def call_tool(run_id: str, tool: str, args: dict[str, object]) -> object:
    run = guard.session(run_id)
    assert_type(run, Session)
    verdict = run.check(tool, args)
    assert_type(verdict, Verdict)
    if not verdict.allowed:
        return verdict.message
    result = {"tool": tool}
    run.report(verdict, result=result)
    return result


async def call_tool_async(run_id: str, tool: str, args: dict[str, object]) -> object:
    run = aguard.session(run_id)
    assert_type(run, AsyncSession)
    verdict = await run.check(tool, args, call_id="turn 7")
    assert_type(verdict, Verdict)
    if not verdict.allowed:
        return verdict.message
    await run.report(verdict, result=1, ok=True)
    return 1


def read_verdict(verdict: Verdict) -> None:
    assert_type(verdict.level, Level)
    assert_type(verdict.allowed, bool)
    assert_type(verdict.count, int)
    assert_type(verdict.limit, int | None)
    assert_type(verdict.halted, str | None)
    assert_type(verdict.message, str)
    assert_type(verdict.error({"q": 1}), LoopDetectedError)
    if verdict.rule == "failures" and verdict.level >= Level.BLOCK:
        verdict.allowed = True  # type: ignore[misc]


def use_session(run: Session) -> None:
    try:
        run.record("search", {"q": 1})
    except LoopDetectedError as error:
        assert_type(error.verdict, Verdict)
        assert_type(error.count, int)
    assert_type(run.would_raise("search"), bool)
    assert_type(run.peek("search"), Verdict)
    assert_type(run.recent_keys(), list[tuple[str, str]])
    assert_type(run.snapshot(), SessionSnapshot)
    assert_type(len(run), int)
    assert_type(run.is_empty, bool)
    run.report_call("search", None, call_id="job 1", ok=False)
    run.note_progress()
    run.halt("enough")
    run.resume()
    run.reset()
    with run.call("search", {"q": 1}) as call:
        assert_type(call.verdict, Verdict)
        call.result = [1, 2]


async def use_async_session(run: AsyncSession) -> None:
    assert_type(await run.size(), int)
    assert_type(await run.is_empty(), bool)
    assert_type(await run.would_raise("search"), bool)
    async with run.call("search") as call:
        call.result = "found"
    async with AsyncLoopGuard() as other:
        async for session_id in other.sessions():
            assert_type(session_id, str)
        assert_type(other.as_sync(), LoopGuard)


@guard.tool
def search(query: str, limit: int = 10) -> list[str]:
    return [query] * limit


@guard.tool(session=lambda run, path: run, name="read_file")
def read(run: str, path: str) -> bytes:
    return path.encode()


@aguard.tool(session="run 7")
async def fetch(url: str) -> str:
    return url


@guard.tool
def pages(url: str) -> Iterator[str]:
    yield url


@aguard.tool
async def lines(url: str) -> AsyncIterator[str]:
    yield url


async def use_tools() -> None:
    assert_type(search("x", limit=3), list[str])
    assert_type(read("run", "path"), bytes)
    assert_type(await fetch("x"), str)
    assert_type(list(pages("x")), list[str])
    assert_type([line async for line in lines("x")], list[str])
    search(7)  # type: ignore[arg-type]
    await fetch()  # type: ignore[call-arg]


def use_the_rest() -> None:
    with loopfence.session("run 7") as name:
        assert_type(name, str)
    assert_type(loopfence.signature("search", {"q": 1}), str)
    assert_type(loopfence.canonical_json([1]), str)
    assert_type(loopfence.default_key("search", None), tuple[str, str])
    assert_type(loopfence.intent_fingerprint("/v1/messages", b"{}"), int)
    assert_type(LoopDetector(8, 3).record("search", "x"), bool)
    decision = LoopBreaker(30, 5).check("run", 7)
    assert_type(decision, LoopDecision)
    match decision:
        case Break(repeats=repeats):
            assert_type(repeats, int)
        case Allow():
            pass
    assert_type(guard.record_many([("run", "search", {"q": 1})]), list[Verdict])
    LoopGuard(windw=8)  # type: ignore[call-arg]
    LoopGuard(on_outage="panic")  # type: ignore[arg-type]

"""Finds tool loops in the histories that LLM requests carry: for proxies, which never see the tools run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from loopfence.aio import AsyncLoopGuard, AsyncSession
from loopfence.integrations._history import USER_TURN, Event, events_of
from loopfence.policy import ToolRule
from loopfence.verdict import Level, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loopfence.policy import Policy
    from loopfence.snapshot import SessionSnapshot


class TranscriptGuard:
    """Judges the tool calls in a request's history by the guard's own policy, before the request goes on.

    `url`, `policy` and the other settings are those of LoopGuard. OpenAI chat and Responses, Anthropic
    and Ollama histories are read. Each call of a history enters the session's window once, with its result, however
    often and through however many proxies the history is sent; so does each user message, as progress.
    """

    def __init__(self, url: str | None = None, *, policy: Policy | None = None, **settings: Any) -> None:
        stated = AsyncLoopGuard(url, policy=policy, **settings).policy
        self._enforce = stated.enforce
        # The calls of a history have run, whatever the verdict: in shadow mode each of them can be reported.
        shadow = {"enforce": False, "tools": {USER_TURN: ToolRule(progress=True), **stated.tools}}
        self._guard = AsyncLoopGuard(url, policy=policy, **{**settings, **shadow})

    @property
    def policy(self) -> Policy:
        """The policy in force; `enforce` in it is what was stated."""
        return self._guard.policy.override(enforce=self._enforce)

    async def check(self, session_id: str, request: Mapping[str, Any]) -> Verdict | None:
        """Record what is new in the history, and judge the last model turn; None where there is nothing to judge.

        `request` is the parsed body. Refused (`allowed` is False) is a request whose last model turn holds
        nothing but calls that are loops, taking their results into account, one that reaches `stop`, and
        any of a halted session. A user message at the end begins a new turn and is let through.
        A request that was seen before is judged again and not counted again. ConfigError: the session's id is bad.
        """
        session = self._guard.session(session_id)
        seen = await session.snapshot()
        if seen.halted is not None:
            return await session.peek(USER_TURN)
        events = events_of(request, self._guard.policy.window)
        if not any(event.is_call for event in events):
            return None
        last = [event for event in events if event.turn == events[-1].turn]
        await self._enter(session, events, last, seen)
        return await self._decide(session, [await _recorded(session, event) for event in last])

    async def close(self) -> None:
        """Close the connections that the guard made; may be called twice."""
        await self._guard.close()

    async def _enter(
        self, session: AsyncSession, events: list[Event], last: list[Event], seen: SessionSnapshot
    ) -> None:
        """Record what the store does not know yet, and report what it knows no result of, in the history's order."""
        reported = {call.call_id: call.reported for call in seen.calls}
        new = {event.call_id for event in self._news(events, last, reported)}
        for event in events:
            if event.call_id in new:
                await _recorded(session, event)
            elif reported.get(event.call_id) is not False:
                continue
            if event.is_over:
                await session.report_call(
                    event.tool, event.args, call_id=event.call_id, result=event.result, ok=event.ok
                )

    def _news(self, events: list[Event], last: list[Event], known: Mapping[str, bool]) -> list[Event]:
        """The events that happened since the store last saw this history.

        Histories grow at their end: what stands before a known event has been in the window, and may have left it.
        """
        newest = max((place for place, event in enumerate(events) if event.call_id in known), default=-1)
        if newest < 0 and self._guard.policy.max_age is not None:
            return last  # the others may be older than that
        limits = self._guard.policy.limits
        # Calls that are entered late come all at once: of those with a pace only the last turn's are in time.
        return [event for event in events[newest + 1 :] if event in last or not limits(event.tool).pace]

    async def _decide(self, session: AsyncSession, verdicts: list[Verdict]) -> Verdict:
        verdict = max(verdicts, key=lambda each: each.level)
        if verdict.level is not Level.STOP:
            # An agent that also does something new in the same turn is not stuck.
            verdict = min(verdicts, key=lambda each: each.level)
        elif self._enforce and verdict.rule == "repeat":
            await session.halt(verdict.text)
        allowed = verdict.level < Level.BLOCK or (not self._enforce and verdict.rule != "halted")
        return dataclasses.replace(verdict, allowed=allowed)


async def _recorded(session: AsyncSession, event: Event) -> Verdict:
    return await session.check(event.tool, event.args, call_id=event.call_id)

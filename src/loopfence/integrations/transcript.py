"""Finds tool loops in the histories that LLM requests carry: for proxies, which never see the tools run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from loopfence.aio import AsyncLoopGuard, AsyncSession
from loopfence.integrations._history import USER_TURN, Event, events_of
from loopfence.policy import ToolRule
from loopfence.verdict import Level, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loopfence.engine import Question
    from loopfence.policy import Policy
    from loopfence.store.tally import Report, Step

_GLANCE = 4
"""Events that are read of a history which may have grown by one turn only."""
_REMEMBERED = 10_000


class TranscriptGuard:
    """Judges the tool calls in a request's history by the guard's own policy, before the request goes on.

    `url`, `policy` and the other settings are those of LoopGuard. OpenAI chat and Responses, Anthropic
    and Ollama histories are read. Each call of a history enters the session's window once, with its result, however
    often and through however many proxies the history is sent; so does each user message, as progress.
    """

    def __init__(self, url: str | None = None, *, policy: Policy | None = None, **settings: Any) -> None:
        stated = AsyncLoopGuard(url, policy=policy, **settings).policy
        self._enforce = stated.enforce
        secret = settings.get("secret")
        self._secret = secret.encode() if isinstance(secret, str) else secret
        # The calls of a history have run, whatever the verdict: in shadow mode each of them can be reported.
        shadow = {"enforce": False, "tools": {USER_TURN: ToolRule(progress=True), **stated.tools}}
        self._entered: dict[str, str] = {}
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
        verdict = await self._at_a_glance(session, request) or await self._looked_up(session, request)
        if verdict is None:
            return None
        if verdict.level is Level.STOP and verdict.rule == "repeat" and self._enforce:
            await session.halt(verdict.text)
        allowed = verdict.level < Level.BLOCK or (not self._enforce and verdict.rule != "halted")
        return dataclasses.replace(verdict, allowed=allowed)

    async def close(self) -> None:
        """Close the connections that the guard made; may be called twice."""
        await self._guard.close()

    async def _at_a_glance(self, session: AsyncSession, request: Mapping[str, Any]) -> Verdict | None:
        """The verdict on a history that has grown by one turn since this proxy saw it, in one exchange with the store.

        None where it is another history, and before anybody is refused: then the store is asked what it knows.
        """
        events = events_of(request, _GLANCE, self._secret)
        last = [event for event in events if event.turn == events[-1].turn]
        if len(last) == len(events) or self._entered.get(session.id) != events[-len(last) - 1].call_id:
            return None
        verdict = await _judged(session, last, {})
        if verdict.level >= Level.BLOCK:
            return None
        self._remember(session, last)
        return verdict

    async def _looked_up(self, session: AsyncSession, request: Mapping[str, Any]) -> Verdict | None:
        """The verdict on any history: what the store does not know of it is entered first."""
        seen = await session.snapshot()
        if seen.halted is not None:
            return await session.peek(USER_TURN)
        events = events_of(request, self._guard.policy.window, self._secret)
        if not events or not (seen.calls or any(event.is_call for event in events)):
            return None
        last = [event for event in events if event.turn == events[-1].turn]
        reported = {call.call_id: call.reported for call in seen.calls}
        missed = {event.call_id for event in self._missed(events, last, reported)}
        before: list[Step] = []
        for event in events[: len(events) - len(last)]:
            question = _asked(session, event)
            if event.call_id in missed:
                before += [question.call, *_told(session, question, event)]
            elif reported.get(event.call_id) is False:
                before += _told(session, question, event)
        verdict = await _judged(session, last, reported, before)
        self._remember(session, last)
        return verdict

    def _remember(self, session: AsyncSession, last: list[Event]) -> None:
        """Keep in mind how far the history was entered with certainty."""
        self._entered.pop(session.id, None)
        if all(event.is_over for event in last):
            self._entered[session.id] = last[-1].call_id
        if len(self._entered) > _REMEMBERED:
            del self._entered[next(iter(self._entered))]

    def _missed(self, events: list[Event], last: list[Event], known: Mapping[str, bool]) -> list[Event]:
        """The events before the last turn that happened since the store last saw this history.

        Histories grow at their end: what stands before a known event has been in the window, and may have left it.
        """
        newest = max((place for place, event in enumerate(events) if event.call_id in known), default=-1)
        if newest < 0 and self._guard.policy.max_age is not None:
            return []  # they may be older than that
        # They are entered all at once: calls of a tool with a pace would look like a burst.
        limits = self._guard.policy.limits
        return [event for event in events[newest + 1 : len(events) - len(last)] if not limits(event.tool).pace]


async def _judged(
    session: AsyncSession, last: list[Event], reported: Mapping[str, bool], before: Sequence[Step] = ()
) -> Verdict:
    """The verdict on the last turn, recorded and reported, by what is known after its reports; `before` comes first.

    All in one exchange with the store, which keeps the order of the steps.
    """
    questions = [_asked(session, event) for event in last]
    steps = list(before)
    for event, question in zip(last, questions, strict=True):
        if not reported.get(event.call_id):
            steps += [question.call, *_told(session, question, event)]
    steps += [question.call for question in questions]
    tallies = (await session._store.run(steps))[-len(last) :]  # noqa: SLF001 - of this package
    return _chosen([session._engine.answer(*pair) for pair in zip(questions, tallies, strict=True)])  # noqa: SLF001


def _asked(session: AsyncSession, event: Event) -> Question:
    return session._engine.ask(session._named, event.tool, event.args, event.call_id)  # noqa: SLF001


def _told(session: AsyncSession, question: Question, event: Event) -> list[Report]:
    """The report of what came of a call, where that is known and says anything."""
    if not event.is_over:
        return []
    report = session._engine.outcome(question, event.result, event.ok)  # noqa: SLF001
    return [report] if report.says_something else []


def _chosen(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a turn: an agent that also does something new in it is not stuck, unless it is to be stopped."""
    worst = max(verdicts, key=lambda each: each.level)
    return worst if worst.level is Level.STOP else min(verdicts, key=lambda each: each.level)

"""What every framework adapter shares: guards, session, arguments, and never failing the agent."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeGuard, TypeVar, cast

from loopfence.aio import AsyncLoopGuard
from loopfence.context import current_session
from loopfence.errors import ArgsError, LoopfenceError
from loopfence.guard import LoopGuard
from loopfence.verdict import Level, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loopfence.policy import Policy

T = TypeVar("T")
Steps = Generator[Callable[[], Any], Any, T]
log = logging.getLogger("loopfence.integrations")


class StopReason(TypedDict):
    """Why a run was ended, in plain values: it survives checkpoints, queues and JSON."""

    rule: str | None
    tool: str
    session: str
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as a framework told it: whose it is, what is called, and in which turn of the model."""

    session: str
    tool: str
    args: Any
    turn: str | None


@dataclass(frozen=True, slots=True)
class Hooks(Generic[T]):
    """What differs between frameworks that wrap a tool call: how to run it and how to read its answer."""

    run: Callable[[], Any]
    """Runs the tool: gives its answer, or an awaitable of it."""
    refuse: Callable[[Verdict], T]
    """Gives (or raises) what the model sees in place of a result."""
    outcome: Callable[[T], dict[str, Any] | None]
    """Turns an answer into what is reported: `result=` where it is known, `ok=`; None = the call is not over."""
    not_a_failure: tuple[type[BaseException], ...] = ()
    """Exceptions that are the framework's control flow: nothing is reported."""


def refused(verdict: Verdict | None) -> TypeGuard[Verdict]:
    """Whether the tool must not run: the model then gets `verdict.message` in place of a result."""
    return verdict is not None and not verdict.allowed


def stops(verdict: Verdict | None) -> TypeGuard[Verdict]:
    """Whether the run must end, besides the tool not running."""
    return refused(verdict) and verdict.level is Level.STOP


def stop_reason(verdict: Verdict) -> StopReason:
    """The typed reason an application finds when its run was stopped."""
    return StopReason(rule=verdict.rule, tool=verdict.tool, session=verdict.session, message=verdict.message)


def missing(extra: str, error: ImportError) -> ImportError:
    """The one clear error of an adapter whose framework is not installed, or is too old."""
    return ImportError(
        f"this loopfence integration cannot be used ({error}): pip install -U 'loopfence[{extra}]'", name=error.name
    )


class Adapter:
    """A guard as framework hooks use it: sync and async, and it never raises into the agent's run.

    `guard` is a ready LoopGuard or AsyncLoopGuard; without one it is made from `url`, `policy` and the
    other LoopGuard settings. The side that was not given is made from the same settings on first use.
    `session` takes what the framework hands its hook and returns the session's id, or None to fall back
    on `with loopfence.session(id)`, then on the framework's own ids.
    """

    def __init__(
        self,
        framework: str,
        url: str | None = None,
        *,
        guard: LoopGuard | AsyncLoopGuard | None = None,
        session: Callable[[Any], str | None] | None = None,
        policy: Policy | None = None,
        **settings: Any,
    ) -> None:
        if guard is not None and (url is not None or policy is not None or settings):
            raise TypeError("give either a guard or the settings to make one, not both")
        self._framework = framework
        self._guard = LoopGuard(url, policy=policy, **settings) if guard is None else guard
        self._session = session

    @cached_property
    def _sync(self) -> LoopGuard:
        return self._guard if isinstance(self._guard, LoopGuard) else self._guard.as_sync()

    @cached_property
    def _async(self) -> AsyncLoopGuard:
        return self._guard if isinstance(self._guard, AsyncLoopGuard) else self._guard.as_async()

    @cached_property
    def _made_up(self) -> str:
        session = f"{self._framework}-{uuid.uuid4()}"
        log.warning(
            "%s told no thread and no run: every call through this adapter counts in one made-up session %s; "
            "pass session= or use `with loopfence.session(id)`",
            self._framework,
            session,
        )
        return session

    def call(
        self, source: Any, tool: str, args: Any, *, ids: Sequence[str | None] = (), turn: str | None = None
    ) -> Call:
        """Say what is about to be called. No I/O.

        `source` is what the framework gave its hook, for the user's `session` callable. `ids` are the
        framework's own, widest first (thread, run). `turn` names the model's turn, unique among the
        runs that may share a session: equal calls of one turn are then one occurrence. `args` may be
        a JSON text; one that does not parse is compared as it stands.
        """
        return Call(self.named(source, ids) or self._made_up, tool, _parsed(args), turn)

    def named(self, source: Any, ids: Sequence[str | None] = ()) -> str | None:
        """The session's id as the user, the context or the framework names it; None where none of them does."""
        own = self._session(source) if self._session is not None else None
        return own or current_session() or _joined(ids) or None

    async def acheck(self, call: Call) -> Verdict | None:
        """Record the call and judge it; None when there is nothing to judge by, and the tool may run."""
        return await _adrive(_checking(self._async, call))

    async def areport(self, verdict: Verdict | None, **outcome: Any) -> None:
        """Report how an allowed call ended: `result=` where it is known, and `ok=False` for a failure."""
        await _adrive(_reporting(self._async, verdict, outcome))

    async def anote_progress(self, session: str) -> None:
        """Tell the guard of a new user turn, or of anything else that makes earlier repeats no repeats."""
        with _contained("progress", session):
            await self._async.session(session).note_progress()

    def around(self, call: Call, hooks: Hooks[T]) -> T:
        """Check, run the tool unless refused, and report how it ended."""
        return _drive(_around(self._sync, call, hooks))

    async def aaround(self, call: Call, hooks: Hooks[T]) -> T:
        """Do what `around` does; `hooks.run` gives an awaitable."""
        return await _adrive(_around(self._async, call, hooks))


# The logic stands once: it yields what is to be called, and one of two drivers calls or awaits it.


def _checking(guard: LoopGuard | AsyncLoopGuard, call: Call) -> Steps[Verdict | None]:
    with _contained("check", call.tool):
        session = guard.session(call.session)
        verdict: Verdict = yield lambda: session.check(call.tool, call.args, call_id=call.turn)
        return verdict
    return None


def _reporting(guard: LoopGuard | AsyncLoopGuard, verdict: Verdict | None, outcome: dict[str, Any]) -> Steps[None]:
    if verdict is None:
        return
    with _contained("report", verdict.tool):
        session = guard.session(verdict.session)
        yield lambda: session.report(verdict, **outcome)


def _around(guard: LoopGuard | AsyncLoopGuard, call: Call, hooks: Hooks[T]) -> Steps[T]:
    verdict = yield from _checking(guard, call)
    if refused(verdict):
        return hooks.refuse(verdict)
    try:
        answer: T = yield hooks.run
    except hooks.not_a_failure:
        raise
    except Exception:
        yield from _reporting(guard, verdict, {"ok": False})
        raise
    outcome = hooks.outcome(answer)
    if outcome is not None:
        yield from _reporting(guard, verdict, outcome)
    return answer


def _drive(steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                answer = step()
            except BaseException as error:  # noqa: BLE001 - it is thrown where the step was asked for
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        return cast("T", done.value)


async def _adrive(steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                answer = await step()
            except BaseException as error:  # noqa: BLE001 - it is thrown where the step was asked for
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        return cast("T", done.value)


@contextmanager
def _contained(step: str, name: str) -> Iterator[None]:
    """Keep the guard's own errors out of the agent: frameworks swallow them or abort the run on them."""
    try:
        yield
    except ArgsError as error:
        log.warning("not guarded: arguments of tool %r have no canonical form: %s", name, error)
    except LoopfenceError as error:
        log.error("not guarded: %s of %r failed: %s", step, name, error)  # noqa: TRY400 - one line
    except Exception:  # a callable of the user's policy, or a fault of the guard's own
        log.exception("not guarded: %s of %r failed", step, name)


def _joined(ids: Sequence[str | None]) -> str:
    """One id out of several; a slash inside a part is escaped, so that no two tuples give the same id."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in ids if part)


def _parsed(args: Any) -> Any:
    """Arguments as a value: models send a dict, JSON text, nothing at all, or broken JSON."""
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args) if args.strip() else {}
    except (ValueError, RecursionError):
        return args

"""What the two Redis shells share: which step is sent, who answers instead of Redis, and what is made of a reply."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from loopfence.store.faults import FAILURES, corrupt, raised, translate
from loopfence.store.keys import session_of
from loopfence.store.scripts import Command, Commands, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loopfence.store.outage import Outage
    from loopfence.store.tally import Call, Contents, Report, Step, Tally

T = TypeVar("T")


class RedisShell:
    """A namespace in Redis, without the sending. Each step comes with what answers it where Redis does not."""

    def __init__(self, commands: Commands, outage: Outage) -> None:
        self._commands = commands
        self._outage = outage

    def _recording(self, call: Call) -> tuple[Command[Tally], Callable[[], Tally]]:
        return self._commands.record(call), partial(self._outage.tally, call, self._outage.local.record)

    def _peeking(self, call: Call) -> tuple[Command[Tally], Callable[[], Tally]]:
        return self._commands.peek(call), partial(self._outage.tally, call, self._outage.local.peek)

    def _reporting(self, report: Report) -> tuple[Command[None], Callable[[], None]]:
        return self._commands.report(report), partial(self._outage.local.report, report)

    def _progressing(self, session: str, owner: str, token: str) -> tuple[Command[None], Callable[[], None]]:
        instead = partial(self._outage.local.progress, session, owner, token)
        return self._commands.progress(session, owner, token), instead

    def _halting(self, session: str, reason: str) -> tuple[Command[None], Callable[[], None]]:
        return self._commands.halt(session, reason), partial(self._outage.local.halt, session, reason)

    def _resuming(self, session: str) -> tuple[Command[None], Callable[[], None]]:
        return self._commands.resume(session), partial(self._outage.local.resume, session)

    def _resetting(self, session: str) -> tuple[Command[None], Callable[[], None]]:
        return self._commands.reset(session), partial(self._outage.local.reset, session)

    def _reading(self, session: str) -> tuple[Command[Contents], Callable[[], Contents]]:
        return self._commands.contents(session), partial(self._outage.local.contents, session)

    def _running(self, steps: Sequence[Step]) -> tuple[list[Command[Any]], list[Callable[[], Any]]]:
        insteads: list[Callable[[], Any]] = [partial(self._outage.answer_to, step) for step in steps]
        return [self._commands.step(step) for step in steps], insteads

    def _made_of(self, command: Command[T], reply: Any, admitted: int, instead: Callable[[], T]) -> T:
        """The answer to a step: what its reply says or, where that is an error, what the outage policy says.

        admitted -- the round in which the step was let through to Redis.
        """
        try:
            answer = command.parse(raised(reply))
        except FAILURES as error:
            self._outage.failed(translate(error, command.keys[0]), admitted)
        except ValueError as error:
            self._outage.failed(corrupt(str(error), command.keys[0]), admitted)
        else:
            self._outage.succeeded()
            return answer
        return instead()


class Found:
    """The sessions that a SCAN has found so far."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._seen: set[str] = set()

    def new(self, key: Any) -> str | None:
        """The session of a key, where it was not found before: a session has two keys, and SCAN may repeat one."""
        session = session_of(self._namespace, text_of(key))
        if session is None or session in self._seen:
            return None
        self._seen.add(session)
        return session

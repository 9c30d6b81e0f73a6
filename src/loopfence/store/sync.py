"""The synchronous Redis shell: sends the steps; no rule is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from loopfence.errors import StoreError
from loopfence.store.faults import FAILURES, translate
from loopfence.store.keys import session_pattern
from loopfence.store.scripts import Command, Commands, batched
from loopfence.store.shell import Found, RedisShell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loopfence.store.links import Link
    from loopfence.store.outage import Outage
    from loopfence.store.tally import Call, Contents, Report, Step, Tally

T = TypeVar("T")


class RedisStore(RedisShell):
    """Windows in Redis, through a Link."""

    def __init__(self, link: Link, commands: Commands, outage: Outage) -> None:
        super().__init__(commands, outage)
        self._link = link

    def _ask(self, command: Command[T], instead: Callable[[], T]) -> T:
        admitted = self._outage.admit()
        if not admitted:
            self._outage.skipped()
            return instead()
        try:
            reply = self._link.send(command)
        except FAILURES as error:
            reply = error
        return self._made_of(command, reply, admitted, instead)

    def _ask_many(self, commands: list[Command[T]], insteads: list[Callable[[], T]]) -> list[T]:
        admitted = self._outage.admit()
        if not admitted:
            self._outage.skipped()
            return [instead() for instead in insteads]
        try:
            replies = self._link.send_many(commands)
        except FAILURES as error:
            replies = [error] * len(commands)
        asked = zip(commands, replies, insteads, strict=True)
        return [self._made_of(command, reply, admitted, instead) for command, reply, instead in asked]

    def record(self, call: Call) -> Tally:
        return self._ask(*self._recording(call))

    def run(self, steps: Sequence[Step]) -> list[Any]:
        answers: list[Any] = []
        for batch in batched(steps):
            answers += self._ask_many(*self._running(batch))
        return answers

    def peek(self, call: Call) -> Tally:
        return self._ask(*self._peeking(call))

    def report(self, report: Report) -> None:
        self._ask(*self._reporting(report))

    def progress(self, session: str, owner: str, token: str) -> None:
        self._ask(*self._progressing(session, owner, token))

    def halt(self, session: str, reason: str) -> None:
        self._ask(*self._halting(session, reason))

    def resume(self, session: str) -> None:
        self._ask(*self._resuming(session))

    def reset(self, session: str) -> None:
        self._ask(*self._resetting(session))

    def contents(self, session: str) -> Contents:
        return self._ask(*self._reading(session))

    def sessions(self) -> Iterator[str]:
        namespace = self._commands.namespace
        found = Found(namespace)
        try:
            for key in self._link.scan(session_pattern(namespace)):
                if (session := found.new(key)) is not None:
                    yield session
        except FAILURES as error:
            raise translate(error, namespace) from None
        except ValueError as error:
            raise StoreError(str(error)) from None

    def close(self) -> None:
        self._link.close()

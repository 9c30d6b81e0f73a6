"""What the two Redis shells share: what is made of a reply, and which sessions a SCAN has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from loopfence.store.faults import corrupt, translate
from loopfence.store.keys import session_of
from loopfence.store.scripts import Command, Commands, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopfence.store.outage import Outage

T = TypeVar("T")


class RedisShell:
    """A namespace in Redis, without the sending."""

    def __init__(self, commands: Commands, outage: Outage) -> None:
        self._commands = commands
        self._outage = outage

    def _made_of(
        self, command: Command[T], reply: Any, admitted: int, instead: Callable[..., T], arguments: tuple[Any, ...]
    ) -> T:
        """The answer to a step: what its reply says or, where that is an error, what the outage policy says.

        admitted -- the round in which the step was let through to Redis.
        """
        if isinstance(reply, Exception):
            failure = translate(reply, command.keys[0])
        else:
            try:
                answer = command.parse(reply)
            except ValueError as error:
                failure = corrupt(str(error), command.keys[0])
            except TypeError:
                failure = corrupt(f"a step was answered with a {type(reply).__name__}", command.keys[0])
            else:
                self._outage.succeeded()
                return answer
        self._outage.failed(failure, admitted)
        return instead(*arguments)


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

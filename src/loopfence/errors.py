"""The error tree: everything loopfence raises on purpose, each error picklable and named for what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopfence.verdict import Verdict


class LoopfenceError(Exception):
    """Base of every error that loopfence raises."""


class ConfigError(LoopfenceError, ValueError):
    """A setting, a URL or a name is out of its range; the text names the field, the value and the rule."""


class ArgsError(LoopfenceError, TypeError):
    """Tool arguments have no canonical JSON; the text names the path of the value that has none."""


class StoreError(LoopfenceError):
    """The store answered with an error: a missing permission, a key of another type, a full memory."""


class StoreUnavailableError(StoreError):
    """The store did not answer inside the timeout, or could not be reached at all."""


class LoopDetectedError(LoopfenceError):
    """A call was refused; raised by `record`, by the `call` context manager and by the tool decorator.

    `verdict` holds the whole decision. `tool_args` are the arguments as the caller gave them: they
    live in this process only and never go to Redis.
    """

    def __init__(
        self,
        text: str,
        *,
        tool_name: str,
        tool_args: Any,
        verdict: Verdict,
    ) -> None:
        super().__init__(text)
        self.tool_name = tool_name
        self.tool_args = tool_args
        self.verdict = verdict

    @property
    def count(self) -> int:
        """Repeats without progress, this call included."""
        return self.verdict.count

    @property
    def window(self) -> int:
        """How many calls the window holds."""
        return self.verdict.window

    @property
    def threshold(self) -> int:
        """Repeats at which a call of this tool is blocked."""
        return self.verdict.threshold

    @property
    def session(self) -> str:
        """The session's id as the caller gave it."""
        return self.verdict.session

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.args[0], self.tool_name, self.tool_args, self.verdict)


def _rebuild(text: str, tool_name: str, tool_args: Any, verdict: Verdict) -> LoopDetectedError:
    return LoopDetectedError(text, tool_name=tool_name, tool_args=tool_args, verdict=verdict)

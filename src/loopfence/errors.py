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
    """The store answered with an error: a missing permission, a key of another type, a full memory.

    advice -- what to do about it, where that is known; the text ends with it.
    """

    def __init__(self, text: str, advice: str = "") -> None:
        super().__init__(f"{text}: {advice}" if advice else text)
        self.advice = advice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0].removesuffix(f": {self.advice}"), self.advice)


class CorruptSessionError(StoreError):
    """The keys of one session hold what loopfence did not write; other sessions are not touched."""


class StoreUnavailableError(StoreError):
    """The store did not answer inside the timeout, or could not be reached at all."""


class LoopDetectedError(LoopfenceError):
    """A call was refused; raised by `record`, by the `call` context manager and by the tool decorator.

    tool_name -- the tool, as the caller named it.
    tool_args -- the arguments as the caller gave them; they live in this process only and never go to Redis.
    count -- repeats without progress, this call included; window, threshold -- what held for this tool.
    session -- the session's id. verdict -- the whole decision.
    """

    def __init__(
        self,
        tool_name: str,
        tool_args: Any,
        count: int,
        window: int,
        threshold: int,
        session: str,
        verdict: Verdict,
    ) -> None:
        super().__init__(verdict.text)
        self.tool_name = tool_name
        self.tool_args = tool_args
        self.count = count
        self.window = window
        self.threshold = threshold
        self.session = session
        self.verdict = verdict

    def __reduce__(self) -> tuple[Any, ...]:
        given = (
            self.tool_name,
            self.tool_args,
            self.count,
            self.window,
            self.threshold,
            self.session,
            self.verdict,
        )
        return type(self), given

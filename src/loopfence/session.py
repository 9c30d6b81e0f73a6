"""What Session and AsyncSession share: a name, an engine, and the pure steps around each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopfence.settings import UNSET
from loopfence.snapshot import SessionSnapshot, snapshot_of

if TYPE_CHECKING:
    from loopfence.engine import Engine, Named
    from loopfence.store.tally import Contents
    from loopfence.verdict import Verdict


@dataclass
class ToolCall:
    """A call that runs inside `with session.call(...)`; set `result` to report it."""

    verdict: Verdict
    result: Any = UNSET


class SessionBase:
    """One agent run's window."""

    def __init__(self, engine: Engine, store: Any, named: Named) -> None:
        self._engine = engine
        self._store = store
        self._named = named

    @property
    def id(self) -> str:
        """The session's id, as it was given."""
        return self._named.id

    @property
    def window(self) -> int:
        """How many calls are looked at."""
        return self._engine.policy.window

    @property
    def threshold(self) -> int:
        """Repeats without progress at which a call is blocked, where no tool rule says otherwise."""
        return self._engine.policy.threshold

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, window={self.window}, threshold={self.threshold})"

    @staticmethod
    def _passed(verdict: Verdict, args: Any) -> Verdict:
        if not verdict.allowed:
            raise verdict.error(args)
        return verdict

    def _seen(self, contents: Contents) -> SessionSnapshot:
        return snapshot_of(self.id, contents, window=self.window, max_age=self._engine.max_age)

    def _loops(self, snapshot: SessionSnapshot) -> bool:
        tools = {call.signature: call.tool for call in snapshot.calls}
        limits = self._engine.policy.limits
        return any(repeats >= limits(tools[s]).threshold for s, repeats in snapshot.repeats.items())

"""The constructor that LoopGuard and AsyncLoopGuard share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from loopfence.settings import UNSET, Given, KeyFunction, Settings, resolve
from loopfence.store.open import space_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loopfence.engine import Engine
    from loopfence.policy import Policy, ToolRule
    from loopfence.store.memory import Space
    from loopfence.store.tally import OnOutage


class Configured:
    """A guard's settings and engine.

    url -- `memory://` (this guard's own), `memory://name` (shared by name in the process), `redis://`, `rediss://`,
        `unix://`, `redis+sentinel://h1:p1,h2:p2/service/db`, `redis+cluster://h1:p1,h2:p2`. Default `$LOOPFENCE_URL`,
        else `memory://`. Policy fields, `namespace`, `ttl`, `timeout` and `on_outage` may stand in its query.
    policy -- a `Policy`; or its fields as keywords (see `Policy`). Keyword wins over policy, policy over URL.
    namespace -- prefix of every key; holds none of `{}*?[]`.
    ttl -- seconds that a session is kept after its last call.
    timeout -- seconds that one call may take, connecting included.
    on_outage -- while Redis is out: "local" guards on in this process, "allow" lets calls through, "block" refuses
        them, "raise" raises StoreUnavailableError.
    client -- the user's own redis-py client in place of a URL; never closed by the guard.
    key -- `(tool, args) -> (tool, text)`: what makes two calls equal, in place of name and canonical JSON.
    secret -- keys the digests, so that guessable arguments cannot be confirmed by whoever can read Redis.
    keep_args -- keep at most 4 KB of each signature's canonical arguments for inspection; default: in memory only.
    clock -- a callable giving seconds, for `memory://` only.
    session -- the id of the guard's own default session; else made up.

    ConfigError names the field, the value and the rule. Making a guard does no I/O.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        policy: Policy | None = None,
        window: int | Given = UNSET,
        threshold: int | Given = UNSET,
        warn: int | Given | None = UNSET,
        stop: int | Given | None = UNSET,
        ceiling: int | Given | None = UNSET,
        failures: int | Given | None = UNSET,
        stagnation: int | Given | None = UNSET,
        max_age: float | Given | None = UNSET,
        enforce: bool | Given = UNSET,
        tools: Mapping[str, ToolRule | Mapping[str, Any]] | Given = UNSET,
        namespace: str | Given = UNSET,
        ttl: float | Given = UNSET,
        timeout: float | Given = UNSET,
        on_outage: OnOutage | Given = UNSET,
        client: Any = None,
        key: KeyFunction | None = None,
        secret: bytes | str | None = None,
        keep_args: bool | None = None,
        clock: Callable[[], float] | None = None,
        session: str | None = None,
    ) -> None:
        given = {
            "window": window,
            "threshold": threshold,
            "warn": warn,
            "stop": stop,
            "ceiling": ceiling,
            "failures": failures,
            "stagnation": stagnation,
            "max_age": max_age,
            "enforce": enforce,
            "tools": tools,
            "namespace": namespace,
            "ttl": ttl,
            "timeout": timeout,
            "on_outage": on_outage,
        }
        settings = resolve(
            url,
            policy=policy,
            given=given,
            client=client,
            key=key,
            secret=secret,
            keep_args=keep_args,
            clock=clock,
        )
        self._configure(settings, space_of(settings), session)

    @classmethod
    def like(cls, settings: Settings, space: Space | None, session: str) -> Self:
        """A guard with settings that are resolved already, over the same memory where they name one."""
        guard = cls.__new__(cls)
        guard._configure(settings, space, session)  # noqa: SLF001 - its own
        return guard

    def _configure(self, settings: Settings, space: Space | None, session: str | None) -> None:
        raise NotImplementedError

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._engine.policy

    _engine: Engine

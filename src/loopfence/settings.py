"""What a guard is made of: keyword, policy, URL and default laid over each other, and checked once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, get_args

from loopfence.errors import ConfigError
from loopfence.policy import POLICY_FIELDS, Policy
from loopfence.store.keys import check_namespace
from loopfence.store.tally import OnOutage

KeyFunction = Callable[[str, Any], tuple[str, str]]


class Unset(Enum):
    """Tells a value that was not given from None, which is a value of many fields."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
Given = Literal[Unset.UNSET]


@dataclass(frozen=True)
class Settings:
    """A guard's settings, resolved. Its repr holds no URL: that may hold a password."""

    url: str
    policy: Policy
    namespace: str
    ttl: float
    timeout: float
    on_outage: OnOutage
    client: Any
    key: KeyFunction | None
    secret: bytes | None
    keep_args: bool
    clock: Callable[[], float] | None

    def __repr__(self) -> str:
        return f"Settings(namespace={self.namespace!r}, policy={self.policy!r})"

    @property
    def in_memory(self) -> bool:
        """Whether windows live in this process."""
        return self.client is None and self.url.startswith("memory://")

    @property
    def ttl_ms(self) -> int:
        """The TTL as Redis takes it."""
        return max(1, round(self.ttl * 1000))


_DEFAULTS: dict[str, Any] = {"namespace": "loopfence", "ttl": 3600.0, "timeout": 0.25, "on_outage": "local"}
_URL_FIELDS = {*_DEFAULTS, *POLICY_FIELDS} - {"tools"}
_SCHEMES = ("memory", "redis", "rediss", "unix", "redis+sentinel", "redis+cluster")


def resolve(
    url: str | None,
    *,
    policy: Policy | None,
    given: dict[str, Any],
    client: Any = None,
    key: KeyFunction | None = None,
    secret: bytes | str | None = None,
    keep_args: bool | None = None,
    clock: Callable[[], float] | None = None,
) -> Settings:
    """Lay what was given over each other: keyword, then policy, then URL, then default."""
    if client is not None and url is not None:
        raise ConfigError("give url or client, not both")
    if url is None:
        url = "" if client is not None else os.environ.get("LOOPFENCE_URL") or "memory://"
    if not isinstance(url, str):
        raise ConfigError(f"url must be a string (got {type(url).__name__})")
    scheme = url.partition("://")[0]
    if client is None and (scheme not in _SCHEMES or "://" not in url):
        raise ConfigError(f"url must start with one of {', '.join(s + '://' for s in _SCHEMES)} (got {scheme[:32]!r})")
    from_url: dict[str, Any] = {}
    if "?" in url:
        url, from_url = _take_query(url)
    chosen = {name: value for name, value in given.items() if value is not UNSET}
    if policy is not None and not isinstance(policy, Policy):
        raise ConfigError(f"policy must be a Policy (got {type(policy).__name__})")
    fields = {**from_url, **(policy.given if policy is not None else {}), **chosen}
    rest = {name: fields.pop(name, default) for name, default in _DEFAULTS.items()}
    settings = Settings(
        url=url,
        # A policy with nothing laid over it stays the user's own object.
        policy=policy if policy is not None and fields == policy.given else Policy(**fields),
        client=client,
        key=_check_key(key),
        secret=_check_secret(secret),
        keep_args=url.startswith("memory://") if keep_args is None else keep_args,
        clock=clock,
        namespace=check_namespace(rest["namespace"]),
        ttl=_check_seconds("ttl", rest["ttl"]),
        timeout=_check_seconds("timeout", rest["timeout"]),
        on_outage=_check_outage(rest["on_outage"]),
    )
    if clock is not None and not settings.in_memory:
        raise ConfigError("clock is for memory:// only: on Redis the server's clock counts")
    if settings.in_memory and from_url.keys() != _names(url, from_url):
        raise ConfigError("url: memory:// takes loopfence's own query fields only")
    return settings


def _names(url: str, from_url: dict[str, Any]) -> set[str]:
    """The names of all query fields of a memory:// URL, ours and those left in it."""
    _, _, rest = url.partition("?")
    return {*from_url, *(part.partition("=")[0] for part in rest.split("&") if part)}


def _take_query(url: str) -> tuple[str, dict[str, Any]]:
    """The URL without the query fields that are ours, and those as values; each named once."""
    base, _, query = url.partition("?")
    mine: dict[str, Any] = {}
    rest = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name not in _URL_FIELDS:
            rest.append(part)
        elif name in mine:
            raise ConfigError(f"url: the query field {name} is given twice")
        else:
            mine[name] = _parse(name, value)
    return base + ("?" + "&".join(rest) if any(rest) else ""), mine


def _parse(name: str, text: str) -> Any:
    from urllib.parse import unquote

    text = unquote(text)
    if name in ("namespace", "on_outage"):
        return text
    if name == "enforce":
        known = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in known:
            raise ConfigError(f"enforce must be true or false (got {text!r})")
        return known[text.lower()]
    if text.lower() == "none" and name not in ("window", "threshold", "ttl", "timeout"):
        return None
    try:
        return float(text) if name in ("max_age", "ttl", "timeout") else int(text)
    except ValueError:
        kind = "a number of seconds" if name in ("max_age", "ttl", "timeout") else "a whole number"
        raise ConfigError(f"{name} must be {kind} (got {text!r})") from None


def _check_seconds(name: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= 10 * 365 * 86_400:
        raise ConfigError(f"{name} must be > 0 seconds and at most 10 years (got {value!r})")
    return float(value)


def _check_outage(value: Any) -> OnOutage:
    if value not in get_args(OnOutage):
        raise ConfigError(f"on_outage must be one of {', '.join(get_args(OnOutage))} (got {value!r})")
    chosen: OnOutage = value
    return chosen


def _check_key(key: Any) -> KeyFunction | None:
    if key is not None and not callable(key):
        raise ConfigError(f"key must be a callable of (tool, args) (got {type(key).__name__})")
    chosen: KeyFunction | None = key
    return chosen


def _check_secret(secret: Any) -> bytes | None:
    if secret is None:
        return None
    if not isinstance(secret, bytes | str) or not secret:
        raise ConfigError("secret must be a non-empty string or bytes")
    return secret.encode() if isinstance(secret, str) else secret

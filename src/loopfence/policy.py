"""The policy: when repeats become a loop, and what is different for single tools; checked when it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Self

from loopfence.errors import ConfigError

MAX_WINDOW = 10_000


@dataclass(frozen=True, kw_only=True)
class ToolRule:
    """What is different for the tools that a glob of `Policy.tools` matches; None takes the policy's value.

    threshold, warn, stop, ceiling -- as in `Policy`, for these tools.
    exempt -- never counted; only the session's halt is looked up.
    pace -- seconds (> 0): a call that comes at least this long after its previous occurrence is a poll, not a repeat.
    progress -- True, or a callable of the arguments: a success of this tool means that something has moved, so
        every other call's earlier occurrences stop counting.
    ignore, only -- dotted argument fields left out of the signature, or alone in it (`filters.page`, `items.*.id`).
    result_ignore -- dotted fields left out when two JSON results are compared.
    result_mask -- regular expressions blanked in a text result before it is compared (its first 64 KB).
    """

    threshold: int | None = None
    warn: int | None = None
    stop: int | None = None
    ceiling: int | None = None
    exempt: bool = False
    pace: float | None = None
    progress: bool | Callable[[Any], bool] = False
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    result_ignore: tuple[str, ...] = ()
    result_mask: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("threshold", "warn", "stop", "ceiling"):
            _check_int(name, getattr(self, name), least=1 if name == "warn" else 2)
        _check_bool("exempt", self.exempt)
        _check_seconds("pace", self.pace)
        if not isinstance(self.progress, bool) and not callable(self.progress):
            raise ConfigError(f"progress must be true, false or a callable (got {self.progress!r})")
        for name in ("ignore", "only", "result_ignore", "result_mask"):
            object.__setattr__(self, name, _check_strings(name, getattr(self, name)))
        for pattern in self.result_mask:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"result_mask must hold regular expressions (got {pattern!r}: {error})") from None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What holds for one tool: the policy with the tool's rule laid over it."""

    threshold: int
    warn: int | None
    stop: int | None
    ceiling: int | None
    pace: int
    """In µs; 0 = none."""
    rule: ToolRule
    masks: tuple[re.Pattern[str], ...]
    selects: bool
    """Whether the rule narrows the arguments down (`ignore` or `only`)."""

    def makes_progress(self, args: Any) -> bool:
        """Whether a success of this call is progress; a callable that raises says no."""
        progress = self.rule.progress
        if isinstance(progress, bool):
            return progress
        try:
            return bool(progress(args))
        except Exception:  # noqa: BLE001 - the user's callable must not take the agent down
            return False


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When a call is a loop. Every field is checked here; ConfigError names the field, the value and the rule.

    window -- calls looked at, 2 to 10,000.
    threshold -- repeats without progress at which the call is blocked, 2 to window.
    warn -- repeats at which the verdict is WARN, below threshold.
    stop -- repeats at which the whole session is halted, above threshold, up to window.
    ceiling -- equal calls in the window, progress or not, at which the call is blocked, 2 to window.
    failures -- the n-th call of one tool is blocked when its n-1 previous reported calls all failed; at least 2.
    stagnation -- the n-th call of one tool is blocked when its n-1 previous results were all equal; at least 2.
    max_age -- seconds after which an occurrence leaves the window.
    enforce -- False is shadow mode: verdicts say what would happen and let every call through.
    tools -- glob on the tool's name -> ToolRule (or a mapping of its fields); the first match wins.
    """

    window: int = 20
    threshold: int = 3
    warn: int | None = None
    stop: int | None = None
    ceiling: int | None = None
    failures: int | None = 8
    stagnation: int | None = None
    max_age: float | None = None
    enforce: bool = True
    tools: Mapping[str, ToolRule] = field(default_factory=dict)

    def __new__(cls, **given: object) -> Self:
        self = super().__new__(cls)
        # What was given, and not left to its default, wins over the URL.
        object.__setattr__(self, "_given", frozenset(given))
        return self

    def __post_init__(self) -> None:
        _check_int("window", self.window, least=2, none=False)
        if self.window > MAX_WINDOW:
            raise ConfigError(f"window must be <= {MAX_WINDOW} (got {self.window})")
        _check_int("threshold", self.threshold, least=2, none=False)
        for name, least in (("warn", 1), ("stop", 2), ("ceiling", 2), ("failures", 2), ("stagnation", 2)):
            _check_int(name, getattr(self, name), least=least)
        _check_seconds("max_age", self.max_age)
        _check_bool("enforce", self.enforce)
        if not isinstance(self.tools, Mapping):
            raise ConfigError(f"tools must map globs to tool rules (got {type(self.tools).__name__})")
        object.__setattr__(self, "tools", {glob: _tool_rule(glob, rule) for glob, rule in self.tools.items()})
        _check_limits("", self._lay(ToolRule()), self.window)
        for glob, rule in self.tools.items():
            _check_limits(f'tools["{glob}"].', self._lay(rule), self.window)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> Self:
        """Make a policy of plain data (a TOML file, a JSON object); an unknown field is a ConfigError.

        `false` switches a rule off that None would: TOML has no null.
        """
        known: dict[str, Any] = _known(cls, "", settings)
        off = {name: None for name in _OPTIONAL if known.get(name) is False}
        return cls(**{**known, **off})

    @property
    def given(self) -> dict[str, Any]:
        """The fields that were set explicitly, with their values."""
        names: frozenset[str] = self.__dict__["_given"]
        return {name: getattr(self, name) for name in names}

    def override(self, **changes: Any) -> Policy:
        """This policy with the fields in `changes` replaced, checked as a whole."""
        return Policy(**{**self.given, **changes})

    def limits(self, tool: str) -> Limits:
        """What holds for `tool`, the caller's name of it."""
        return self._lay(next((rule for glob, rule in self.tools.items() if fnmatchcase(tool, glob)), ToolRule()))

    def _lay(self, rule: ToolRule) -> Limits:
        return Limits(
            threshold=self.threshold if rule.threshold is None else rule.threshold,
            warn=self.warn if rule.warn is None else rule.warn,
            stop=self.stop if rule.stop is None else rule.stop,
            ceiling=self.ceiling if rule.ceiling is None else rule.ceiling,
            pace=micros(rule.pace),
            rule=rule,
            masks=tuple(re.compile(pattern) for pattern in rule.result_mask),
            selects=bool(rule.ignore or rule.only),
        )


_OPTIONAL = ("warn", "stop", "ceiling", "failures", "stagnation", "max_age")
POLICY_FIELDS = tuple(spec.name for spec in fields(Policy))


def micros(seconds: float | None) -> int:
    """Seconds as whole µs, the unit of scores; None is 0."""
    return 0 if seconds is None else max(1, round(seconds * 1_000_000))


def _tool_rule(glob: Any, rule: Any) -> ToolRule:
    if not isinstance(glob, str) or not glob:
        raise ConfigError(f"tools must be keyed by globs (got {glob!r})")
    if isinstance(rule, ToolRule):
        return rule
    if not isinstance(rule, Mapping):
        raise ConfigError(f'tools["{glob}"] must be a tool rule (got {type(rule).__name__})')
    try:
        return ToolRule(**_known(ToolRule, f'tools["{glob}"].', rule))
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith("tools[") else f'tools["{glob}"].{text}') from None


def _known(cls: Any, prefix: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    known = [spec.name for spec in fields(cls)]
    for name in settings:
        if name not in known:
            raise ConfigError(f"{prefix}{name} is no field of {cls.__name__}; it has: {', '.join(known)}")
    return dict(settings)


def _check_limits(prefix: str, limits: Limits, window: int) -> None:
    threshold = limits.threshold
    for name, value in (("threshold", threshold), ("stop", limits.stop), ("ceiling", limits.ceiling)):
        if value is not None and value > window:
            raise ConfigError(f"{prefix}{name} must be <= window (got {name}={value}, window={window})")
    if limits.warn is not None and limits.warn >= threshold:
        raise ConfigError(f"{prefix}warn must be < threshold (got warn={limits.warn}, threshold={threshold})")
    if limits.stop is not None and limits.stop <= threshold:
        raise ConfigError(f"{prefix}stop must be > threshold (got stop={limits.stop}, threshold={threshold})")


def _check_int(name: str, value: Any, *, least: int, none: bool = True) -> None:
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be a whole number (got {value!r})")
    if value < least:
        raise ConfigError(f"{name} must be >= {least} (got {value})")


def _check_seconds(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} must be a number of seconds (got {value!r})")
    if not math.isfinite(value) or not 0 < value <= 10 * 365 * 86_400:
        raise ConfigError(f"{name} must be > 0 and at most 10 years of seconds (got {value})")


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false (got {value!r})")


def _check_strings(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"{name} must be a list of strings (got {value!r})")
    return tuple(value)

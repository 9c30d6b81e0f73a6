"""Canonical JSON: the one text of a value, on every worker, whatever way the value took.

The form is what `orjson` writes with sorted keys (UTF-8, compact). What orjson refuses but JSON can say is
spelled here, part by part with orjson's own spelling, so that the form depends on the value alone.
"""

from __future__ import annotations

import re
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

import orjson

from loopfence.errors import ArgsError
from loopfence.plain import MAX_STEPS, container_kind, plain_step, shallow_values, values_left

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 1000
"""Levels of nesting that have a form: what `orjson.loads` reads back (1024), rounded down."""

MAX_VALUES = 1_000_000
"""Values in a value that has a form; one that shares its parts could hold more than any machine can write."""

# orjson sees exact str, int, float, bool, None, list, tuple and dict, enums and UUIDs by itself; everything
# else comes to `plain_step`, which `_Spelling` uses as well.
_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_SURROGATE = re.compile("([\ud800-\udfff])")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_TOO_MANY = f"more than {MAX_VALUES} values have no canonical JSON"
_TOO_DEEP = f"more than {MAX_DEPTH} levels have no canonical JSON"
_LONGEST_PATH = 200
_WRITTEN_DEPTH = 8
"""How deep orjson is tried with a part where it failed with the whole: a bound, as each try walks the part."""
_type_name = type.__dict__["__name__"].__get__
"""A class's own name, whatever its metaclass says."""


def canonical_json(value: Any) -> str:
    """The one text of a JSON-like value: sorted keys, compact, UTF-8.

    - Types stay apart: `1`, `1.0`, `true` and `"1"` are four forms, "é" composed and decomposed are two.
      NaN and the infinities are `NaN`, `Infinity` and `-Infinity`, apart from null and from text.
    - Tuples are lists, sets are lists sorted by the text of their items, subclasses are what they extend.
    - Pydantic models and dataclasses are objects of their fields, an enum is its value. Dates and times are
      ISO 8601 text; UUIDs, paths, Decimals, time spans and Pydantic URLs are their text; bytes are the text
      `bytes:<xxh3_64>`.
    - A key that is no text is what JSON makes of it, so `{1: x}` and `{"1": x}` have one form.
    - Integers past 64 bits are written out, lone surrogates as `\\udXXX`.

    Raises ArgsError, which names the path of the value, for all that has no form: any other object, two keys
    that are one in JSON, a value that holds itself, over 1000 levels, over a million values, an integer of
    over 4300 digits.
    """
    return canonical_bytes(value).decode()


def canonical_bytes(value: Any) -> bytes:
    """`canonical_json` as UTF-8, which is what a digest takes."""
    if 0 < shallow_values(value) < MAX_VALUES:
        try:
            return orjson.dumps(value, None, _OPTIONS)
        except orjson.JSONEncodeError:
            pass  # a number past 64 bits, a lone surrogate, a key that is no text
    written, left = _written(value, MAX_VALUES)
    if left == 0:
        raise ArgsError(f"args: {_TOO_MANY}")
    return _Spelling().spell(value).encode() if written is None else written


def canonical_bytes_of_json(value: Any) -> bytes:
    """`canonical_bytes` of what a strict JSON parser made: plain and without NaN, it needs no look at each value."""
    try:
        return orjson.dumps(value, None, _OPTIONS)
    except orjson.JSONEncodeError:  # a number past 64 bits, a lone surrogate, very deep
        return canonical_bytes(value)


def _written(value: Any, most: int) -> tuple[bytes | None, int]:
    """What orjson writes, None where that is not the form; and how many of `most` values are left."""
    left = values_left(value, most)
    if left <= 0:
        return None, left
    try:
        return orjson.dumps(value, plain_step, _OPTIONS), left
    except orjson.JSONEncodeError as error:
        interrupt = error.__cause__
        if isinstance(interrupt, BaseException) and not isinstance(interrupt, Exception):
            raise interrupt from None  # a Ctrl-C inside `plain_step` is no matter of JSON
        return None, most


class _Container:
    """A container in the middle of its spelling: what is left of it, and the texts of what is done."""

    __slots__ = ("base", "chain", "done", "left", "step")

    def __init__(self, base: Any, left: Iterator[tuple[Any, str, Any]], chain: list[Any]) -> None:
        self.base = base
        self.left = left
        self.chain = chain
        """What became this container, from a model to its dict: kept, as an id is one only for so long."""
        self.done: list[str] = []
        self.step: Any = None
        """Where the spelling is: a key's text, an index, or None inside a set."""

    def text(self) -> str:
        if self.base is dict:
            return "{" + ",".join(self.done) + "}"
        if self.base in (set, frozenset):
            self.done.sort()
        return "[" + ",".join(self.done) + "]"

    def path(self) -> str:
        if self.base is dict:
            return f".{self.step}" if _WORD(self.step) else f"[{_string(self.step)}]"
        return "[*]" if self.step is None else f"[{self.step}]"


class _Spelling:
    """The form without orjson's limits; it keeps its own stack, so that no nesting can overflow one."""

    def __init__(self) -> None:
        self.left = MAX_VALUES
        self.open: list[_Container] = []
        self.around: set[int] = set()

    def spell(self, root: Any) -> str:
        outside = _Container(list, iter([(0, "", root)]), [])
        self.open.append(outside)
        while True:
            top = self.open[-1]
            for step, prefix, item in top.left:
                top.step = step
                text = self._text(item)
                if text is not None:
                    top.done.append(prefix + text)
                else:
                    top.done.append(prefix)
                    break
            else:
                if top is outside:
                    return top.done[0]
                self.open.pop()
                self.around.difference_update(map(id, top.chain))
                self.open[-1].done[-1] += top.text()

    def _text(self, value: Any) -> str | None:
        """The text of a leaf, or of a container that orjson can write; None for one that is open now."""
        chain: list[Any] = []
        while len(chain) <= MAX_STEPS:
            try:
                text = _leaf(value)
            except ValueError as error:
                raise self._error("the integer has too many digits for canonical JSON") from error
            if text is not None:
                return text
            if id(value) in self.around:
                raise self._error("the value holds itself")
            chain.append(value)
            kind = type(value)
            base = container_kind(kind)
            if base is not None:
                return self._open(base, value, chain)
            try:
                value = plain_step(value)
            except Exception as error:
                raise self._error(f"{_type_name(kind)} has no canonical JSON") from error
        raise self._error(_TOO_DEEP)

    def _open(self, base: Any, value: Any, chain: list[Any]) -> str | None:
        depth = len(self.open)
        if depth > MAX_DEPTH:
            raise self._error(_TOO_DEEP)
        if 1 < depth <= _WRITTEN_DEPTH:
            written, left = _written(value, self.left)
            if left == 0:
                raise self._error(_TOO_MANY)
            if written is not None:
                self.left = left
                return written.decode()
        items = list(dict.items(value) if base is dict else base.__iter__(value))
        self.left -= len(items)
        if self.left < 0:
            raise self._error(_TOO_MANY)
        if base is dict:
            members: Iterator[tuple[Any, str, Any]] = iter(self._members(items))
        elif base is list or base is tuple:
            members = ((index, "", item) for index, item in enumerate(items))
        else:
            members = ((None, "", item) for item in items)
        self.open.append(_Container(base, members, chain))
        self.around.update(map(id, chain))
        return None

    def _members(self, items: list[tuple[Any, Any]]) -> list[tuple[str, str, Any]]:
        """The members by their keys' text, in its order by code point, which is that of UTF-8 bytes."""
        members: dict[str, Any] = {}
        for key, item in items:
            name = key_text(key)
            if name is None:
                raise self._error(f"a key of type {_type_name(type(key))} has no canonical JSON")
            if name in members:
                raise self._error(f"two keys are both {_string(name)} in JSON")
            members[name] = item
        return [(name, _string(name) + ":", members[name]) for name in sorted(members)]

    def _error(self, reason: str) -> ArgsError:
        path = "args" + "".join(container.path() for container in self.open[1:])
        if len(path) > _LONGEST_PATH:
            path = f"{path[: _LONGEST_PATH // 2]}…{path[-_LONGEST_PATH // 2 :]}"
        return ArgsError(f"{path}: {reason}")


def key_text(key: Any) -> str | None:
    """The text of an object's key; None if it has none."""
    try:
        for _ in range(MAX_STEPS):
            text = key if type(key) is str else _leaf(key)
            if text is not None or container_kind(type(key)) is not None:
                return text
            key = plain_step(key)
    except Exception:  # noqa: BLE001, S110 - the key's own code ran
        pass
    return None


def _leaf(value: Any) -> str | None:
    """The text of an exact str, number, bool or None; None for all else. ValueError for endless digits."""
    kind = type(value)
    if kind is str:
        return _string(value)
    if kind is int:
        return int.__repr__(value)
    if kind is float and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind is float or kind is bool or value is None:
        return orjson.dumps(value).decode()
    return None


def _string(value: str) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        parts = (
            f"\\u{ord(part):04x}" if _SURROGATE.fullmatch(part) else orjson.dumps(part)[1:-1].decode()
            for part in _SURROGATE.split(value)
        )
        return f'"{"".join(parts)}"'

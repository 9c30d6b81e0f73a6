"""Steps towards plain JSON: what each type that has a form is, without ever walking into it."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import fields
from enum import Enum
from math import isfinite
from typing import Any

from xxhash import xxh3_64_hexdigest

MAX_STEPS = 1000
"""Steps from a value to plain JSON; only an object that invents new objects takes more."""

_ORJSON_LEVELS = 250
"""How deep orjson may go: it stops at 254 levels by itself, but overruns its memory with deep tuples."""

_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset)


def shallow_values(value: Any) -> int:
    """How many values are in an object of leaves and of objects and lists of leaves, as most arguments are; else 0.

    orjson may write what `values_left` need not walk through: this takes half the time.
    """
    if type(value) is not dict:
        return 0
    found = len(value)
    try:
        for item in value.values():
            kind = type(item)
            if kind is str or kind is int or item is None or kind is bool:
                continue
            if kind is dict:
                inner = item.values()
            elif kind is list:
                inner = item
            else:
                return 0
            found += len(inner)
            for leaf in inner:
                kind = type(leaf)
                if not (kind is str or kind is int or leaf is None or kind is bool):
                    return 0
    except RuntimeError:  # another thread changed a dict
        return 0
    return found


def values_left(value: Any, most: int) -> int:  # noqa: C901 - one pass over each value, without calls
    """How many of `most` values are left after all in `value`, where orjson may write it: more than 0.

    0 where `value` holds more than that. -1 where its form is not what orjson writes, or orjson would not
    survive it: NaN, an enum whose value raises, deep tuples, all that `plain_step` refuses.
    """
    level: list[Any] = [value.values() if type(value) is dict else (value,)]
    try:
        for _ in range(_ORJSON_LEVELS):
            below: list[Any] = []
            for items in level:
                most -= len(items)
                if most <= 0:
                    return 0
                for item in items:
                    kind = type(item)
                    if kind is str or kind is int or item is None or kind is bool:
                        continue
                    if kind is dict:
                        below.append(item.values())
                    elif kind is list or kind is tuple:
                        below.append(item)
                    elif kind is not float:
                        below.append((plain_step(item),))
                    elif not isfinite(item):
                        return -1
            if not below:
                return most
            level = below
    except Exception:  # noqa: BLE001 - an item's own code ran, or another thread changed a dict
        return -1
    return -1


def plain_step(value: Any) -> Any:
    """One step from `value` towards plain JSON, never further into it; any Exception if there is none."""
    kind = type(value)  # `isinstance` would ask the value itself
    if issubclass(kind, Enum):
        return value.value
    for base, convert in _CONVERT:
        if issubclass(kind, base):
            return convert(value)
    for module, name, convert in _CONVERT_IF_IMPORTED:
        if issubclass(kind, getattr(sys.modules.get(module), name, ())):
            return convert(value)
    if hasattr(kind, "model_dump"):
        return value.model_dump(mode="python")
    if hasattr(kind, "__dataclass_fields__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(kind, "unicode_string"):  # Pydantic's URLs
        return value.unicode_string()
    raise TypeError


# The base's own method reads the value, whatever a subclass has made of it.
_CONVERT: tuple[tuple[Any, Any], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, lambda value: dict(dict.items(value))),
    (list, list.copy),
    (tuple, lambda value: list(tuple.__iter__(value))),
    ((dt.date, dt.time), lambda value: value.isoformat()),
    (dt.timedelta, str),
    ((bytes, bytearray), lambda value: "bytes:" + xxh3_64_hexdigest(value)),
)
# Where a module is not imported, no value is of its types. A context may ask Decimals for a small "e".
_CONVERT_IF_IMPORTED: tuple[tuple[str, str, Any], ...] = (
    ("decimal", "Decimal", lambda value: str(value).upper()),
    ("pathlib", "PurePath", str),
    ("uuid", "UUID", str),
)


def container_kind(kind: type) -> Any:
    """Which of the built-in containers a type is; None if it is none, or an enum, whose value counts."""
    if issubclass(kind, Enum):
        return None
    return next((base for base in _CONTAINERS if issubclass(kind, base)), None)


def plain_container(value: Any) -> dict[Any, Any] | list[Any] | None:
    """The plain dict or list that `value` is in canonical JSON, one level deep; None if it is neither."""
    for _ in range(MAX_STEPS):
        kind = type(value)
        if kind is dict or kind is list:
            return value  # type: ignore[no-any-return]
        try:
            value = plain_step(value)
        except Exception:  # noqa: BLE001 - the value's own code ran; `canonical_json` will name it
            return None
        if type(value) is kind:  # a leaf: as plain as it gets
            return None
    return None

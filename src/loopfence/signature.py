"""What makes two calls the same call: canonical JSON of arguments, digests, signatures.

The form of a value is what `orjson` writes with sorted keys (UTF-8, compact). What orjson refuses but
JSON can say is spelled here, part by part with orjson's own spelling, so that the form depends on the
value alone and never on the way that it took.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from enum import Enum
from functools import lru_cache
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from xxhash import xxh3_64_hexdigest

from loopfence.errors import ArgsError, ConfigError
from loopfence.store.keys import encode_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DEPTH = 1000
"""Deepest nesting that has a form: what `orjson.loads` reads back (1024), rounded down."""

# Only exact str, int, float, bool, None, list, tuple and dict, enums and UUIDs are left to orjson: everything
# else comes to `_plain`, which the spelling below uses as well.
_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_SURROGATE = re.compile("([\ud800-\udfff])")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_type_name = type.__dict__["__name__"].__get__
"""A class's own name, whatever its metaclass says."""


def canonical_json(value: Any) -> str:
    """The one text of a JSON-like value: sorted keys, compact, UTF-8; the same on every worker.

    - Numbers and types stay apart: `1`, `1.0`, `true` and `"1"` are four forms; "é" composed and decomposed
      are two. NaN and the infinities are `NaN`, `Infinity`, `-Infinity`, apart from null and from text.
    - Tuples are lists; sets are lists sorted by the text of their items; subclasses are what they extend.
    - Pydantic models (`model_dump`) and dataclasses are objects of their fields, enums are their value,
      dates and times are ISO 8601 text, UUIDs, paths, URLs, time spans and Decimals are text, bytes are the
      text `bytes:<xxh3_64>`.
    - Keys that are no text are what JSON makes of them, so `{1: x}` and `{"1": x}` are equal.
    - Integers of any size and lone surrogates (`\\udXXX`) have a form; both are refused by orjson.

    Raises ArgsError, naming the path of the value, for anything else: an object without a form, two keys
    that are one in JSON, a value that holds itself, more than 1000 levels, an integer past 4300 digits.
    """
    return _canonical(value).decode()


def canonical_args(args: Any) -> str:
    """The canonical JSON of a call's arguments; None, no arguments at all, is `{}`."""
    return "{}" if args is None else canonical_json(args)


def default_key(tool: str, args: Any) -> tuple[str, str]:
    """What identifies a call: the tool's name and the canonical JSON of the arguments."""
    return tool, canonical_args(args)


def digest(text: str, secret: bytes | None = None) -> str:
    """16 lower-case hex digits: xxh3_64 of the UTF-8 text or, with a secret, keyed BLAKE2b (8 bytes).

    An empty secret is a ConfigError. A secret of more than 64 bytes is hashed to a key first.
    """
    return _digest(text.encode("utf-8", "surrogatepass"), secret)


def signature(tool: str, args: Any = None, *, secret: bytes | None = None) -> str:
    """`<tool>:<digest>`, equal for equal calls: the percent-encoded name and the digest of the arguments.

    Raises ConfigError for a tool that is empty, over 512 bytes or no text, ArgsError for the arguments.
    """
    name = encode_name("tool", tool)
    return f"{name}:{_digest(b'{}' if args is None else _canonical(args), secret)}"


def _digest(data: bytes, secret: bytes | None) -> str:
    if secret is None:
        return xxh3_64_hexdigest(data)
    if not secret:
        raise ConfigError("secret must not be empty")
    from hashlib import blake2b  # loads OpenSSL, which `import loopfence` does without

    key = secret if len(secret) <= blake2b.MAX_KEY_SIZE else blake2b(secret).digest()
    return blake2b(data, digest_size=8, key=key).hexdigest()


def _canonical(value: Any) -> bytes:
    try:
        text = orjson.dumps(value, _plain, _OPTIONS)
    except orjson.JSONEncodeError:
        return _spell(value).encode()
    # orjson writes NaN as null: where there is a null, it must be a None.
    if b"null" not in text or _surely_finite(value):
        return text
    return _spell(value).encode()


def _surely_finite(value: Any) -> bool:
    """Whether `value` is plain JSON without NaN and infinities; False also where this is not known."""
    todo: list[Any] = [[value]]
    for container in todo:
        for item in container.values() if type(container) is dict else container:
            kind = type(item)
            if kind is str or kind is int or item is None or kind is bool:
                continue
            if kind is dict or kind is list:
                todo.append(item)
            elif kind is not float or not isfinite(item):
                return False
    return True


def _plain(value: Any) -> Any:
    """One step from `value` towards plain JSON; TypeError if there is none. Never walks into it."""
    kind = type(value)  # and not isinstance, which asks the value itself
    if issubclass(kind, Enum):
        return value.value
    for base, convert in _CONVERT:
        if issubclass(kind, base):
            return convert(value)
    decimal = sys.modules.get("decimal")  # where it is not imported, there is no Decimal
    if decimal is not None and issubclass(kind, decimal.Decimal):
        return str(value).upper()  # a context may ask for a small "e"
    for name, arguments in _METHODS:
        method = getattr(kind, name, None)
        if method is not None:
            return method(value, **arguments)
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import fields

        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError


def _digest_of_bytes(value: bytes | bytearray) -> str:
    return "bytes:" + xxh3_64_hexdigest(value)


# The base's own method reads the value, whatever the subclass has made of it.
_CONVERT: tuple[tuple[Any, Any], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, lambda value: dict(dict.items(value))),
    (list, list.copy),
    (tuple, lambda value: list(tuple.__iter__(value))),
    ((dt.date, dt.time), lambda value: value.isoformat()),
    ((UUID, dt.timedelta), str),
    ((bytes, bytearray), _digest_of_bytes),
)
_METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("model_dump", {"mode": "python"}),  # Pydantic models
    ("__fspath__", {}),  # paths
    ("unicode_string", {}),  # Pydantic URLs
)


class _Open:
    """A container that is being spelled: what is left of it, and the texts of what is done."""

    __slots__ = ("done", "idents", "kind", "left", "step")

    def __init__(self, kind: type, left: Iterator[tuple[str, str, Any]], idents: list[int]) -> None:
        self.kind = kind
        self.left = left
        self.idents = idents
        self.done: list[str] = []
        self.step = ""

    def text(self) -> str:
        if self.kind is dict:
            return "{" + ",".join(self.done) + "}"
        if self.kind is set:
            self.done.sort()
        return "[" + ",".join(self.done) + "]"


def _spell(root: Any) -> str:
    """The form without orjson's limits; it keeps its own stack, so that no nesting can overflow one."""
    stack = [_Open(list, iter([("", "", root)]), [])]
    around: set[int] = set()
    while True:
        top = stack[-1]
        for step, prefix, item in top.left:
            top.step = step
            inner = _open(item, prefix, stack, around)
            if inner is not None:
                stack.append(inner)
                break
        else:
            around.difference_update(top.idents)
            stack.pop()
            if not stack:
                return top.done[0]
            stack[-1].done[-1] += top.text()


def _open(item: Any, prefix: str, stack: list[_Open], around: set[int]) -> _Open | None:
    """Spell a leaf, or begin a container (its prefix only)."""
    idents: list[int] = []
    value = item
    for _ in range(MAX_DEPTH):
        kind = type(value)
        if kind is str or value is None or kind is bool or kind is int or kind is float:
            stack[-1].done.append(prefix + _leaf(value, kind, stack))
            return None
        if id(value) in around:
            raise ArgsError(f"{_path(stack)}: the value holds itself")
        idents.append(id(value))
        if issubclass(kind, (dict, list, tuple, set, frozenset)) and not issubclass(kind, Enum):
            if len(stack) > MAX_DEPTH:
                break
            stack[-1].done.append(prefix)
            around.update(idents)
            return _enter(value, kind, idents, stack)
        try:
            value = _plain(value)
        except Exception as error:
            raise ArgsError(f"{_path(stack)}: {_type_name(kind)} has no canonical JSON") from error
    raise ArgsError(f"{_path(stack)}: nested more than {MAX_DEPTH} levels deep")


def _enter(value: Any, kind: type, idents: list[int], stack: list[_Open]) -> _Open:
    if issubclass(kind, dict):
        return _Open(dict, iter(_members(value, stack)), idents)
    if issubclass(kind, (set, frozenset)):
        base: Any = set if issubclass(kind, set) else frozenset
        return _Open(set, iter([("[*]", "", item) for item in base.__iter__(value)]), idents)
    base = list if issubclass(kind, list) else tuple
    return _Open(list, ((f"[{i}]", "", item) for i, item in enumerate(base.__iter__(value))), idents)


def _members(value: dict[Any, Any], stack: list[_Open]) -> list[tuple[str, str, Any]]:
    """The members in the order of their keys' text (by code point, which is the order of UTF-8 bytes)."""
    members: dict[str, Any] = {}
    for key, item in dict.items(value):
        name = key if type(key) is str else _key_text(key, stack)
        if name in members:
            raise ArgsError(f"{_path(stack)}: two keys are both {_string(name)} in JSON")
        members[name] = item
    return [
        (f".{name}" if _WORD(name) else f"[{_string(name)}]", _string(name) + ":", members[name])
        for name in sorted(members)
    ]


def _key_text(key: Any, stack: list[_Open]) -> str:
    value = key
    for _ in range(MAX_DEPTH):
        kind = type(value)
        if kind is str:
            return str(value)
        if value is None or kind is bool or kind is int or kind is float:
            return _leaf(value, kind, stack)
        if issubclass(kind, (dict, list, tuple, set, frozenset)) and not issubclass(kind, Enum):
            break
        try:
            value = _plain(value)
        except Exception:  # noqa: BLE001 - foreign code ran
            break
    raise ArgsError(f"{_path(stack)}: a key of type {_type_name(type(key))} has no canonical JSON")


def _leaf(value: Any, kind: type, stack: list[_Open]) -> str:
    if kind is str:
        return _string(value)
    if kind is float and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind is int:
        try:
            return int.__repr__(value)
        except ValueError as error:
            raise ArgsError(f"{_path(stack)}: the integer has too many digits for canonical JSON") from error
    return orjson.dumps(value).decode()


def _string(value: str) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        parts = _SURROGATE.split(value)
        return (
            '"'
            + "".join(
                f"\\u{ord(part):04x}" if _SURROGATE.fullmatch(part) else orjson.dumps(part)[1:-1].decode()
                for part in parts
            )
            + '"'
        )


def _path(stack: list[_Open]) -> str:
    path = "args" + "".join(frame.step for frame in stack)
    return path if len(path) <= 200 else f"{path[:100]}…{path[-100:]}"


def select_fields(args: Any, ignore: Sequence[str], only: Sequence[str]) -> Any:
    """A copy of `args` with `only` the named fields (all, if there are none) and without those to `ignore`.

    A field is a dotted path: `user.id`. A number or `*` goes into a list (`items.0.price`, `items.*.price`),
    `*` also stands for any key. A field that is not there is left alone; what is no object and no list
    is returned as it is, as is a list that no path of `only` goes into. The input is never changed.
    Pydantic models and dataclasses on the way become dictionaries. Raises ArgsError where that fails.
    """
    container = _container(args) if ignore or only else None
    if container is None:
        return args
    kept_paths = _steps(tuple(only))
    if type(container) is list:
        kept_paths = [path for path in kept_paths if path[0] == "*" or path[0].isdecimal()]
    kept = _keep(container, kept_paths) if kept_paths else container
    if kept is _NOTHING:
        kept = type(container)()
    return _drop(kept, _steps(tuple(ignore)))


_NOTHING: Any = object()
_Paths = list[tuple[str, ...]]


@lru_cache(maxsize=1024)
def _steps(fields: tuple[str, ...]) -> _Paths:
    return [tuple(field.split(".")) for field in fields]


def _below(paths: _Paths, name: str) -> _Paths:
    return [path[1:] for path in paths if path[0] in (name, "*")]


def _container(value: Any) -> Any:
    """`value` as a plain dict or list of its parts; None if it is neither."""
    for _ in range(MAX_DEPTH):
        kind = type(value)
        if kind is dict or kind is list:
            return value
        if kind in (str, int, float, bool, type(None)) or issubclass(kind, (set, frozenset)):
            return None
        try:
            value = _plain(value)
        except Exception:  # noqa: BLE001 - foreign code ran
            return None
    return None


def _parts(container: Any) -> Iterator[tuple[str, Any, Any]]:
    if type(container) is dict:
        return (
            (key if type(key) is str else _key_text(key, []), key, item) for key, item in container.items()
        )
    return ((str(i), i, item) for i, item in enumerate(container))


def _drop(value: Any, paths: _Paths) -> Any:
    container = _container(value) if paths else None
    if container is None:
        return value
    left: dict[Any, Any] = {}
    for name, key, item in _parts(container):
        below = _below(paths, name)
        if () not in below:
            left[key] = _drop(item, below)
    return left if type(container) is dict else list(left.values())


def _keep(value: Any, paths: _Paths) -> Any:
    container = _container(value)
    if container is None:
        return _NOTHING
    kept: dict[Any, Any] = {}
    for name, key, item in _parts(container):
        below = _below(paths, name)
        found = item if () in below else _keep(item, below) if below else _NOTHING
        if found is not _NOTHING:
            kept[key] = found
    if not kept:
        return _NOTHING
    return kept if type(container) is dict else list(kept.values())

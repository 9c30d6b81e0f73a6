"""What makes two calls the same call: the digest of their arguments, and the fields that count."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_hexdigest

from loopfence.canonical import canonical_bytes, canonical_json, key_text
from loopfence.errors import ConfigError
from loopfence.plain import plain_container
from loopfence.store.keys import encode_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["canonical_args", "canonical_json", "default_key", "digest", "select_fields", "signature"]

_Paths = list[tuple[str, ...]]
_NOTHING: Any = object()


def canonical_args(args: Any) -> str:
    """The canonical JSON of a call's arguments; None, no arguments at all, is `{}`."""
    return args_bytes(args).decode()


def args_bytes(args: Any) -> bytes:
    """`canonical_args` as UTF-8, which is what a digest takes."""
    return b"{}" if args is None else canonical_bytes(args)


def default_key(tool: str, args: Any) -> tuple[str, str]:
    """What identifies a call: the tool's name and the canonical JSON of the arguments."""
    return tool, canonical_args(args)


def digest(text: str, secret: bytes | None = None) -> str:
    """16 lower-case hex digits: xxh3_64 of the UTF-8 text or, with a secret, keyed BLAKE2b (8 bytes).

    A secret of more than 64 bytes is hashed to a key first; an empty one is a ConfigError.
    """
    return digest_bytes(text.encode("utf-8", "surrogatepass"), secret)


def signature(tool: str, args: Any = None, *, secret: bytes | None = None) -> str:
    """`<tool>:<digest>`, equal for equal calls: the percent-encoded name and the digest of the arguments.

    Raises ConfigError for a tool that is empty, over 512 bytes or no text, ArgsError for the arguments.
    """
    name = encode_name("tool", tool)
    # Not an f-string: that would ask an enum of names for its `__format__`.
    return name + ":" + digest_bytes(args_bytes(args), secret)


def digest_bytes(data: bytes, secret: bytes | None) -> str:
    """`digest` of a text that is UTF-8 already."""
    if secret is None:
        return xxh3_64_hexdigest(data)
    if not secret:
        raise ConfigError("secret must not be empty")
    from hashlib import blake2b  # loads OpenSSL, which `import loopfence` does without

    key = secret if len(secret) <= blake2b.MAX_KEY_SIZE else blake2b(secret).digest()
    return blake2b(data, digest_size=8, key=key).hexdigest()


def select_fields(args: Any, ignore: Sequence[str], only: Sequence[str]) -> Any:
    """`args` with the `only` fields alone (all, if none are named) and without the `ignore` fields.

    A field is a dotted path, `user.id`. A number or `*` goes into a list, `items.0.price` or
    `items.*.price`; `*` stands for any key of an object as well. A field that is not there changes nothing,
    and so does an `only` path that begins with a name where `args` is a list. What is neither an object nor
    a list comes back as it is. The input is never changed; models and dataclasses on a path become dicts.
    """
    container = plain_container(args) if ignore or only else None
    if container is None:
        return args
    kept = _entering(container, _steps(tuple(only)))
    selected = _keep(container, kept) if kept else container
    if selected is _NOTHING:
        return type(container)()
    return _drop(selected, _steps(tuple(ignore)))


@lru_cache(maxsize=1024)
def _steps(fields: tuple[str, ...]) -> _Paths:
    return [tuple(field.split(".")) for field in fields]


def _entering(container: dict[Any, Any] | list[Any], paths: _Paths) -> _Paths:
    """The paths that may go into a container: into a list by a number or `*` alone."""
    if isinstance(container, dict):
        return paths
    return [path for path in paths if path[0] == "*" or path[0].isdecimal()]


def _drop(value: Any, paths: _Paths) -> Any:
    container = plain_container(value) if paths else None
    if container is None or not _entering(container, paths):
        return value
    left: dict[Any, Any] = {}
    for key, item, below in _parts(container, paths):
        if () not in below:
            left[key] = _drop(item, below)
    return left if type(container) is dict else list(left.values())


def _keep(value: Any, paths: _Paths) -> Any:
    container = plain_container(value) if paths else None
    if container is None:
        return _NOTHING
    kept: dict[Any, Any] = {}
    for key, item, below in _parts(container, paths):
        found = item if () in below else _keep(item, below)
        if found is not _NOTHING:
            kept[key] = found
    if not kept:
        return _NOTHING
    return kept if type(container) is dict else list(kept.values())


def _parts(container: dict[Any, Any] | list[Any], paths: _Paths) -> Iterator[tuple[Any, Any, _Paths]]:
    """Every key or index with its item and with what is left of the paths that go through it."""
    for key, item in container.items() if isinstance(container, dict) else enumerate(container):
        name = key_text(key)
        yield key, item, [path[1:] for path in paths if path[0] in (name, "*")]

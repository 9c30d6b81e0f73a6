"""Key names and the encoding of untrusted names: what a reader sees in redis-cli."""

from __future__ import annotations

import re

from loopfence.errors import ConfigError

MAX_NAME_BYTES = 512
"""Longest session id or tool name, in UTF-8 bytes."""

_SAFE = "._:@/-"
_PLAIN = re.compile(r"[A-Za-z0-9._:@/-]+").fullmatch


def encode(name: str) -> str:
    """Percent-encode everything but `[A-Za-z0-9._:@/-]`; lone surrogates are encoded as they stand."""
    if _PLAIN(name):
        return name if type(name) is str else str.__str__(name)  # an enum writes its member's name into an f-string
    from urllib.parse import quote  # rarely needed, and slow to import

    # `quote` never encodes "~", which is outside of our alphabet.
    return quote(name, safe=_SAFE, errors="surrogatepass").replace("~", "%7E")


def decode(text: str) -> str:
    """Undo `encode`."""
    if "%" not in text:
        return text
    from urllib.parse import unquote

    return unquote(text, errors="surrogatepass")


def encode_name(field: str, name: str) -> str:
    """Check a session id or tool name and encode it; ConfigError names `field`."""
    if not isinstance(name, str):
        raise ConfigError(f"{field} must be a string (got {type(name).__name__})")
    if not name:
        raise ConfigError(f"{field} must not be empty")
    size = len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))
    if size > MAX_NAME_BYTES:
        raise ConfigError(f"{field} must be at most {MAX_NAME_BYTES} bytes of UTF-8 (got {size})")
    return encode(name)


def check_namespace(namespace: str) -> str:
    """Return `namespace` or raise ConfigError: it must be non-empty and hold none of `{}*?[]` and no backslash."""
    if not isinstance(namespace, str) or not namespace:
        raise ConfigError(f"namespace must be a non-empty string (got {namespace!r})")
    if any(sign in "{}*?[]\\" for sign in namespace):
        raise ConfigError(f"namespace must hold none of {{}}*?[]\\ (got {namespace!r})")
    return namespace


def session_keys(namespace: str, session: str) -> tuple[str, str, str, str]:
    """The keys of an encoded session, in the order that every script takes them: calls, counts, state, args."""
    stem = f"{namespace}:{{{session}}}:"
    return stem + "calls", stem + "counts", stem + "state", stem + "args"


def session_pattern(namespace: str) -> str:
    """The SCAN pattern that finds every session: by its calls, or its state where it was only halted."""
    return f"{namespace}:{{*}}:[cs][at]*"


def session_of(namespace: str, key: str) -> str | None:
    """The decoded session id of a key that `session_pattern` found; None for a key that is not ours."""
    stem, closing, kind = key[len(namespace) + 2 :].partition("}:")
    return decode(stem) if closing and kind in {"calls", "state"} else None

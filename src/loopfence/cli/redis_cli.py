"""The redis-cli command lines that show a session, made from the URL that loopfence was given."""

from __future__ import annotations

import shlex
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from loopfence.settings import resolve
from loopfence.store.keys import encode_name, session_keys

_LOCAL = ("localhost", "127.0.0.1")
_TLS_OPTIONS = {"ssl_ca_certs": "--cacert", "ssl_certfile": "--cert", "ssl_keyfile": "--key"}


class Recipe(NamedTuple):
    """One line for a shell, and what it is for."""

    purpose: str
    command: str


def session_recipes(url: str, session: str) -> list[Recipe]:
    """The lines, in order, that show the window of `session`, what repeats in it and how long it stays.

    They never hold a password: redis-cli takes that from the environment variable REDISCLI_AUTH.
    """
    settings = resolve(url, policy=None, given={})
    names = session_keys(settings.namespace, encode_name("session", session))
    calls, counts = shlex.quote(names[0]), shlex.quote(names[1])
    parts = urlsplit(settings.url)
    cli = shlex.join(["redis-cli", *_unix_or_tcp(parts), *_user_and_database(parts)])
    recipes = []
    if parts.scheme == "redis+sentinel":
        service = shlex.quote(parts.path.strip("/").partition("/")[0])
        ask = shlex.join(["redis-cli", *_address(parts, 26379)])
        recipes.append(Recipe("the master's address", f"set -- $({ask} sentinel get-master-addr-by-name {service})"))
        cli = cli.replace("redis-cli", 'redis-cli -h "$1" -p "$2"', 1)
    return [
        *recipes,
        Recipe(
            "the window, oldest first: call, then its time (in microseconds)",
            f"{cli} ZRANGE {calls} 0 -1 WITHSCORES",
        ),
        Recipe("equal calls in the window", f"{cli} HGETALL {counts}"),
        Recipe("seconds until the session is gone", f"{cli} TTL {calls}"),
    ]


def holds_password(url: str) -> bool:
    """Whether a password stands in the URL, which must then not be printed."""
    parts = urlsplit(url)
    in_query = any("password" in name for name in parse_qs(parts.query))
    return in_query or ":" in parts.netloc.rpartition("@")[0]


def _unix_or_tcp(parts: SplitResult) -> list[str]:
    if parts.scheme == "unix":
        return ["-s", unquote(parts.path)]
    if parts.scheme == "redis+sentinel":
        return []
    if parts.scheme == "redis+cluster":
        return ["-c", *_address(parts, 6379)]
    return [*_address(parts, 6379), *_tls(parts)]


def _address(parts: SplitResult, default_port: int) -> list[str]:
    """`-h` and `-p` of the first address in the URL, as far as they are not redis-cli's own defaults."""
    first = urlsplit("//" + parts.netloc.rpartition("@")[2].split(",")[0])
    host, port = first.hostname or "localhost", first.port or default_port
    return [*([] if host in _LOCAL else ["-h", host]), *([] if port == 6379 else ["-p", str(port)])]


def _tls(parts: SplitResult) -> list[str]:
    if parts.scheme != "rediss":
        return []
    query = parse_qs(parts.query)
    words = ["--tls"]
    for name, option in _TLS_OPTIONS.items():
        words += [option, query[name][-1]] if name in query else []
    return [*words, "--insecure"] if query.get("ssl_cert_reqs") == ["none"] else words


def _user_and_database(parts: SplitResult) -> list[str]:
    query = parse_qs(parts.query)
    user = unquote(parts.netloc.rpartition("@")[0].partition(":")[0])
    path = parts.path.strip("/")
    in_path = {"unix": "", "redis+sentinel": path.partition("/")[2]}.get(parts.scheme, path)
    database = query.get("db", [in_path])[-1]
    return [*(["--user", user] if user else []), *(["-n", database] if database not in {"", "0"} else [])]

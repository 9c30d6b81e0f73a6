"""What `loopfence doctor` looks at: each check gives findings, in words that say what to do."""

from __future__ import annotations

import secrets
import statistics
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import redis.exceptions

from loopfence.cli.opening import raising_guard
from loopfence.errors import StoreError
from loopfence.settings import Settings, resolve
from loopfence.store.connect import masters
from loopfence.store.faults import FAILURES, code_of, translate
from loopfence.store.keys import session_keys, session_of, session_pattern
from loopfence.store.scripts import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loopfence import LoopGuard

OLDEST = (6, 2)
PATIENCE = 2.0
"""Seconds that looking may take at each step: longer than a guard waits, so that a slow server is seen as slow."""
ROUND_TRIPS = 20
SKEW = 2.0
SLOTS = 16384
SAMPLE = 100
FULL = 0.9

Level = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    """One line of the report; `advice` says what to do, and is empty where all is well."""

    level: Level
    subject: str
    text: str
    advice: str = ""


def diagnose(url: str) -> list[Finding]:
    """Look at the server behind a guard's URL. Writes to one session of its own, which it removes.

    ConfigError where the URL is wrong; all that goes wrong with the server is a finding.
    """
    # As a guard would have it, and as long as looking may take.
    asked = resolve(url, policy=None, given={})
    patient = resolve(url, policy=None, given={"timeout": max(asked.timeout, PATIENCE)})
    findings: list[Finding] = []
    try:
        with masters(patient) as servers:
            for server in servers:
                findings += _server(server, several=len(servers) > 1)
                findings += _round_trip(server, asked.timeout)
                findings += _clock(server)
            if patient.url.startswith("redis+cluster://"):
                findings += _slots(servers)
            findings += _steps(url, patient)
            findings += _sessions(servers, patient)
    except FAILURES as error:
        failure = _failure("connection", translate(error, ""))
        known = failure.advice or "see that Redis runs and that the URL is right"
        findings.append(failure._replace(advice=known))
    return findings


def _server(server: Any, *, several: bool) -> Iterator[Finding]:
    try:
        info = server.info("all")
    except redis.exceptions.ResponseError as error:
        if code_of(error) != "NOPERM":
            raise
        yield Finding("warning", "server", "may not be looked at", "grant +info to see version, memory and role")
        return
    place = f" at {_place(server)}" if several else ""
    yield _version(info, place)
    yield from _memory(info, place)
    yield _role(info, place, in_cluster=several)


def _place(server: Any) -> str:
    options = server.connection_pool.connection_kwargs
    return f"{options.get('host')}:{options.get('port')}"


def _version(info: dict[str, Any], place: str) -> Finding:
    valkey = info.get("valkey_version")
    name, version = ("Valkey", valkey) if valkey else ("Redis", info.get("redis_version", "0"))
    number = tuple(int(part) for part in str(version).split(".")[:2] if part.isdigit())
    if number < OLDEST:
        return Finding("problem", "server", f"{name} {version}{place}", "loopfence needs Redis 6.2 or later, or Valkey")
    return Finding("ok", "server", f"{name} {version}{place}")


def _memory(info: dict[str, Any], place: str) -> Iterator[Finding]:
    most, used, policy = (info.get(name) for name in ("maxmemory", "used_memory", "maxmemory_policy"))
    if not most:
        yield Finding("ok", "memory", f"{_size(used or 0)} used, no limit{place}")
        return
    text = f"{_size(used or 0)} of {_size(most)} used, {policy}{place}"
    if policy != "noeviction":
        # A session key always has a TTL, so that a volatile-* policy takes it as well.
        advice = "this policy can evict live sessions: use noeviction, or a Redis of its own for the guard"
        yield Finding("warning", "memory", text, advice)
    elif used and used > FULL * most:
        yield Finding("warning", "memory", text, "when it is full, every call follows on_outage: raise maxmemory")
    else:
        yield Finding("ok", "memory", text)


def _role(info: dict[str, Any], place: str, *, in_cluster: bool) -> Finding:
    if info.get("role") == "slave":
        advice = "point the URL at the master, or use redis+sentinel:// or redis+cluster://"
        return Finding("problem", "role", f"a replica{place}, which refuses writes", advice)
    if info.get("cluster_enabled") and not in_cluster:
        advice = "use redis+cluster://, so that sessions of the other nodes are found"
        return Finding("problem", "role", f"one node of a cluster{place}", advice)
    return Finding("ok", "role", f"master with {info.get('connected_slaves', 0)} replicas{place}")


def _round_trip(server: Any, timeout: float) -> Iterator[Finding]:
    times = []
    for _ in range(ROUND_TRIPS):
        started = time.perf_counter()
        server.time()
        times.append(time.perf_counter() - started)
    median, longest = statistics.median(times), max(times)
    text = f"{median * 1000:.1f} ms, at most {longest * 1000:.1f} ms of {ROUND_TRIPS}"
    limit = f"a guard waits {timeout * 1000:.0f} ms"
    if median >= timeout:
        yield Finding("problem", "round trip", text, f"{limit}: raise timeout, or bring Redis nearer")
    elif longest >= timeout / 2:
        yield Finding("warning", "round trip", text, f"{limit}: raise timeout, or find out what slows Redis down")
    else:
        yield Finding("ok", "round trip", text)


def _clock(server: Any) -> Iterator[Finding]:
    started = time.time()
    seconds, micros = server.time()
    skew = seconds + micros / 1e6 - (started + time.time()) / 2
    if abs(skew) < SKEW:
        yield Finding("ok", "clock", f"{skew:+.1f} s from this machine's")
        return
    advice = "nothing for the guard, which goes by the server's clock alone; set it right for whoever reads times"
    yield Finding("warning", "clock", f"{skew:+.1f} s from this machine's", advice)


def _slots(servers: list[Any]) -> Iterator[Finding]:
    served = sum(last - first + 1 for first, last, *_ in servers[0].execute_command("CLUSTER", "SLOTS"))
    text = f"{served} of {SLOTS} slots served by {len(servers)} masters"
    if served == SLOTS:
        yield Finding("ok", "cluster", text)
    else:
        yield Finding("problem", "cluster", text, "sessions of the other slots follow on_outage: see CLUSTER INFO")


def _steps(url: str, settings: Settings) -> Iterator[Finding]:
    """Run every step of a guard on a session of its own, each with a guard of its own: one failure, one finding."""
    name = f"loopfence-doctor-{secrets.token_hex(8)}"
    steps: dict[str, Callable[[LoopGuard], Any]] = {
        "check": lambda guard: guard.session(name).check("doctor", call_id="1"),
        "peek": lambda guard: guard.session(name).peek("doctor"),
        "report": lambda guard: guard.session(name).report_call("doctor", None, call_id="1", result="fine"),
        "progress": lambda guard: guard.session(name).note_progress(),
        "halt": lambda guard: guard.session(name).halt("doctor"),
        "resume": lambda guard: guard.session(name).resume(),
        "snapshot": lambda guard: guard.session(name).snapshot(),
        "sessions": lambda guard: guard.tracked_sessions(),
        "reset": lambda guard: guard.session(name).reset(),
    }
    refused: dict[Finding, list[str]] = {}
    for step, run in steps.items():
        with raising_guard(url, timeout=settings.timeout, keep_args=True, ttl=60) as guard:
            try:
                run(guard)
            except StoreError as error:
                refused.setdefault(_failure("permissions", error), []).append(step)
    for failure, failed in refused.items():
        yield failure._replace(text=f"{', '.join(failed)}: {failure.text}")
    if not refused:
        yield Finding("ok", "permissions", f"every step runs: {', '.join(steps)}")


def _failure(subject: str, error: StoreError) -> Finding:
    return Finding("problem", subject, str(error).removesuffix(f": {error.advice}"), error.advice)


def _sessions(servers: list[Any], settings: Settings) -> Iterator[Finding]:
    try:
        yield _contents(servers, settings)
    except redis.exceptions.ResponseError as error:
        if code_of(error) != "NOPERM":
            raise
        yield Finding("warning", "sessions", "may not be looked at", "grant what the README's ACL line names")


def _contents(servers: list[Any], settings: Settings) -> Finding:
    names = {(server, name) for server in servers for name in _names(server, settings.namespace)}
    text = f"{len(names)} in namespace {settings.namespace}"
    sampled = list(names)[:SAMPLE]
    keys = [(server, key) for server, name in sampled for key in session_keys(settings.namespace, name)]
    weights = [_weight(server, key) for server, key in keys]
    if names and None not in weights:
        text += f", about {_size(sum(filter(None, weights)) * len(names) / len(sampled))}"
    untimed = sum(server.pttl(key) == -1 for server, key in keys)
    if untimed:
        advice = "a key without a TTL stays for ever, and loopfence wrote none: reset its session"
        return Finding("warning", "sessions", f"{text}; of {len(sampled)}, {untimed} keys have no TTL", advice)
    return Finding("ok", "sessions", text)


def _names(server: Any, namespace: str) -> Iterator[str]:
    """The sessions' names as they stand in the keys."""
    for key in server.scan_iter(match=session_pattern(namespace), count=1000):
        text = text_of(key)
        if session_of(namespace, text) is not None:
            yield text[len(namespace) + 2 :].partition("}:")[0]


def _weight(server: Any, key: str) -> int | None:
    """Bytes that a key takes, 0 where there is none; None where this user may not ask."""
    try:
        return server.memory_usage(key) or 0
    except redis.exceptions.ResponseError as error:
        if code_of(error) != "NOPERM":
            raise
        return None


def _size(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"

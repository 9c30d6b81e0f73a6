"""Anything as a session id, tool, argument, result, URL or key content: documented errors only, and the right slot."""

from __future__ import annotations

import contextlib
import string
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis.crc import key_slot

from loopfence import ArgsError, ConfigError, Level, LoopfenceError, LoopGuard, StoreError
from loopfence.store.keys import encode_name, session_keys

if TYPE_CHECKING:
    from servers import RedisServer

NAMES = st.text(st.characters(codec=None, categories=None), max_size=600) | st.text(max_size=10)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, categories=None), max_size=20)
    | st.binary(max_size=20)
    | st.dates()
    | st.uuids()
    | st.decimals()
    | st.sets(st.integers(), max_size=4)
    | st.builds(object)
    | st.just(iter(()))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=12,
)
SIGNATURE_LIKE = st.sampled_from(["search:0123456789abcdef", "search:0123456789abcdef c1", "a b c", "", " ", "x"])
FIELD_LIKE = st.sampled_from(
    ["version", "halted", "epoch", "epoch_by", "epoch_before", "sig:search:0", "tool:search", "call:x y"]
)
VALUE_LIKE = st.sampled_from(
    ["0", "1", "-1", "2", "1e400", "nan", "0 0 - 0", "1 1 x 1", "9" * 40, "1 search", "0 0 0 - 0"]
) | st.binary(max_size=12)


@pytest.fixture(scope="module")
def guard_of(request: pytest.FixtureRequest) -> Any:
    """One guard a server for a whole module: hypothesis runs a test body hundreds of times."""
    with contextlib.ExitStack() as stack:
        made: dict[str, LoopGuard] = {}

        def guard(server: RedisServer) -> LoopGuard:
            if server.url not in made:
                made[server.url] = stack.enter_context(
                    LoopGuard(server.url, on_outage="raise", timeout=5, keep_args=True, window=6, stop=5)
                )
            return made[server.url]

        yield guard


@settings(max_examples=300)
@given(session=NAMES, tool=NAMES, args=VALUES, call_id=NAMES | st.none(), result=VALUES)
@example(session="}", tool="{", args={}, call_id="{}", result=None)
@example(session="{x}", tool="a b\n\0", args=None, call_id="\0", result="\ud800")
@example(session="s" * 512, tool="t" * 512, args={"a": "b"}, call_id="c" * 600, result=b"")
@example(session="\ud800", tool="\U0001f501", args={"\ud800": 2**80}, call_id=" ", result=float("nan"))
def test_any_call_has_a_verdict_or_a_documented_error(
    newest_server: RedisServer, guard_of: Any, session: str, tool: str, args: Any, call_id: str | None, result: Any
) -> None:
    guard = guard_of(newest_server)
    try:
        run = guard.session(session)
        verdict = run.check(tool, args, call_id=call_id)
    except (ConfigError, ArgsError):
        return
    run.report(verdict, result=result)
    again = run.check(tool, args, call_id=call_id)
    assert again.duplicate is (call_id is not None)
    assert (again.signature, again.source) == (verdict.signature, "redis")
    assert guard.session(session).peek(tool, args).total == again.total + 1
    assert session in set(guard.sessions())
    run.reset()
    assert run.is_empty


@given(session=NAMES)
@example(session="}")
@example(session="{}")
@example(session="a}b{c")
def test_all_keys_of_any_session_share_a_slot(session: str) -> None:
    try:
        encoded = encode_name("session", session)
    except ConfigError:
        return
    assert len({key_slot(key.encode()) for key in session_keys("loopfence", encoded)}) == 1


URL_PARTS = st.text(string.ascii_letters + string.digits + ":/?#[]@!$&'()*+,;=%-._~ é\0", max_size=30)
SCHEMES = st.sampled_from(["memory", "redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "http", "", "REDIS"])
QUERIES = st.sampled_from(
    ["", "?window=5", "?window=x", "?window=1&threshold=9", "?timeout=-1", "?db=x", "?no_such=1", "?ttl=inf", "?="]
)


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(scheme=SCHEMES, rest=URL_PARTS, query=QUERIES)
@example(scheme="redis", rest="[::1", query="")
@example(scheme="redis", rest="h:99999/0", query="")
@example(scheme="redis+sentinel", rest="a:1,b:2", query="")
@example(scheme="redis+cluster", rest=",", query="")
def test_any_url_makes_a_guard_or_a_config_error(scheme: str, rest: str, query: str) -> None:
    """Making a guard does no I/O, so this needs no server."""
    with contextlib.suppress(ConfigError):
        LoopGuard(f"{scheme}://{rest}{query}").close()


def _write_garbage(server: RedisServer, kind: str, shape: str, entries: list[tuple[str, Any]]) -> None:
    key = f"loopfence:{{s}}:{kind}"
    server.admin.delete(key)
    for field, value in entries or [("x", "y")]:
        if shape == "string":
            server.admin.set(key, value)
        elif shape == "list":
            server.admin.rpush(key, value)
        elif shape == "set":
            server.admin.sadd(key, value)
        elif shape == "hash":
            server.admin.hset(key, field, value)
        else:
            server.admin.zadd(key, {field: float(len(str(value)))})
    server.admin.expire(key, 60)


@settings(max_examples=300)
@given(
    kind=st.sampled_from(["calls", "counts", "state", "args"]),
    shape=st.sampled_from(["string", "list", "set", "hash", "hash", "hash", "zset", "zset"]),
    entries=st.lists(st.tuples(SIGNATURE_LIKE | FIELD_LIKE, VALUE_LIKE), max_size=6),
    damaged=st.booleans(),
)
def test_any_content_of_a_key_gives_a_verdict_or_a_store_error(
    redis_server: RedisServer, guard_of: Any, kind: str, shape: str, entries: list[Any], damaged: bool
) -> None:
    session = guard_of(redis_server).session("s")
    session.reset()
    if damaged:  # a good session that somebody wrote into
        for number in range(6):
            session.report(session.check("search", {"q": number % 2}), result=number)
    _write_garbage(redis_server, kind, shape, entries)
    verdicts = []
    for attempt in (
        lambda: session.peek("search", {"q": 1}),
        lambda: session.check("search", {"q": 1}),
        lambda: session.check("search", {"q": 1}, call_id="x"),
        lambda: session.snapshot(),
        lambda: session.report_call("search", {"q": 1}, call_id="x", result=1),
        lambda: session.note_progress(),
        lambda: session.recent_keys(),
        lambda: session.halt("operator"),
        lambda: session.resume(),
    ):
        with contextlib.suppress(StoreError):
            verdicts.append(attempt())
    assert list(redis_server.untimed_keys()) == []
    session.reset()
    fresh = session.check("search", {"q": 1})
    assert (fresh.count, fresh.total, fresh.size, fresh.level) == (1, 1, 1, Level.ALLOW)


def test_every_error_is_one_of_ours() -> None:
    assert all(issubclass(kind, LoopfenceError) for kind in (ArgsError, ConfigError, StoreError))

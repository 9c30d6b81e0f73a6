"""The Lua steps as a server sees them: declared keys, plain commands, EVALSHA then EVAL, whatever client sends them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from counting import EDIT, OTHER, SEARCH, call, counts
from redis.crc import key_slot

from loopfence import LoopGuard, ToolRule
from loopfence.store.scripts import CONTROL, PEEK, RECORD, REPORT, SNAPSHOT

if TYPE_CHECKING:
    from loopfence import Session
    from servers import RedisServer

LUA = Path(__file__).parents[2] / "lua"
SCRIPTS = (RECORD, PEEK, REPORT, CONTROL, SNAPSHOT)
COMMANDS = {
    *("TIME", "EXISTS", "DEL", "PEXPIRE", "PTTL"),
    *("HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HLEN", "HMGET", "HSET"),
    *("ZADD", "ZCARD", "ZCOUNT", "ZPOPMIN", "ZRANGE", "ZRANGEBYSCORE", "ZREMRANGEBYSCORE", "ZSCORE"),
}
TOOLS = {"edit": ToolRule(progress=True), "poll": ToolRule(pace=1e-6), "think": ToolRule(exempt=True, progress=True)}


def live(session: Session) -> list[Any]:
    """A life in which every step of every script happens; what was said of it."""
    said: list[Any] = [session.check(*SEARCH, call_id=number).count for number in "1121"]
    for named in (SEARCH, EDIT, ("poll", None), ("think", None), ("poll", None), OTHER, SEARCH, EDIT):
        said += [call(session, named, result=result, ok=ok).count for result, ok in (("one", True), ("two", False))]
    session.note_progress()
    said += [session.peek(*SEARCH).count, session.would_raise(*OTHER), len(session), session.is_looping()]
    session.halt("enough")
    said.append(session.check(*SEARCH).halted)
    session.resume()
    said += counts(session, *[OTHER] * 4)
    said += [session.snapshot().halted, len(session.recent_keys())]
    session.reset()
    return [*said, session.is_empty]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    guard = LoopGuard("memory://", window=4, threshold=2, stop=3, enforce=True, max_age=60, tools=TOOLS)
    return live(guard.session("run"))


def guard_on(server: RedisServer, **options: Any) -> LoopGuard:
    where = {} if "client" in options else {"url": server.url}
    options = {"timeout": 10, "on_outage": "raise", **where, **options}
    return LoopGuard(window=4, threshold=2, stop=3, max_age=60, tools=TOOLS, keep_args=True, **options)


def test_scripts_touch_the_keys_that_they_declare_and_no_others(redis_server: RedisServer) -> None:
    with guard_on(redis_server) as guard, redis_server.connect().monitor() as monitor:
        live(guard.session("a}b"))
        redis_server.admin.echo("the end")
        seen = []
        while (sent := monitor.next_command())["command"] != "ECHO the end":
            if sent["client_type"] == "lua":
                seen.append(sent["command"].split(" "))
    declared = {f"loopfence:{{a%7Db}}:{kind}" for kind in ("calls", "counts", "state", "args")}
    assert {words[0] for words in seen} <= COMMANDS
    assert {words[1] for words in seen if words[0] != "TIME"} == declared
    assert {frozenset(words[1:]) for words in seen if words[0] == "DEL"} == {frozenset(declared)}
    assert len({key_slot(key.encode()) for key in declared}) == 1


def test_scripts_make_no_global_and_know_no_clock_but_the_servers(redis_server: RedisServer) -> None:
    # A server refuses a script that makes a global, or that reads one which is not there, when it gets there:
    # `live` goes through every branch but those that take an error back.
    with guard_on(redis_server) as guard:
        live(guard.session("run"))
    for path in LUA.glob("*.lua"):
        text = re.sub(r"--.*", "", path.read_text("utf-8"))
        assert not re.search(
            r"^\s*function |\b_G\b|setmetatable|loadstring|\bos\.|math\.random|'(KEYS|SCAN|EVAL)'", text
        )


@pytest.mark.parametrize("path", sorted(LUA.glob("*.lua")), ids=lambda path: path.name)
def test_every_script_opens_with_its_contract(path: Path) -> None:
    head = path.read_text("utf-8").split("\n\n")[0]
    assert head.startswith(f"-- {path.name}: ")
    wanted = ("KEYS",) if path.name == "session.lua" else ("KEYS", "ARGV", "Reply", "Cost")
    for word in wanted:
        assert re.search(rf"^-- {word}\b", head, re.MULTILINE), word


def test_a_server_that_forgets_its_scripts_is_told_them_again(redis_server: RedisServer, expected: list[Any]) -> None:
    with guard_on(redis_server) as guard:
        session = guard.session("run")
        said: list[Any] = []
        for name in ("check", "check", "peek"):
            redis_server.admin.script_flush()
            said.append(getattr(session, name)(*SEARCH).count)
        verdict = session.check(*OTHER)
        for step in (
            lambda: session.report(verdict, result=1),
            session.note_progress,
            lambda: session.halt("enough"),
            session.resume,
        ):
            redis_server.admin.script_flush()
            step()
        redis_server.admin.script_flush()
        snapshot = session.snapshot()
        redis_server.admin.script_flush()
        session.reset()
    assert said == [1, 2, 3]
    assert (len(snapshot.calls), snapshot.calls[2].reported, snapshot.halted) == (3, True, None)
    assert guard_on(redis_server).session("run").is_empty


def test_scripts_are_sent_by_their_digest_once_the_server_knows_them(redis_server: RedisServer) -> None:
    with guard_on(redis_server) as guard:
        live(guard.session("run"))
        redis_server.admin.config_resetstat()
        live(guard.session("run"))
        stats = redis_server.admin.info("commandstats")
    assert "cmdstat_eval" not in stats
    assert stats["cmdstat_evalsha"]["calls"] > 30
    assert len({script.sha for script in SCRIPTS}) == len(SCRIPTS)


def test_scores_rise_though_the_servers_clock_steps_back(redis_server: RedisServer) -> None:
    calls, admin = "loopfence:{run}:calls", redis_server.connect(decode_responses=True)
    with LoopGuard(redis_server.url, window=3, timeout=10, on_outage="raise") as guard:
        session = guard.session("run")
        session.check("first")
        (first, now), *_ = admin.zrange(calls, 0, -1, withscores=True)
        later = now + 3_600_000_000
        admin.zadd(calls, {first: later})
        for tool in ("second", "third", "fourth"):
            session.check(tool)
        held = [(member.split(":")[0], score - later) for member, score in admin.zrange(calls, 0, -1, withscores=True)]
    assert held == [("second", 1), ("third", 2), ("fourth", 3)]


@pytest.mark.parametrize("forgotten", [(), ("record",), ("report",), ("record", "report")])
def test_steps_that_build_on_each_other_keep_their_order_on_a_server_without_the_scripts(
    redis_server: RedisServer, forgotten: tuple[str, ...]
) -> None:
    admin = redis_server.connect()
    admin.script_flush()
    for script in (RECORD, REPORT):
        if script.name not in forgotten:
            admin.script_load(script.text)
    with LoopGuard(redis_server.url, timeout=10, on_outage="raise", tools=TOOLS) as guard:
        engine, session = guard._engine, guard.session("run")
        edit, search = (engine.ask(session._named, *named, None) for named in (EDIT, SEARCH))
        reports = [engine.outcome(question, "done", ok=True) for question in (edit, search)]
        tallies = guard._store.run([edit.call, reports[0], search.call, reports[1], search.call])
        # An edit reported after the search would have discounted it.
        assert [tally and tally.repeats for tally in tallies] == [1, None, 1, None, 1]
        assert session.check(*SEARCH).count == 2


@pytest.mark.parametrize("decode_responses", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_users_own_client_is_taken_as_it_is(
    redis_server: RedisServer, expected: list[Any], protocol: int, decode_responses: bool
) -> None:
    with redis_server.connect(protocol=protocol, decode_responses=decode_responses) as client:
        guard = guard_on(redis_server, client=client)
        assert live(guard.session("run")) == expected
        counts(guard.session("é"), SEARCH)
        assert list(guard.sessions()) == ["é"]
        guard.close()
        assert client.ping()


def test_a_client_that_the_guard_made_says_the_same(redis_server: RedisServer, expected: list[Any]) -> None:
    for url in (redis_server.url, redis_server.unix_url):
        with guard_on(redis_server, url=url) as guard:
            assert live(guard.session("run")) == expected


def test_a_guard_keeps_to_the_database_of_its_url(redis_server: RedisServer) -> None:
    for url in (redis_server.url, redis_server.url.replace("/0", "/3")):
        with guard_on(redis_server, url=url) as guard:
            assert counts(guard.session("run"), SEARCH) == [1]
    with redis.Redis.from_url(redis_server.url.replace("/0", "/3")) as client:
        assert client.exists("loopfence:{run}:calls") == 1

"""Least privilege, locked-down and managed services, TLS and passwords: what the guard's user may do is enough."""

from __future__ import annotations

import logging
import re
import shlex
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from ledger import TIMEOUT, Ledger

from loopfence import ConfigError, Level, StoreError, StoreUnavailableError
from servers import RedisServer, find_binaries, free_port, start_tls_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flavour import Flavour

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hunter2-s3cret"
KINDS = ("calls", "counts", "state", "args")
# what the client sends for a database other than 0
CONNECTING = {"select"}


def acl_line() -> list[str]:
    """The words of the README's ACL SETUSER line."""
    found = re.search(r"^(?:redis-cli )?ACL SETUSER .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert found, "the README shows no ACL SETUSER line"
    return shlex.split(found.group().removeprefix("redis-cli "))


def granted() -> set[str]:
    """The commands that the README's line grants, in small letters."""
    return {word[1:].lower() for word in acl_line() if word.startswith("+")}


def add_user(server: RedisServer, *more: str) -> str:
    """Make the README's user, with further rules; the URL that logs in as it."""
    _, _, name, *rules = acl_line()
    rules = [rule for rule in rules if not rule.startswith((">", "nopass"))]
    server.admin.execute_command("ACL", "SETUSER", name, "reset", *rules, f">{SECRET}", *more)
    return f"redis://{name}:{SECRET}@127.0.0.1:{server.port}/0"


def use_everything(make: Callable[..., Any]) -> None:
    """Every method, every branch of every script: a full window, ages, paces, reports, progress, halts."""
    guard = make(**EVERYTHING, keep_args=True)
    session = guard.session("s")
    for number in range(8):
        verdict = session.check("search", {"q": number % 2})
        session.report(verdict, result=number, ok=number % 3 > 0)
    session.check("search", {"q": 1}, call_id="twice")
    session.check("search", {"q": 1}, call_id="twice")
    session.check("wait")
    session.check("wait")
    time.sleep(EVERYTHING["max_age"])
    plain = make(**EVERYTHING, keep_args=False).session("s")
    for number in range(9):  # four kept, four that a worker lets go which keeps none, one kept
        (plain if 4 <= number < 8 else session).check("search", {"q": 10 + number})
    session.check("free")
    session.report(session.check("edit"), result="ok")
    session.report_call("search", {"q": 1}, call_id="twice", result="late")
    session.note_progress()
    session.peek("search", {"q": 1})
    session.halt("operator")
    assert session.check("search").level is Level.STOP
    session.resume()
    session.snapshot()
    assert list(guard.sessions()) == ["s"]
    session.reset()


EVERYTHING: dict[str, Any] = {
    "window": 4,
    "threshold": 3,
    "stop": 4,
    "max_age": 0.2,
    "tools": {"wait": {"pace": 0.001}, "edit": {"progress": True}, "free": {"exempt": True}},
}


def test_the_readmes_user_can_do_all_and_nothing_else(flavour: Flavour, redis_server: RedisServer) -> None:
    url = add_user(redis_server)
    use_everything(partial(flavour.guard, url, on_outage="raise", timeout=5))
    with redis.Redis.from_url(url) as client:
        for command in (("GET", "loopfence:x"), ("SCRIPT", "LOAD", "return 1"), ("KEYS", "*"), ("FLUSHALL",)):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("ZCARD", "elsewhere")


def test_the_readmes_line_names_what_the_scripts_use_and_no_more() -> None:
    lua = "\n".join(path.read_text() for path in (ROOT / "lua").glob("*.lua"))
    used = {name.lower() for name in re.findall(r"\bp?call\('([A-Z]+)'", lua)}
    assert granted() - CONNECTING == used | {"eval", "evalsha", "scan"}
    assert not any(re.match(r"[+](@|script|keys)", word, re.IGNORECASE) for word in acl_line())
    assert [word for word in acl_line() if word[0] in "~%"] == ["~loopfence:*"]


@pytest.mark.parametrize("command", sorted(granted() - CONNECTING - {"zrem"}) if (ROOT / "README.md").exists() else [])
def test_a_missing_command_is_a_store_error_and_leaves_nothing(
    command: str, flavour: Flavour, newest_server: RedisServer, ledger: Ledger
) -> None:
    url = add_user(newest_server, f"-{command}")
    ledger.injected("command not permitted")
    if command == "eval":
        newest_server.admin.script_flush()
    with pytest.raises(StoreError) as refusal:
        use_everything(partial(flavour.guard, url, on_outage="raise", timeout=5))
    assert f"'{command}' command" in str(refusal.value)
    assert "README's ACL line" in str(refusal.value)
    assert list(newest_server.untimed_keys()) == []


def test_missing_permissions_follow_on_outage_with_one_line(
    flavour: Flavour, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    session = flavour.guard(add_user(redis_server, "-zadd"), timeout=TIMEOUT).session("s")
    for number in range(1, 11):
        verdict = session.check("search", {"q": 1})
        assert (verdict.degraded, verdict.source, verdict.count) == (True, "local", number)
        session.report(verdict, result="x")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "README's ACL line" in caplog.text
    assert redis_server.admin.dbsize() == 0
    add_user(redis_server, "+zadd")


@pytest.mark.parametrize("on_outage", ["local", "allow", "block", "raise"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_corrupt_key_follows_on_outage_and_spares_other_sessions(
    kind: str, on_outage: str, flavour: Flavour, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    guard = flavour.guard(redis_server.url, timeout=TIMEOUT, keep_args=True, on_outage=on_outage, window=5)
    sick, well = guard.session("sick"), guard.session("well")
    key = f"loopfence:{{sick}}:{kind}"
    redis_server.admin.set(key, "no window", ex=60)
    for number in range(1, 4):
        if on_outage == "raise":
            with pytest.raises(StoreError, match="sick"):
                sick.check("search", {"q": 1})
        else:
            verdict = sick.check("search", {"q": 1})
            assert verdict.degraded
            assert verdict.level is (Level.BLOCK if on_outage == "block" or number == 3 else Level.ALLOW) or (
                on_outage == "allow" and verdict.level is Level.ALLOW
            )
        assert (well.check("search", {"q": number}).source, well.peek("search").degraded) == ("redis", False)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "loopfence:{sick}:" in caplog.text
    assert "reset" in caplog.text
    sick.reset()
    assert sick.check("search", {"q": 1}).source == "redis"


def test_no_script_command_is_needed(flavour: Flavour, start_server: Callable[..., RedisServer]) -> None:
    server = start_server('rename-command SCRIPT ""')
    use_everything(partial(flavour.guard, server.url, on_outage="raise", timeout=5))


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with start_tls_server(tmp_path_factory.mktemp("tls"), password=SECRET) as server:
        yield server


def test_tls_with_a_password(flavour: Flavour, tls_server: RedisServer) -> None:
    session = flavour.guard(tls_server.url, on_outage="raise", timeout=5).session("s")
    assert [session.check("search").count for _ in range(2)] == [1, 2]


# asyncio closes the transport of a failed TLS handshake after the call, and at times after the loop
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_certificate_that_nobody_vouches_for_is_an_outage(flavour: Flavour, tls_server: RedisServer) -> None:
    session = flavour.guard(tls_server.url.partition("?")[0], timeout=5).session("s")
    assert session.check("search").degraded


def test_missing_certificates_are_a_config_error(flavour: Flavour) -> None:
    with pytest.raises(ConfigError, match="TLS files"):
        flavour.guard("rediss://localhost:6379/0?ssl_ca_certs=/no/such/file")


def test_a_silent_tls_server_takes_no_longer_than_the_timeout(
    flavour: Flavour, tls_server: RedisServer, ledger: Ledger
) -> None:
    session = flavour.guard(tls_server.url, timeout=TIMEOUT).session("s")
    tls_server.freeze()
    try:
        ledger.injected("TLS server frozen")
        with ledger.bounded("TLS server frozen"):
            assert session.check("search").degraded
    finally:
        tls_server.thaw()


def _broken_urls(server: RedisServer, tls: RedisServer) -> list[str]:
    closed = free_port()
    return [
        f"redis://user:{SECRET}@127.0.0.1:{closed}/0",
        f"redis://user:{SECRET}@127.0.0.1:{server.port}/0",
        f"redis://user:{SECRET}@127.0.0.1:{server.port}/99999",
        f"redis://user:{SECRET}@127.0.0.1:notaport/0",
        f"redis://user:{SECRET}@127.0.0.1:{server.port}/0?no_such_field=1",
        f"redis://user:{SECRET}@127.0.0.1:{server.port}/0?socket_timeout=soon",
        f"redis://user:{SECRET}@127.0.0.1:{server.port}/0?window=1",
        f"rediss://user:{SECRET}@127.0.0.1:{tls.port}/0",
        f"rediss://user:{SECRET}@127.0.0.1:{server.port}/0",
        f"redis+cluster://user:{SECRET}@127.0.0.1:{closed}",
        f"redis+cluster://user:{SECRET}@127.0.0.1:{server.port}",
        f"redis+cluster://user:{SECRET}@",
        f"redis+cluster://:{SECRET}",
        f"redis+sentinel://user:{SECRET}/loops",
        f"redis+sentinel://user:{SECRET}@127.0.0.1:{closed}/loops/0",
        f"redis+sentinel://user:{SECRET}@127.0.0.1:{server.port}",
        f"unix://user:{SECRET}@/no/such/socket",
        f"http://user:{SECRET}@127.0.0.1",
        f"://user:{SECRET}@127.0.0.1",
        f"redis://user:{SECRET}@[::1",
    ]


@pytest.mark.parametrize("on_outage", ["local", "raise"])
def test_a_password_never_shows(
    on_outage: str,
    flavour: Flavour,
    newest_server: RedisServer,
    tls_server: RedisServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="loopfence")
    shown = []
    outcomes = set()
    for url in _broken_urls(newest_server, tls_server):
        try:
            guard = flavour.guard(url, on_outage=on_outage, timeout=TIMEOUT)
            session = guard.session("s")
            shown += [repr(guard), str(guard), repr(session), repr(guard.policy)]
            verdict = session.check("search")
            shown.append(repr(verdict))
            outcomes.add(verdict.degraded)
        except (ConfigError, StoreError) as error:
            shown += [repr(error), "".join(traceback.format_exception(error))]
            outcomes.add(type(error))
    assert outcomes >= ({True, ConfigError} if on_outage == "local" else {StoreUnavailableError, ConfigError})
    shown += [record.getMessage() for record in caplog.records]
    assert [text for text in shown if SECRET in text] == []


def test_only_old_features_of_eval_are_used() -> None:
    """Redis 6.2 runs every script: it is in the list of servers that all store tests run over, where installed."""
    lua = "\n".join(path.read_text() for path in (ROOT / "lua").glob("*.lua"))
    assert not re.search(r"#!lua|redis\.(setresp|acl_check_cmd|register_function|REDIS_VERSION)", lua)
    assert set(re.findall(r"redis\.(\w+)", lua)) <= {"call", "pcall", "error_reply", "status_reply"}
    assert find_binaries()

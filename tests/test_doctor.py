"""`loopfence doctor` on real servers, well and ill: each line says what is, and what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loopfence import ConfigError, LoopGuard
from loopfence.cli.diagnosis import Finding, diagnose
from proxy import Proxy
from servers import Cluster, RedisServer, SentinelSetup, find_binaries, free_port, start_tls_server

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_OK = ["server", "memory", "role", "round trip", "clock", "permissions", "sessions"]


def lines(url: str, level: str) -> dict[str, Finding]:
    """The findings of one level, by subject."""
    return {finding.subject: finding for finding in diagnose(url) if finding.level == level}


def test_a_healthy_server_has_no_advice(redis_server: RedisServer) -> None:
    findings = diagnose(redis_server.url + "?timeout=5")
    assert [finding.subject for finding in findings] == ALL_OK
    assert {(finding.level, finding.advice) for finding in findings} == {("ok", "")}
    assert findings[0].text == redis_server.binary.name.replace("-", " ").capitalize()
    assert findings[-1].text == "0 in namespace loopfence"
    assert redis_server.admin.dbsize() == 0, "it cleans up behind itself"


def test_sessions_are_counted_and_weighed(newest_server: RedisServer) -> None:
    with LoopGuard(newest_server.url, timeout=5) as guard:
        for number in range(150):
            guard.session(f"s{number}").check("search")
        guard.session("only halted").halt("operator")
    text = lines(newest_server.url, "ok")["sessions"].text
    assert text.startswith("151 in namespace loopfence, about ")
    assert text.endswith(" KB")
    assert float(text.split()[-2]) > 10


def test_another_namespace_is_another_count(newest_server: RedisServer) -> None:
    with LoopGuard(newest_server.url, timeout=5) as guard:
        guard.session("s").check("search")
    found = lines(newest_server.url + "?namespace=other", "ok")["sessions"]
    assert found.text == "0 in namespace other"


def test_a_closed_port_is_a_problem() -> None:
    (finding,) = diagnose(f"redis://127.0.0.1:{free_port()}/0")
    assert (finding.level, finding.subject) == ("problem", "connection")
    assert "unavailable" in finding.text
    assert finding.advice == "see that Redis runs and that the URL is right"


def test_a_silent_server_is_a_problem(start_server: Callable[..., RedisServer]) -> None:
    server = start_server()
    server.freeze()
    (finding,) = diagnose(server.url)
    assert (finding.level, finding.subject) == ("problem", "connection")


def test_a_wrong_password_is_a_problem_and_stays_secret(start_server: Callable[..., RedisServer]) -> None:
    server = start_server(password="right")
    (finding,) = diagnose(f"redis://:wr0ng@127.0.0.1:{server.port}/0")
    assert (finding.level, finding.advice) == ("problem", "check user and password in the URL")
    assert "wr0ng" not in repr(finding)


def test_a_server_too_far_away_for_the_timeout(newest_server: RedisServer) -> None:
    with Proxy(newest_server.address) as proxy:
        proxy.inject("delay", times=None, on=b"TIME", seconds=0.02)
        finding = lines(f"{proxy.url}?timeout=0.01", "problem")["round trip"]
        assert "a guard waits 10 ms" in finding.advice
        finding = lines(f"{proxy.url}?timeout=0.03", "warning")["round trip"]
        assert "a guard waits 30 ms" in finding.advice


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_policy_that_evicts_sessions_is_a_warning(policy: str, start_server: Callable[..., RedisServer]) -> None:
    server = start_server("maxmemory 100mb", f"maxmemory-policy {policy}")
    finding = lines(server.url, "warning")["memory"]
    assert finding.text.endswith(f"of 100.0 MB used, {policy}")
    assert "evict live sessions" in finding.advice


def test_a_memory_that_is_nearly_full_is_a_warning(start_server: Callable[..., RedisServer]) -> None:
    server = start_server()
    server.admin.config_set("maxmemory", int(server.admin.info("memory")["used_memory"] * 1.05))
    assert "raise maxmemory" in lines(server.url, "warning")["memory"].advice


def test_a_full_memory_is_a_problem_of_the_steps(start_server: Callable[..., RedisServer]) -> None:
    server = start_server("maxmemory 1", "maxmemory-policy noeviction")
    finding = lines(server.url, "problem")["permissions"]
    assert finding.text.startswith("check, ")
    assert "raise maxmemory" in finding.advice


def test_a_replica_is_a_problem(start_server: Callable[..., RedisServer]) -> None:
    server = start_server()
    server.admin.replicaof("127.0.0.1", free_port())
    found = lines(server.url, "problem")
    assert found["role"].text == "a replica, which refuses writes"
    assert "redis+sentinel://" in found["permissions"].advice


def test_a_user_without_permissions_is_told_which(newest_server: RedisServer) -> None:
    rules = [
        "on",
        ">secret",
        "resetkeys",
        "~loopfence:*",
        "-@all",
        "+evalsha",
        "+eval",
        "+scan",
        "+time",
        "+pttl",
        "+zadd",
    ]
    newest_server.admin.execute_command("ACL SETUSER", "few", "reset", *rules)
    url = f"redis://few:secret@127.0.0.1:{newest_server.port}/0"
    found = lines(url, "problem")
    assert list(found) == ["permissions"]
    assert "README's ACL line" in found["permissions"].advice
    assert lines(url, "warning")["server"].advice == "grant +info to see version, memory and role"
    assert [key for key in newest_server.admin.scan_iter() if newest_server.admin.ttl(key) == -1] == []
    newest_server.flush()


def test_keys_without_a_ttl_are_a_warning(newest_server: RedisServer) -> None:
    newest_server.admin.zadd("loopfence:{by hand}:calls", {"search:0 1": 1})
    finding = lines(newest_server.url, "warning")["sessions"]
    assert "1 keys have no TTL" in finding.text
    newest_server.flush()


def test_a_cluster_is_seen_whole_and_one_of_its_nodes_is_not_enough() -> None:
    with Cluster(find_binaries()[-1]) as cluster:
        findings = diagnose(cluster.url)
        assert {finding.level for finding in findings} == {"ok"}
        assert [f.text for f in findings if f.subject == "cluster"] == ["16384 of 16384 slots served by 3 masters"]
        assert "redis+cluster://" in lines(cluster.nodes[0].url, "problem")["role"].advice


def test_sentinel_and_tls_are_looked_at_like_any_other(tmp_path: Path) -> None:
    with SentinelSetup(find_binaries()[-1]) as setup:
        assert lines(setup.url, "ok")["role"].text == "master with 1 replicas"
    with start_tls_server(tmp_path, password="secret") as server:
        assert list(lines(server.url, "ok")) == ALL_OK


def test_the_clock_is_compared(newest_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    now = time.time()
    monkeypatch.setattr("loopfence.cli.diagnosis.time.time", lambda: now - 3600)
    finding = lines(newest_server.url, "warning")["clock"]
    assert finding.text.startswith("+36")
    assert "the server's clock alone" in finding.advice


def test_a_bad_url_is_a_config_error() -> None:
    with pytest.raises(ConfigError):
        diagnose("redis://localhost:6379/0?window=1")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("loopfence")
    environment = {name: value for name, value in os.environ.items() if name != "LOOPFENCE_URL"}
    return subprocess.run(
        [command, "doctor", *words], capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def test_the_command_prints_a_line_each_and_exits_0(newest_server: RedisServer) -> None:
    done = run("--url", newest_server.url + "?timeout=5")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines() if line[0] != " "] == ["ok"] * len(ALL_OK)


def test_the_command_exits_1_on_a_problem_and_prints_json() -> None:
    done = run("--json", "--url", f"redis://127.0.0.1:{free_port()}/0")
    assert (done.returncode, done.stderr) == (1, "")
    assert [finding["subject"] for finding in json.loads(done.stdout)] == ["connection"]


def test_the_command_without_a_server_exits_2() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "--url" in done.stderr

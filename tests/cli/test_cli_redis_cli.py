"""The redis-cli lines that the demo prints: pasted into a shell they show the session, whatever the URL's form."""

import subprocess

import pytest
from command import environment

from loopfence import LoopGuard
from loopfence.cli.redis_cli import holds_password, session_recipes
from servers import Cluster, SentinelSetup, find_redis_cli, start_tls_server
from servers.binaries import newest_binary

SESSION = "run 7/{é}"
NAMED = "'loopfence:{run%207/%7B%C3%A9%7D}:calls'"


@pytest.fixture
def redis_cli(tmp_path):
    """A folder for PATH that holds a redis-cli, under this name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "redis-cli").symlink_to(find_redis_cli())
    return folder


def shows_the_session(redis_cli, url, **env):
    """Make three calls over `url`, paste the lines, compare what they print with what the guard sees."""
    with LoopGuard(url, on_outage="raise", timeout=5.0) as guard:
        run = guard.session(SESSION)
        calls = [run.check("search"), run.check("open it"), run.check("search")]
        seen = run.snapshot()
    # With an echo after each line, so that it is known which one printed what.
    lines = "".join(f"{recipe.command}\necho =====\n" for recipe in session_recipes(url, SESSION))
    changed = environment(**env)
    done = subprocess.run(
        ["bash", "-c", lines],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={**changed, "PATH": f"{redis_cli}:{changed['PATH']}"},
        check=True,
    )
    assert done.stderr == ""
    window, counts, ttl = (part.splitlines() for part in done.stdout.split("=====\n")[-4:-1])
    members = [f"{verdict.signature} {call.call_id}" for verdict, call in zip(calls, seen.calls, strict=True)]
    assert window[::2] == members
    assert [float(score) / 1e6 for score in window[1::2]] == [call.at for call in seen.calls]
    assert dict(zip(counts[::2], map(int, counts[1::2]), strict=True)) == seen.counts
    assert 0 < int(ttl[0]) <= 3600


def test_tcp_with_a_database_and_a_namespace(redis_cli, newest_server):
    url = newest_server.url.removesuffix("/0") + "/3?namespace=other:loops&window=5"
    shows_the_session(redis_cli, url)


def test_a_unix_socket(redis_cli, newest_server):
    shows_the_session(redis_cli, f"unix://{newest_server.socket}?db=2")


def test_a_user_with_a_password_which_comes_from_the_environment(redis_cli, newest_server):
    newest_server.admin.execute_command("ACL", "SETUSER", "work:er", "on", ">sesame", "~*", "+@all")
    try:
        url = newest_server.url.replace("redis://", "redis://work%3Aer:sesame@")
        shows_the_session(redis_cli, url, REDISCLI_AUTH="sesame")
    finally:
        newest_server.admin.execute_command("ACL", "DELUSER", "work:er")


def test_tls(redis_cli, tmp_path):
    words = subprocess.run([redis_cli / "redis-cli", "--help"], capture_output=True, text=True, check=False)
    if "--tls" not in words.stdout + words.stderr:
        pytest.skip("this redis-cli was built without TLS")
    server = start_tls_server(tmp_path)
    try:
        shows_the_session(redis_cli, server.url)
    finally:
        server.stop()


def test_a_sentinel_names_the_master(redis_cli):
    with SentinelSetup(newest_binary()) as sentinels:
        shows_the_session(redis_cli, sentinels.url)


def test_a_cluster(redis_cli):
    with Cluster(newest_binary()) as cluster:
        shows_the_session(redis_cli, cluster.url)


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("redis://localhost:6379/0", "redis-cli"),
        ("redis://localhost", "redis-cli"),
        ("redis://127.0.0.1:7000/1", "redis-cli -p 7000 -n 1"),
        ("redis://cache.example:6379", "redis-cli -h cache.example"),
        ("redis://[::1]:7000/0", "redis-cli -h ::1 -p 7000"),
        ("redis://cache?db=4", "redis-cli -h cache -n 4"),
        ("redis://:secret@cache/0", "redis-cli -h cache"),
        ("redis://us%20er:secret@cache/0", "redis-cli -h cache --user 'us er'"),
        (
            "rediss://cache/0?ssl_ca_certs=/etc/my%20ca.pem&ssl_certfile=c.pem&ssl_keyfile=k.pem",
            "redis-cli -h cache --tls --cacert '/etc/my ca.pem' --cert c.pem --key k.pem",
        ),
        ("rediss://cache/0?ssl_cert_reqs=none", "redis-cli -h cache --tls --insecure"),
        ("unix:///tmp/a%20b.sock?db=1", "redis-cli -s '/tmp/a b.sock' -n 1"),
        ("redis+cluster://a:7000,b:7001", "redis-cli -c -h a -p 7000"),
        ("redis+sentinel://a:26379,b:26379/loops/2", 'redis-cli -h "$1" -p "$2" -n 2'),
    ],
)
def test_the_connection_of_each_url_form(url, command):
    assert session_recipes(url, SESSION)[-1].command == f"{command} TTL {NAMED}"


def test_the_first_line_asks_a_sentinel_for_the_master():
    first = session_recipes("redis+sentinel://u:secret@a,b:26380/my;loops/2", SESSION)[0]
    assert first.command == "set -- $(redis-cli -h a -p 26379 sentinel get-master-addr-by-name 'my;loops')"


@pytest.mark.parametrize(
    ("url", "held"),
    [
        ("redis://cache/0", False),
        ("redis://user@cache/0", False),
        ("redis://:p@cache/0", True),
        ("redis://user:p@cache/0", True),
        ("redis://cache/0?password=p", True),
        ("rediss://cache/0?ssl_password=p", True),
        ("redis+sentinel://:p@a:1,b:2/loops", True),
        ("redis+cluster://a:1,b:2", False),
    ],
)
def test_a_url_with_a_password_is_known(url, held):
    assert holds_password(url) is held

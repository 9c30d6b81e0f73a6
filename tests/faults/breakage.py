"""Ways to break a real server so that it comes back: each a pair of break and heal."""

from __future__ import annotations

import shutil
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import RedisServer

PAUSE_MS = 2500
KEYS_TO_LOAD = 1500
LOAD_DELAY_US = 1000  # for each key: the server says LOADING for a second and a half


@dataclass(frozen=True)
class Breakage:
    """`strike` breaks the server, `heal` mends it; `keeps` says whether its data survives."""

    name: str
    strike: Callable[[RedisServer], None]
    heal: Callable[[RedisServer], None]
    keeps: bool = True

    def __str__(self) -> str:
        return self.name


def _freeze(server: RedisServer) -> None:
    server.freeze()


def _thaw(server: RedisServer) -> None:
    server.thaw()


def _kill(server: RedisServer) -> None:
    server.kill()


def _start(server: RedisServer) -> None:
    server.start()


def _pause_clients(server: RedisServer) -> None:
    server.admin.execute_command("CLIENT PAUSE", PAUSE_MS, "ALL")


def _await_unpaused(server: RedisServer) -> None:
    server.admin.ping()  # a CLIENT UNPAUSE would have to wait as well


def _load_for_seconds(server: RedisServer) -> None:
    """Restart it with a dump that takes it seconds to load: it answers -LOADING meanwhile."""
    pipe = server.admin.pipeline(transaction=False)
    for number in range(KEYS_TO_LOAD):
        pipe.set(f"ballast:{number}", "x" * 64)
    pipe.execute()
    server.admin.save()
    server.kill()
    server.config = (f"key-load-delay {LOAD_DELAY_US}", "loading-process-events-interval-bytes 1024")
    server.start(wait=False)
    deadline = time.monotonic() + 10
    while not _accepts(server):
        assert time.monotonic() < deadline, "the loading server does not listen"
        time.sleep(0.01)


def _accepts(server: RedisServer) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(server.address) == 0


def _wait_loaded(server: RedisServer) -> None:
    server.wait_ready()


def _fill_memory(server: RedisServer) -> None:
    server.admin.config_set("maxmemory-policy", "noeviction")
    server.admin.config_set("maxmemory", 1)


def _free_memory(server: RedisServer) -> None:
    server.admin.config_set("maxmemory", 0)


def _make_replica(server: RedisServer) -> None:
    server.admin.replicaof("127.0.0.1", free_port())


def _make_stale_replica(server: RedisServer) -> None:
    server.admin.config_set("replica-serve-stale-data", "no")
    _make_replica(server)


def _make_master(server: RedisServer) -> None:
    server.admin.replicaof("NO", "ONE")


def _fail_saving(server: RedisServer) -> None:
    """Saving fails (a folder stands where the dump belongs), so the server refuses writes with MISCONF."""
    server.admin.config_set("save", "3600 1")
    (server.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    server.admin.bgsave()
    deadline = time.monotonic() + 10
    while server.admin.info("persistence")["rdb_last_bgsave_status"] != "err":
        assert time.monotonic() < deadline, "the save did not fail"
        time.sleep(0.01)


def _allow_saving(server: RedisServer) -> None:
    server.admin.config_set("save", "")
    shutil.rmtree(server.folder / "dump.rdb")


BREAKAGES = [
    Breakage("frozen (SIGSTOP)", _freeze, _thaw),
    Breakage("killed, restarted empty", _kill, _start, keeps=False),
    Breakage("CLIENT PAUSE", _pause_clients, _await_unpaused),
    Breakage("LOADING", _load_for_seconds, _wait_loaded),
    Breakage("out of memory, noeviction", _fill_memory, _free_memory),
    Breakage("READONLY replica", _make_replica, _make_master),
    Breakage("MASTERDOWN replica", _make_stale_replica, _make_master),
    Breakage("MISCONF", _fail_saving, _allow_saving),
]

"""A master, its replica and three sentinels on loopback, quick to fail over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from servers.process import RedisServer, ServerStartError, Setup

if TYPE_CHECKING:
    from servers.binaries import Binary

SERVICE = "loops"
DOWN_AFTER_MS = 500
SETTLE_SECONDS = 40.0


class _SentinelProcess(RedisServer):
    mode = ("--sentinel",)

    def untimed_keys(self):
        return iter(())

    def flush(self) -> None:
        """A sentinel holds no data."""


class SentinelSetup(Setup):
    """`url` is the guard's URL for it; `fail_over()` kills the master and waits for its successor."""

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        self.data: list[RedisServer] = []
        self.sentinels: list[RedisServer] = []

    @property
    def servers(self):
        return [*self.sentinels, *self.data]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def master(self) -> RedisServer:
        """The master as the first sentinel sees it."""
        return self._at(self._master_port(self.sentinels[0]))

    def fail_over(self) -> RedisServer:
        """Kill the master; the server that is the new one in the eyes of all sentinels."""
        old = self.master
        old.kill()
        self._wait(
            lambda: (
                all(self._master_port(s) != old.port for s in self.sentinels)
                and self.master.admin.execute_command("ROLE")[0] == b"master"
            ),
            "promote the replica",
        )
        return self.master

    def start(self) -> None:
        master = RedisServer(self.binary, config=["repl-diskless-sync-delay 0"]).start()
        self.data.append(master)
        follow = [f"replicaof 127.0.0.1 {master.port}", "repl-diskless-sync-delay 0"]
        replica = RedisServer(self.binary, config=follow).start()
        self.data.append(replica)
        self._wait(lambda: replica.admin.execute_command("ROLE")[3] == b"connected", "connect the replica")
        watch = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 2000",
        ]
        for _ in range(3):
            self.sentinels.append(_SentinelProcess(self.binary, config=watch).start())
        self._wait(lambda: all(map(self._knows_all, self.sentinels)), "let the sentinels find one another")

    def _knows_all(self, sentinel: RedisServer) -> bool:
        (state,) = sentinel.admin.sentinel_masters().values()
        return state["num-other-sentinels"] == 2 and state["num-slaves"] == 1

    def _master_port(self, sentinel: RedisServer) -> int:
        return sentinel.admin.sentinel_get_master_addr_by_name(SERVICE)[1]

    def _at(self, port: int) -> RedisServer:
        return next(server for server in self.data if server.port == port)

    @staticmethod
    def _wait(done, what: str) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise ServerStartError(f"could not {what} in {SETTLE_SECONDS:g} s")
            time.sleep(0.05)

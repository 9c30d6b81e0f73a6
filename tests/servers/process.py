"""One server process: started on loopback without persistence, frozen, killed, restarted, stopped."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from servers.binaries import Binary

START_SECONDS = 15.0
SESSION_KEY = re.compile(rb".+:\{.+\}:(calls|counts|state|args)", re.DOTALL)
# session keys without a TTL that were still there when their server stopped: (server, key)
LEAKS: list[tuple[str, str]] = []
_RUNNING: list[RedisServer] = []
_OWNER = os.getpid()


class ServerStartError(RuntimeError):
    """The server did not come up; the text is the end of its log."""


def free_port() -> int:
    """A port that nothing listens on, nor on the one 10,000 above it, which a cluster node takes as well.

    Below the ephemeral range: a port there could be taken by any outgoing connection while a server is down.
    """
    while True:
        port = random.randrange(10_000, 20_000)
        if all(_is_free(number) for number in (port, port + 10_000)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def running() -> list[RedisServer]:
    """The servers that this process has started and not stopped."""
    return list(_RUNNING)


def stop_all() -> None:
    """Stop every server of this process; a forked child leaves its parent's servers alone."""
    if os.getpid() == _OWNER:
        for server in running():
            server.stop()


atexit.register(stop_all)


class RedisServer:
    """A server on 127.0.0.1:`port` and on a unix socket in its own folder.

    `config` are further lines of redis.conf. `port=0` means the unix socket only; None takes a free port.
    The unix socket is how the tests administer the server: it is certain to be this process and no other.
    """

    mode: tuple[str, ...] = ()

    def __init__(
        self,
        binary: Binary,
        *,
        config: Sequence[str] = (),
        port: int | None = None,
        password: str | None = None,
    ) -> None:
        self.binary = binary
        self.config = tuple(config)
        self.password = password
        self.frozen = False
        self._fixed_port = port
        self.port = port or 0
        self.folder = Path(tempfile.mkdtemp(prefix="loopfence-server-"))
        self.socket = self.folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: redis.Redis | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.binary.name} port={self.port}>"

    def __enter__(self) -> Self:
        return self if self.alive else self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # -- where it is

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.socket}?db=0"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerStartError(f"{self!r} is not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def admin(self) -> redis.Redis:
        """A client of the all-powerful default user, with bytes replies."""
        if self._admin is None:
            self._admin = redis.Redis(
                unix_socket_path=str(self.socket),
                password=self.password,
                socket_timeout=10,
                retry=Retry(NoBackoff(), 0),
            )
        return self._admin

    def connect(self, **options: object) -> redis.Redis:
        """A plain redis-py client over TCP."""
        return redis.Redis.from_url(self.url, **options)

    def log(self, lines: int = 20) -> str:
        path = self.folder / "server.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    # -- life and death

    def start(self, *, wait: bool = True) -> Self:
        """Start it and, unless told otherwise, wait until it answers; a lost race for the port is rerun."""
        for attempt in range(5):
            if self._fixed_port is None:
                self.port = free_port()
            self._spawn()
            if not wait:
                return self
            try:
                self.wait_ready()
            except ServerStartError as error:
                self._reap()
                if "in use" not in str(error) or attempt == 4:
                    raise
            else:
                self._fixed_port = self.port
                return self
        raise AssertionError("unreachable")

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.alive:
                raise ServerStartError(f"{self.binary.path} ended at once:\n{self.log()}")
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                if self.socket.exists() and self.admin.ping():
                    return
            time.sleep(0.01)
        raise ServerStartError(f"{self.binary.path} did not answer in {seconds:g} s:\n{self.log()}")

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, the kernel accepts new ones, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        """SIGKILL: connections are reset, new ones refused; memory is lost."""
        self._reap()

    def restart(self) -> Self:
        """Kill it and start it again on the same port with the same folder (empty: nothing is persisted)."""
        self._reap()
        return self.start()

    def stop(self) -> None:
        """End it for good; session keys that it still holds without a TTL go to LEAKS."""
        if self.alive and not self.frozen:
            with contextlib.suppress(redis.RedisError):
                LEAKS.extend((self.binary.name, key) for key in self.untimed_keys())
        self._reap()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- what it holds

    def untimed_keys(self) -> Iterator[str]:
        """Session keys without a TTL, of any namespace and any database."""
        for database in self._databases():
            with redis.Redis(unix_socket_path=str(self.socket), password=self.password, db=database) as client:
                keys = [key for key in client.scan_iter(count=1000) if SESSION_KEY.fullmatch(key)]
                pipe = client.pipeline(transaction=False)
                for key in keys:
                    pipe.ttl(key)
                yield from (repr(key) for key, ttl in zip(keys, pipe.execute(), strict=True) if ttl == -1)

    def wait_replicated(self, seconds: float = 5.0) -> None:
        """Wait until every replica of this master has received all that it was sent."""
        deadline = time.monotonic() + seconds
        while True:
            state = self.admin.info("replication")
            behind = [state[name]["offset"] for name in state if re.fullmatch(r"slave\d+", name)]
            if behind and min(behind) == state["master_repl_offset"]:
                return
            if time.monotonic() > deadline:
                raise ServerStartError(f"{self!r} has replicas that lag behind: {state}")
            time.sleep(0.02)

    def flush(self) -> None:
        """Remove all data (on a replica: leave that to its master)."""
        if self._databases():
            with contextlib.suppress(redis.ReadOnlyError):
                self.admin.flushall()

    def _databases(self) -> list[int]:
        return [int(name.removeprefix("db")) for name in self.admin.info("keyspace")]

    # -- inside

    def _lines(self) -> list[str]:
        listen = ["port 0"] if not self.port else [f"port {self.port}", "bind 127.0.0.1"]
        secret = [f"requirepass {self.password}"] if self.password else []
        return [
            *listen,
            f"unixsocket {self.socket}",
            f"dir {self.folder}",
            f"logfile {self.folder / 'server.log'}",
            'save ""',
            "appendonly no",
            "daemonize no",
            *secret,
            *self.config,
        ]

    def _spawn(self) -> None:
        config = self.folder / "redis.conf"
        config.write_text("\n".join(self._lines()) + "\n")
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binary.path, config, *self.mode], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        _RUNNING.append(self)

    def _reap(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._process is not None:
            self._process.kill()  # works on a stopped process too
            self._process.wait()
            self._process = None
        self.frozen = False
        self.socket.unlink(missing_ok=True)
        with contextlib.suppress(ValueError):
            _RUNNING.remove(self)


class Setup:
    """Several servers that belong together: started, or stopped whole where they do not come up."""

    servers: list[RedisServer]

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

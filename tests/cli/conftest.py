"""The `loopfence` command, run as it is installed: a process, its exit code and what it printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import RedisServer

COMMAND = str(Path(sys.executable).with_name("loopfence"))


class Ran(NamedTuple):
    """What a process left behind."""

    code: int
    out: str
    err: str


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what the tests' own caller may have set for the command or its look."""
    dropped = {"LOOPFENCE_URL", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "REDISCLI_AUTH"}
    return {name: value for name, value in os.environ.items() if name not in dropped} | changes


def run_command(*args: str, **env: str) -> Ran:
    """Run `loopfence` with these words; `env` is added to the environment."""
    done = subprocess.run(
        [COMMAND, *args], capture_output=True, encoding="utf-8", timeout=60, env=environment(**env), check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run() -> Callable[..., Ran]:
    """`run("check", "s", "t")`: the command as a process, with no URL set."""
    return run_command


@pytest.fixture
def on_server(newest_server: RedisServer) -> Callable[..., Ran]:
    """`on_server("check", "s", "t")`: the command as a process, LOOPFENCE_URL naming a real, empty server."""

    def run(*args: str, **env: str) -> Ran:
        return run_command(*args, LOOPFENCE_URL=newest_server.url, **env)

    return run

"""The `loopfence` command as a fixture, with and without a server that its environment names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command import Ran, run_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import RedisServer


@pytest.fixture
def run() -> Callable[..., Ran]:
    """`run("check", "s", "t")`: the command as a process, with no URL set."""
    return run_command


@pytest.fixture
def on_server(newest_server: RedisServer) -> Callable[..., Ran]:
    """`on_server("check", "s", "t")`: the command as a process, LOOPFENCE_URL naming a real, empty server."""

    def on_newest(*words: str, **env: str) -> Ran:
        return run_command(*words, LOOPFENCE_URL=newest_server.url, **env)

    return on_newest

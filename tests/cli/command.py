"""The installed `loopfence` script, run as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

COMMAND = str(Path(sys.executable).with_name("loopfence"))
# What a developer's shell may have set, and what changes what the command does or how it looks.
_DROPPED = {
    "LOOPFENCE_URL",
    "REDISCLI_AUTH",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
}


class Ran(NamedTuple):
    """What a process left behind."""

    code: int
    out: str
    err: str


def environment(**changes: str) -> dict[str, str]:
    """The environment of the tests, cleaned, with `changes`."""
    return {name: value for name, value in os.environ.items() if name not in _DROPPED} | changes


def run_command(*words: str, **env: str) -> Ran:
    """Run `loopfence` with these words, its output in pipes; `env` is added to the environment."""
    done = subprocess.run(
        [COMMAND, *words], capture_output=True, encoding="utf-8", timeout=60, env=environment(**env), check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)

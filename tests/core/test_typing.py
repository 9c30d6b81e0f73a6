"""The public API is typed as its users write it: `mypy --strict`, with no settings but its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

API = Path(__file__).parents[1] / "typing" / "api.py"


def check(path: Path, folder: Path) -> str:
    """What mypy says of a file, as seen from a folder that has nothing to do with ours."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", "cache", str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110).stdout


def test_the_public_api_type_checks_as_a_user_writes_it(tmp_path: Path) -> None:
    assert check(API, tmp_path) == "Success: no issues found in 1 source file\n"
    # The same check finds what is wrong: the decorator keeps the types of what it decorates.
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        API.read_text("utf-8").replace("-> list[str]:\n    return [query]", "-> list[int]:\n    return [1]")
    )
    assert 'Expression is of type "list[int]", not "list[str]"' in check(wrong, tmp_path)

"""The README's table of integrations: its imports work where the framework is, and its commands are commands."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from loopfence.cli.hook import hook

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
FRAMEWORKS = {
    "langchain": "langchain",
    "pydantic_ai": "pydantic_ai",
    "openai_agents": "agents",
    "fastmcp": "fastmcp",
    "mcp": "mcp",
    "claude_agent": "claude_agent_sdk",
    "litellm": "litellm",
}
"""Our module -> the framework's own."""


def lines() -> list[str]:
    rows = [row for row in README.splitlines() if row.startswith("| ") and "<br>" in row]
    assert len(rows) == 11
    return [line for row in rows for line in re.findall(r"`([^`]+)`(?=<br>| \|)", row)]


@pytest.mark.parametrize("line", [line for line in lines() if line.startswith("from ")])
def test_what_the_table_imports_is_there(line: str) -> None:
    module = line.split()[1].rpartition(".")[2]
    framework = FRAMEWORKS.get(module)
    if framework is not None and find_spec(framework) is None:
        pytest.skip(f"needs the extra: pip install 'loopfence[{module.replace('_', '-')}]'")
    exec(line)


@pytest.mark.parametrize("line", [line for line in lines() if line.startswith("loopfence ")])
def test_its_hook_commands_are_commands(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, name, *words = shlex.split(line)
    assert (program, name) == ("loopfence", "hook")
    assert hook([*words, "--settings", str(tmp_path / "settings.json"), "--dry-run"]) in (0, None)
    assert f"{words[1]} --url redis://localhost:6379/0" in capsys.readouterr().out


def test_every_adapter_has_its_row() -> None:
    package = Path(__file__).resolve().parents[2] / "src" / "loopfence" / "integrations"
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("_")}
    named = {line.split()[1].rpartition(".")[2] for line in lines() if line.startswith("from ")}
    assert named == modules - {"hooks", "presets", "shell", "transcript"}

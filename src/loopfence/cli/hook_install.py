"""`loopfence hook install`: writes the hook entries into a coding agent's settings, and takes them out again."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loopfence.cli import fail
from loopfence.cli.policy_file import load_policy
from loopfence.errors import ConfigError
from loopfence.integrations.hooks import DIALECTS


@dataclass(frozen=True)
class _Home:
    """Where an agent keeps its hooks, in what unit it counts a hook's timeout, and what its user must know."""

    folder: str
    file: str
    variable: str = ""
    second: int = 1
    note: str = ""


_HOMES = {
    "claude-code": _Home(".claude", "settings.json", variable="CLAUDE_CONFIG_DIR"),
    "codex": _Home(
        ".codex",
        "hooks.json",
        variable="CODEX_HOME",
        note="Codex runs a hook only after you have trusted it: start codex and enter /hooks",
    ),
    "gemini": _Home(".gemini", "settings.json", second=1000),
}
_TIMEOUT = 5
"""Seconds that the agent waits for a hook before it goes on without."""


def main(args: list[str]) -> int:
    """Run `hook install` with these arguments; returns the exit code."""
    given = _parser().parse_args(args)
    home = _HOMES[given.agent]
    try:
        folder = Path(os.environ.get(home.variable) or Path.home() / home.folder)
        # A settings file that is a link (a user's dotfiles) stays one.
        file = (given.settings or folder / home.file).expanduser().resolve()
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        command = None if given.uninstall else _command(given.agent, given.url, given.policy)
        after = _changed(before, given.agent, command)
        if given.dry_run:
            old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
            sys.stdout.writelines(difflib.unified_diff(old, new, str(file), str(file)))
            return 0
        if after != before:
            _write(file, after)
    except (ConfigError, OSError, ValueError) as error:
        return fail(str(error))
    print(f"{file}: {'unchanged' if after == before else 'removed' if given.uninstall else 'installed'}")
    if command is not None:
        if not (given.url or os.environ.get("LOOPFENCE_URL")):
            print("Now set LOOPFENCE_URL where the agent runs, for example to redis://localhost:6379/0")
        if home.note:
            print(home.note)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("loopfence hook install", description="Write the hooks into an agent's settings.")
    parser.add_argument("agent", choices=list(DIALECTS))
    parser.add_argument("--settings", type=Path, metavar="FILE", help="the settings file; default: the user's own")
    parser.add_argument("--url", help="where the sessions are kept; default: $LOOPFENCE_URL when a hook runs")
    parser.add_argument("--policy", type=Path, metavar="FILE.toml", help="a TOML file with Policy fields")
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and write nothing")
    parser.add_argument("--uninstall", action="store_true", help="take the entries out again")
    return parser


def _command(agent: str, url: str | None, policy: Path | None) -> str:
    """The shell command of a hook. Agents start it anywhere and without this venv, so its paths are absolute."""
    words = [shutil.which(sys.argv[0]) or sys.argv[0], "hook", agent]
    if url is not None:
        if urlsplit(url).password is not None:
            raise ConfigError("the URL holds a password, which does not belong into a settings file: set LOOPFENCE_URL")
        words += ["--url", url]
    if policy is not None:
        load_policy(policy)
        words += ["--policy", str(policy.resolve())]
    words[0] = str(Path(words[0]).absolute())
    return shlex.join(words)


def _changed(text: str, agent: str, command: str | None) -> str:
    """The settings with one handler for `command` in each event, and none for None; all else stays as it is."""
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ConfigError(f"the settings are not JSON, and are left alone: {error}") from None
    was = settings.get("hooks", {}) if isinstance(settings, dict) else None
    if not isinstance(was, dict) or not all(isinstance(groups, list) for groups in was.values()):
        raise ConfigError("the settings hold hooks in a form that is not known here, and are left alone")
    events, handler = DIALECTS[agent].events, None
    if command is not None:
        handler = {"type": "command", "command": command, "timeout": _TIMEOUT * _HOMES[agent].second}
    hooks = {
        event: _placed(was.get(event, []), agent, handler if event in events else None)
        for event in dict.fromkeys([*was, *events])
    }
    kept = {event: groups for event, groups in hooks.items() if groups or was.get(event) == []}
    changed = {**settings, "hooks": kept}
    if not kept and settings.get("hooks") != {}:
        del changed["hooks"]
    return text if changed == settings else json.dumps(changed, indent=2, ensure_ascii=False) + "\n"


def _placed(groups: list[Any], agent: str, handler: dict[str, Any] | None) -> list[Any]:
    """One event's groups with `handler` where a handler of ours was, else at the end; a second of ours goes."""
    placed = []
    for group in groups:
        handlers = group.get("hooks") if isinstance(group, dict) else None
        handlers = handlers if isinstance(handlers, list) else []
        own = [h for h in handlers if _is_own(h, agent)]
        if not own:
            placed.append(group)
            continue
        others = [handler if h is own[0] else h for h in handlers if h is own[0] or h not in own]
        others = [h for h in others if h is not None]
        handler = None
        if others:
            placed.append({**group, "hooks": others})
    return placed if handler is None else [*placed, {"matcher": "*", "hooks": [handler]}]


def _is_own(handler: Any, agent: str) -> bool:
    command = handler.get("command") if isinstance(handler, dict) else None
    return isinstance(command, str) and re.search(rf"\bloopfence\S* hook {agent}\b", command) is not None


def _write(file: Path, text: str) -> None:
    """Replace the file in one step: an agent that reads it meanwhile sees the old or the new one, never half."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        if file.exists():
            shutil.copymode(file, name)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

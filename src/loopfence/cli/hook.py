"""`loopfence hook claude-code|codex|gemini`: one hook event on stdin, the answer on stdout.

It is started anew before and after every tool call, so it imports no more than it needs; and it never breaks the
agent: whatever goes wrong is one line on stderr, and the call runs. Exit codes are 0 or 1, for 2 would block a tool.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from loopfence.errors import StoreError
from loopfence.integrations.hooks import DIALECTS, Dialect, Event, Step, answer, of_agent, read

if TYPE_CHECKING:
    from loopfence.guard import LoopGuard, Session

_USAGE = f"""usage: loopfence hook {{{"|".join(DIALECTS)}}} [--url URL] [--policy FILE.toml]   answer one event on stdin
       loopfence hook install AGENT [--settings FILE] [--url URL] [--policy FILE.toml] [--dry-run] [--uninstall]

--url     where the sessions are kept; default $LOOPFENCE_URL
--policy  a TOML file with Policy fields; its tool rules are laid over those for the agent's own tools"""

_NO_URL = (
    "not guarded: a hook is a new process each time and remembers nothing by itself. "
    "Set LOOPFENCE_URL, for example to redis://localhost:6379/0"
)


def hook(words: list[str]) -> int:
    """Answer one hook event of a coding agent, read from stdin; or `install` the hooks into its settings."""
    if words[:1] == ["install"]:
        from loopfence.cli import hook_install

        return hook_install.main(words[1:])
    if not words or words[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    dialect = DIALECTS.get(words[0])
    options = _options(words[1:])
    if dialect is None or options is None:
        print(_USAGE, file=sys.stderr)
        return 1
    try:
        reply = _handle(dialect, json.loads(sys.stdin.buffer.read()), options)
        if reply is not None:
            print(json.dumps(reply))
    except StoreError:
        # The guard has said so by itself, in its one log line.
        pass
    except Exception as error:  # noqa: BLE001 - a broken guard must not break the agent
        _complain(f"not guarded: {type(error).__name__}: {error}")
    return 0


def _options(words: list[str]) -> dict[str, str] | None:
    """`--url X`, `--policy=X`; None for anything else. (argparse takes long to import, and exits with 2.)"""
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    options = dict(zip(parts[::2], parts[1::2], strict=False))
    return options if len(parts) % 2 == 0 and options.keys() <= {"--url", "--policy"} else None


def _handle(dialect: Dialect, payload: Any, options: dict[str, str]) -> dict[str, Any] | None:
    event = read(dialect, payload)
    if event is None:
        return None
    url = options.get("--url") or os.environ.get("LOOPFENCE_URL") or ""
    if url.startswith("memory:") or not url:
        return _say_once(event.session, _NO_URL)
    with _guard(dialect, url, options.get("--policy")) as guard:
        session = guard.session(of_agent(event.session, event.agent))
        if event.step is Step.CHECK:
            return answer(dialect, session.check(event.tool, event.args, call_id=event.call_id))
        if event.step is not Step.REPORT:
            session.note_progress()
        elif call_id := event.call_id or _unreported(session, event):
            session.report_call(event.tool, event.args, call_id=call_id, **event.outcome)
    return None


def _guard(dialect: Dialect, url: str, policy_file: str | None) -> LoopGuard:
    from loopfence.guard import LoopGuard
    from loopfence.integrations.presets import combine

    policy = None
    if policy_file is not None:
        from pathlib import Path

        from loopfence.cli.policy_file import load_policy

        policy = load_policy(Path(policy_file))
    return LoopGuard(url, policy=policy, tools=combine(policy.tools if policy else {}, dialect.tools))


def _unreported(session: Session, event: Event) -> str | None:
    """The latest call like this one that was not reported, for an agent that gives its calls no ids."""
    signature = session.peek(event.tool, event.args).signature
    calls = reversed(session.snapshot().calls)
    return next((call.call_id for call in calls if call.signature == signature and not call.reported), None)


def _say_once(session: str, text: str) -> dict[str, Any] | None:
    """Tell the user, once a session: an empty file in the temporary folder remembers that it was said."""
    import hashlib
    import tempfile
    from pathlib import Path

    mark = Path(tempfile.gettempdir(), f"loopfence-{hashlib.sha256(session.encode()).hexdigest()[:16]}")
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return None
    _complain(text)
    return {"systemMessage": f"loopfence: {text}"}


def _complain(text: str) -> None:
    from loopfence.cli import printable

    print(f"loopfence: {printable(text)}", file=sys.stderr)

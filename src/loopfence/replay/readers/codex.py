"""Codex rollouts: `{timestamp, type, payload}` a line; `response_item` is what the model saw and said."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from loopfence.replay.calls import Call, Pairing, Turn
from loopfence.replay.messages import arguments_of, text_of
from loopfence.replay.source import seconds_of, text_or_none

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source

_RECORDS: Final = frozenset(("session_meta", "response_item", "event_msg", "turn_context", "compacted"))
_NO_PROMPT: Final = re.compile(r"\s*(<[a-z_]+[ >]|# AGENTS\.md)")
"""What the harness puts in front of the model under the user's name."""
_HEADER: Final = re.compile(
    r"(?:(?:Chunk ID|Wall time|Exit code|Total output lines|Original token count)\b[^\n]*\n"
    r"|Process (?:exited with code|running with session ID) \d+\n)+\n?Output:\n"
)
_EXIT_CODE: Final = re.compile(r"(?:Exit code:|exited with code) (\d+)")


def matches(document: Any) -> bool:
    """Whether this is a line of a rollout."""
    if not isinstance(document, dict) or "payload" not in document:
        return False
    kind = document.get("type")
    return isinstance(kind, str) and kind in _RECORDS


@dataclass
class _Rollout:
    session: str
    family: str
    """The session that this one was forked off, else itself: copied calls count once in a family."""
    calls: Pairing = field(default_factory=Pairing)
    named: bool = False
    made: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def identity_of(self, call: Call) -> Hashable:
        """Equal for copies of a call in the files of a family; models reuse ids, so its number counts too."""
        if call.id is None:
            return None
        what = (call.id, call.tool, repr(call.args))
        self.made[what] += 1
        return hash((self.family, what, self.made[what]))


def read(documents: Iterable[Document], source: Source) -> Iterator[Call | Turn]:
    """The calls of a rollout; prompts and compactions are turns.

    The header that Codex puts before a command's output (wall time, chunk id, exit code) is no part of the
    result: it differs each time. An exit code other than 0 makes a call failed.
    """
    rollout = _Rollout(source.name, source.name)
    for line, record, _ in documents:
        kind = record.get("type") if isinstance(record, dict) else None
        payload = record.get("payload") if isinstance(record, dict) else None
        if not isinstance(kind, str) or not isinstance(payload, dict):
            source.problem(line, "no rollout record")
        elif kind == "session_meta":
            _open(rollout, payload)
        elif kind == "compacted":
            yield from _turn(rollout, record, "compacted")
        elif kind == "response_item":
            yield from _item(rollout, record, payload, line)
        elif kind == "event_msg":
            _event(rollout, payload)
        elif kind not in _RECORDS:
            source.problem(line, f"unknown record: {kind[:40]}")
    yield from rollout.calls.flush()


def _open(rollout: _Rollout, meta: dict[str, Any]) -> None:
    """The first header names the session; a second one is that of the session it was forked off."""
    name = text_or_none(meta.get("id"))
    if name is None:
        return
    if not rollout.named:
        rollout.session, rollout.named = name, True
        name = text_or_none(meta.get("forked_from_id")) or name
    rollout.family = name


def _item(rollout: _Rollout, record: dict[str, Any], item: dict[str, Any], line: int) -> Iterator[Call | Turn]:
    kind = item.get("type")
    if kind == "message":
        if item.get("role") == "assistant":
            yield from rollout.calls.flush()
        elif item.get("role") == "user" and not _NO_PROMPT.match(str(text_of(item.get("content")))):
            yield from _turn(rollout, record, "user turn")
    elif kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        result, ok = _result(item.get("output"))
        rollout.calls.add_result(text_or_none(item.get("call_id")), result, ok=ok)
    else:
        call = _call(item, rollout.calls.turn(line))
        if call is not None:
            call.session, call.ts = rollout.session, seconds_of(record.get("timestamp"))
            call.identity = rollout.identity_of(call)
            yield from rollout.calls.add_call(call)


def _call(item: dict[str, Any], batch: str) -> Call | None:
    name, kind = item.get("name"), item.get("type")
    call_id = text_or_none(item.get("call_id")) or text_or_none(item.get("id"))
    if kind in ("function_call", "custom_tool_call") and isinstance(name, str):
        return Call("", name, arguments_of(item.get("arguments", item.get("input"))), batch=batch, id=call_id)
    if kind in ("local_shell_call", "web_search_call"):
        return Call("", kind.removesuffix("_call"), item.get("action"), batch=batch, id=call_id)
    return None


def _result(output: Any) -> tuple[Any, bool]:
    """A tool's output without what differs each time, and whether the call succeeded."""
    if isinstance(output, dict):  # older rollouts: {"content": ..., "success": ...}
        return output.get("content", output), output.get("success") is not False
    result = text_of(output)
    if not isinstance(result, str):
        return result, True
    if result.startswith('{"output":'):
        try:
            told = json.loads(result)
            return told["output"], told.get("metadata", {}).get("exit_code", 0) == 0
        except (ValueError, AttributeError, RecursionError):
            return result, True
    header = _HEADER.match(result)
    if header is None:
        return result, True
    code = _EXIT_CODE.search(header[0])
    return result[header.end() :], code is None or code[1] == "0"


def _event(rollout: _Rollout, event: dict[str, Any]) -> None:
    """Ends of commands and patches tell how the call went, which its output may not."""
    failed = event.get("exit_code", 0) != 0 or event.get("success") is False
    if failed and str(event.get("type")).endswith("_end"):
        rollout.calls.mark_failed(text_or_none(event.get("call_id")))


def _turn(rollout: _Rollout, record: dict[str, Any], why: str) -> Iterator[Call | Turn]:
    yield from rollout.calls.flush()
    yield Turn(rollout.session, seconds_of(record.get("timestamp")), why=why)

"""The Lua steps, sans-IO: loads lua/, builds the calls, parses the replies; sync and async shells only send."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from loopfence.errors import StoreError
from loopfence.store.keys import session_keys
from loopfence.store.tally import Call, Contents, Entry, Report, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

Reply = TypeVar("Reply")


def _folder() -> Path:
    package = Path(__file__).resolve().parent.parent
    # An editable install has no packaged folder: the checkout's own is used.
    return next(
        (folder for folder in (package / "lua", package.parent.parent / "lua") if (folder / "record.lua").is_file()),
        package / "lua",
    )


def _load(name: str) -> str:
    folder = _folder()
    return "".join((folder / f"{part}.lua").read_text("utf-8") for part in ("session", name))


class Script:
    """One Lua step: its text, and the SHA1 by which a server knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = _load(name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


RECORD, PEEK, REPORT, CONTROL, SNAPSHOT = (Script(name) for name in ("record", "peek", "report", "control", "snapshot"))


class Command(NamedTuple, Generic[Reply]):
    """One step to send: the script, its keys and arguments, and how to read the reply."""

    script: Script
    keys: tuple[str, str, str, str]
    argv: tuple[str | int, ...]
    parse: Callable[[Any], Reply]


class Commands:
    """Builds the steps of one namespace. `ttl` in milliseconds."""

    def __init__(self, namespace: str, ttl: int) -> None:
        self.namespace = namespace
        self._ttl = ttl

    def record(self, call: Call) -> Command[Tally]:
        if call.exempt:
            return self.peek(call)
        argv = (
            call.signature,
            call.call_id,
            call.tool,
            call.window,
            call.max_age,
            call.pace,
            call.stop,
            call.halt_reason,
            self._ttl,
            call.args or "",
        )
        return Command(RECORD, session_keys(self.namespace, call.session), argv, _tally)

    def peek(self, call: Call) -> Command[Tally]:
        argv = (call.signature, call.tool, call.window, call.max_age, call.pace)
        return Command(PEEK, session_keys(self.namespace, call.session), argv, _tally)

    def report(self, report: Report) -> Command[None]:
        argv = (
            report.signature,
            report.call_id,
            report.tool,
            report.max_age,
            int(report.ok),
            report.result,
            int(report.progress),
            int(report.stagnates),
            self._ttl,
        )
        return Command(REPORT, session_keys(self.namespace, report.session), argv, _nothing)

    def progress(self, session: str, owner: str, token: str) -> Command[None]:
        return self._control(session, "progress", owner, token)

    def halt(self, session: str, reason: str) -> Command[None]:
        return self._control(session, "halt", reason)

    def resume(self, session: str) -> Command[None]:
        return self._control(session, "resume", "")

    def reset(self, session: str) -> Command[None]:
        return self._control(session, "reset", "")

    def _control(self, session: str, op: str, value: str, token: str = "") -> Command[None]:
        return Command(CONTROL, session_keys(self.namespace, session), (op, value, self._ttl, token), _nothing)

    def contents(self, session: str) -> Command[Contents]:
        return Command(SNAPSHOT, session_keys(self.namespace, session), (), _contents)


def text_of(value: Any) -> str:
    """A reply's string: bytes, or text where the user's client decodes; what is no UTF-8 keeps its place."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _nothing(_: Any) -> None:
    return None


def _tally(reply: Any) -> Tally:
    try:
        repeats, total, size, failed, stagnant, halted, *rest = reply
        return Tally(
            int(repeats),
            int(total),
            int(size),
            int(failed),
            int(stagnant),
            text_of(halted) if halted else None,
            bool(rest and rest[0]),
        )
    except (TypeError, ValueError):
        raise StoreError(f"the script's reply is not a tally (got {type(reply).__name__})") from None


def _contents(reply: Any) -> Contents:
    try:
        now, ttl, calls, counts, state, args = reply
        fields = _pairs(state)
        totals = {signature: int(count) for signature, count in _pairs(counts).items()}
        entries = [_entry(member, score, fields) for member, score in _pairs(calls).items()]
        repeats = {signature: total - _discounted(fields, signature, total) for signature, total in totals.items()}
        streaks = {name[5:]: value.split(" ") for name, value in fields.items() if name.startswith("tool:")}
        current = {tool: streak for tool, streak in streaks.items() if streak[0] == fields.get("epoch", "0")}
        return Contents(
            entries=entries,
            repeats=repeats,
            failed={tool: int(streak[1]) for tool, streak in current.items() if streak[1] != "0"},
            stagnant={tool: int(streak[2]) for tool, streak in current.items() if streak[2] != "0"},
            texts=_pairs(args),
            halted=fields.get("halted") or None,
            now=int(text_of(now)),
            ttl=ttl if ttl >= 0 else None,
        )
    except (TypeError, ValueError, IndexError) as error:
        raise StoreError(f"corrupt session: {error}; reset it") from None


def _pairs(flat: Any) -> dict[str, str]:
    texts = [text_of(value) for value in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _entry(member: str, score: str, fields: dict[str, str]) -> Entry:
    signature, call_id = member.split(" ")
    return Entry(int(float(score)), signature, call_id, f"call:{member}" in fields)


def _discounted(fields: dict[str, str], signature: str, total: int) -> int:
    """As in session.lua: how many of the signature's occurrences no longer count, as things stand."""
    epoch = fields.get("epoch_before" if fields.get("epoch_by") == signature else "epoch", "0")
    seen = fields.get(f"sig:{signature}", "").split(" ")
    if seen[0] == epoch:
        return int(seen[1])
    return total if epoch != "0" else 0

"""The Lua steps, sans-IO: loads lua/, builds and packs the calls, parses the replies; the shells only send."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from loopfence.store.faults import raised
from loopfence.store.keys import session_keys
from loopfence.store.tally import Call, Contents, Entry, Report, Step, Streak, Tally, new_tuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Reply = TypeVar("Reply")
Packing = Callable[[set[str]], bytes]
"""What packs steps for one connection, whose server is known to have these scripts (it may add to them)."""
MAX_BATCH = 100
"""Steps that share one round trip, and one timeout."""


def _folder() -> Path:
    package = Path(__file__).resolve().parent.parent
    # An editable install has no packaged folder: the checkout's own is used.
    return next(
        (folder for folder in (package / "lua", package.parent.parent / "lua") if (folder / "record.lua").is_file()),
        package / "lua",
    )


class Script:
    """One Lua step: its text, and the SHA1 by which a server knows it."""

    def __init__(self, name: str) -> None:
        folder = _folder()
        self.name = name
        self.text = "".join((folder / f"{part}.lua").read_text("utf-8") for part in ("session", name))
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


RECORD, PEEK, REPORT, CONTROL, SNAPSHOT = (Script(name) for name in ("record", "peek", "report", "control", "snapshot"))


class Command(NamedTuple, Generic[Reply]):
    """One step to send, and how to read its reply. Its arguments are `varying`, `fixed`, then `last`."""

    script: Script
    keys: tuple[str, ...]
    varying: tuple[str, ...]
    """Encoded names and digests: as long in bytes as in characters."""
    fixed: tuple[str | int, ...]
    """What is the same from call to call, and packed once."""
    parse: Callable[[Any], Reply]
    last: tuple[str, ...] = ()
    """What may be any text."""

    def arguments(self, *, by_sha: bool) -> tuple[str | int, ...]:
        """What a client's `execute_command` takes."""
        script: tuple[str | int, ...] = ("EVALSHA", self.script.sha) if by_sha else ("EVAL", self.script.text)
        return (*script, len(self.keys), *self.keys, *self.varying, *self.fixed, *self.last)

    def pack(self, _: set[str]) -> bytes:
        """The EVALSHA as it goes over the wire."""
        script, keys, varying, fixed, _parse, last = self
        head, tail = _frame(script.sha, keys, fixed, len(varying) + len(last))
        packed = head + "".join([f"${len(value)}\r\n{value}\r\n" for value in varying]).encode() + tail
        return packed + b"".join(map(_argument, last)) if last else packed

    def pack_text(self, _: set[str]) -> bytes:
        """The same as EVAL, for a server that does not know the script yet."""
        arguments = self.arguments(by_sha=False)
        return b"".join((b"*%d\r\n" % len(arguments), *map(_argument, arguments)))


def _argument(value: object) -> bytes:
    data = str(value).encode("utf-8", "replace")
    return b"$%d\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=1024)
def _frame(sha: str, keys: tuple[str, ...], fixed: tuple[str | int, ...], others: int) -> tuple[bytes, bytes]:
    """What goes in front of the arguments that vary, and what comes right after them."""
    words = ("EVALSHA", sha, len(keys), *keys)
    head = b"*%d\r\n" % (len(words) + len(fixed) + others) + b"".join(map(_argument, words))
    return head, b"".join(map(_argument, fixed))


def pack_in_order(commands: Sequence[Command[Any]], known: set[str]) -> bytes:
    """Steps as they go over one connection.

    A server that does not know a script leaves its step out. Where steps build on each other, as a call and its report
    do, the one that comes late would come in the wrong order: so their scripts go along where they may be news.
    """
    mixed = len({command.script.sha for command in commands}) > 1
    packed = []
    for command in commands:
        sha = command.script.sha
        packed.append(command.pack_text(known) if mixed and sha not in known else command.pack(known))
        if mixed:
            known.add(sha)
    return b"".join(packed)


def pack_texts(commands: Sequence[Command[Any]], known: set[str]) -> bytes:
    """Steps that a server has left out, as it did not know their scripts."""
    return b"".join([command.pack_text(known) for command in commands])


def batched(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Batches that one timeout is enough for."""
    for start in range(0, len(steps), MAX_BATCH):
        yield steps[start : start + MAX_BATCH]


def pack_scan(cursor: int, pattern: str, _: set[str]) -> bytes:
    """One SCAN as it goes over the wire."""
    parts = ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
    return b"".join((b"*%d\r\n" % len(parts), *map(_argument, parts)))


def scan_reply(reply: Any) -> tuple[int, list[Any]]:
    """The next cursor (0 = that was all) and the keys; the server's error; ValueError for what is no reply to SCAN."""
    try:
        cursor, keys = raised(reply)
        return int(cursor), list(keys)
    except TypeError:
        raise ValueError(f"a SCAN was answered with a {type(reply).__name__}") from None


class Commands:
    """Builds the steps of one namespace. `ttl` in milliseconds."""

    def __init__(self, namespace: str, ttl: int) -> None:
        self.namespace = namespace
        self._ttl = ttl
        self._keys = lru_cache(maxsize=1024)(session_keys)

    def step(self, step: Step) -> Command[Any]:
        return self.record(step) if isinstance(step, Call) else self.report(step)

    def record(self, call: Call) -> Command[Tally]:
        session, signature, call_id, bounds, args = call
        if bounds.exempt:
            return self.peek(call)
        fixed: tuple[str | int, ...] = (bounds.tool, bounds.window, self._ttl)
        last = () if args is None else (args,)
        # A server takes its time for every argument: those that say nothing are left out.
        if last or bounds.max_age or bounds.pace or bounds.stop:
            fixed = (*fixed, bounds.max_age, bounds.pace, bounds.stop, bounds.halt_reason)
        keys = self._keys(self.namespace, session)
        return new_tuple(Command, (RECORD, keys, (signature, call_id), fixed, _tally, last))

    def peek(self, call: Call) -> Command[Tally]:
        bounds = call.bounds
        fixed = (bounds.tool, bounds.window, bounds.max_age, bounds.pace)
        return Command(PEEK, self._keys(self.namespace, call.session), (call.signature,), fixed, _tally)

    def report(self, report: Report) -> Command[None]:
        if report.exempt:
            return self.progress(report.session, report.signature, report.member)
        varying = (report.signature, report.call_id, report.result)
        flags = (int(report.ok), int(report.progress), int(report.stagnates))
        fixed = (report.tool, report.max_age, *flags, self._ttl)
        return Command(REPORT, self._keys(self.namespace, report.session), varying, fixed, _nothing)

    def progress(self, session: str, owner: str, token: str) -> Command[None]:
        return self._control(session, "progress", owner, token)

    def halt(self, session: str, reason: str) -> Command[None]:
        return self._control(session, "halt", reason)

    def resume(self, session: str) -> Command[None]:
        return self._control(session, "resume", "")

    def reset(self, session: str) -> Command[None]:
        return self._control(session, "reset", "")

    def _control(self, session: str, op: str, value: str, token: str = "") -> Command[None]:
        return Command(CONTROL, self._keys(self.namespace, session), (op, token), (self._ttl,), _nothing, (value,))

    def contents(self, session: str) -> Command[Contents]:
        return Command(SNAPSHOT, self._keys(self.namespace, session), (), (), _contents)


def text_of(value: Any) -> str:
    """A reply's string: bytes, or text where the user's client decodes; what is no UTF-8 keeps its place."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _nothing(_: Any) -> None:
    return None


# Most calls are answered with one of a few texts.
@lru_cache(maxsize=4096)
def _tally(reply: Any) -> Tally:
    text = text_of(reply)
    try:
        repeats, total, size, failed, stagnant, duplicate, halted = text.split(" ", 6)
        counted = int(repeats), int(total), int(size), int(failed), int(stagnant)
    except ValueError:
        raise ValueError(f"no tally: {text[:80]!r}") from None
    return Tally(*counted, halted or None, duplicate == "1")


def _contents(reply: Any) -> Contents:
    """What a snapshot holds; ValueError where it holds what loopfence did not write."""
    try:
        now, ttl, calls, counts, state, args = reply
        fields = _pairs(state)
        totals = {signature: int(count) for signature, count in _pairs(counts).items()}
        runs = {name[5:]: value.split(" ") for name, value in fields.items() if name.startswith("tool:")}
        epoch = fields.get("epoch", "0")
        return Contents(
            entries=[_entry(member, score, fields) for member, score in _pairs(calls).items()],
            repeats={signature: total - _discounted(fields, signature, total) for signature, total in totals.items()},
            streaks={t: Streak(int(run[1]), int(run[2]), int(run[4])) for t, run in runs.items() if run[0] == epoch},
            texts=_pairs(args),
            halted=fields.get("halted") or None,
            now=int(text_of(now)),
            ttl=ttl if ttl >= 0 else None,
        )
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(str(error)) from None


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

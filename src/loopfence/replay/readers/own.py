"""loopfence's own JSON lines: one call a row.

Fields: `session`, `seq`, `tool`, `args`, `result` or `result_hash`, `ok`, `ts` (seconds), `run`, `agent`,
`batch` (the model turn), `outcome`. Only `tool` is needed. A row with a `seq` that equals an earlier row byte
for byte is that row again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopfence.replay.calls import UNKNOWN, Call
from loopfence.replay.source import seconds_of, text_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source


def matches(document: Any) -> bool:
    """Whether this is a row of the format."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("tool"), str)
        and not document.keys().isdisjoint(("args", "seq", "session"))
    )


def read(documents: Iterable[Document], source: Source) -> Iterator[Call]:
    """The calls of the rows, in their order."""
    for line, row, raw in documents:
        tool = row.get("tool") if isinstance(row, dict) else None
        if not isinstance(tool, str) or not tool:
            source.problem(line, "no tool named")
            continue
        get = row.get
        session, ts = get("session"), get("ts")
        # a row a call: what most rows leave out is not worth a function call each
        run, agent, batch, call_id, outcome = get("run"), get("agent"), get("batch"), get("id"), get("outcome")
        yield Call(
            session if type(session) is str and session else text_or_none(session) or source.name,
            tool,
            get("args"),
            row["result"] if "result" in row else get("result_hash", UNKNOWN),
            get("ok") is not False,
            ts if ts is None else seconds_of(ts),
            run if run is None else text_or_none(run),
            agent if agent is None else text_or_none(agent),
            batch if batch is None else text_or_none(batch),
            call_id if call_id is None else text_or_none(call_id),
            None,
            outcome if outcome is None else text_or_none(outcome),
            hash(raw) if raw and "seq" in row else None,
        )

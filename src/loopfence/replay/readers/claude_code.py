"""Claude Code session logs: one record a line; sub-agents in files of their own or as side chains."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from loopfence.replay.calls import Call, Pairing, Turn
from loopfence.replay.messages import anthropic_calls, blocks_of, holds_user_words, take_anthropic_results
from loopfence.replay.source import seconds_of, text_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source

_KNOWN: Final = frozenset(
    (
        *("user", "assistant", "system", "attachment", "summary", "progress", "queue-operation", "ai-title"),
        *("file-history-snapshot", "custom-title", "last-prompt", "agent-name", "permission-mode", "mode"),
        *("pr-link", "tag", "started", "result"),
    )
)


_KNOWN_BLOCKS: Final = re.compile(r"text|(redacted_)?thinking|image|document|fallback|.*tool_(use|result)")


def matches(document: Any) -> bool:
    """Whether this is a record of a session log."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("type"), str)
        and not document.keys().isdisjoint(("sessionId", "leafUuid"))
        and "payload" not in document
    )


@dataclass
class _Agent:
    """The main agent of a session, or one sub-agent."""

    session: str
    name: str | None
    calls: Pairing = field(default_factory=Pairing)


@dataclass
class _Log:
    """What is known of one file while it is read."""

    source: Source
    agents: dict[tuple[str, str | None], _Agent] = field(default_factory=dict)
    records: set[str] = field(default_factory=set)
    chains: dict[str, str] = field(default_factory=dict)
    """Record -> the root of its side chain."""
    early: dict[str, tuple[Mapping[str, Any], int]] = field(default_factory=dict)
    """Tool-call id -> a result block that stood before its call, and its line."""

    def agent_of(self, record: dict[str, Any]) -> _Agent:
        session = text_or_none(record.get("sessionId")) or self.source.name
        name = text_or_none(record.get("agentId"))
        if name is None and record.get("isSidechain") is True:
            uuid = text_or_none(record.get("uuid")) or ""
            parent = text_or_none(record.get("parentUuid"))
            name = self.chains[uuid] = self.chains.get(parent or "", uuid)
        return self.agents.setdefault((session, name), _Agent(session, name))

    def seen_before(self, record: dict[str, Any]) -> bool:
        """Whether a record with this uuid was read from this file already."""
        uuid = record.get("uuid")
        if not isinstance(uuid, str):
            return False
        if uuid in self.records:
            return True
        self.records.add(uuid)
        return False


def read(documents: Iterable[Document], source: Source) -> Iterator[Call | Turn]:
    """The calls of the main agent and its sub-agents; user prompts and compactions are turns.

    A call's model turn is its message id, its identity that id and the tool-call id: a resumed session that
    holds a copy of the one before adds only what is new.
    """
    log = _Log(source)
    for line, record, _ in documents:
        if not isinstance(record, dict) or not isinstance(record.get("type"), str):
            source.problem(line, "no session record")
        elif record["type"] not in _KNOWN:
            source.problem(line, f"unknown record: {record['type'][:40]}")
        elif record["type"] in ("user", "assistant", "system") and not log.seen_before(record):
            yield from _record(log, log.agent_of(record), record, line)
    for agent in log.agents.values():
        yield from agent.calls.flush()
    for _, line in log.early.values():
        source.problem(line, "result without a call")


def _record(log: _Log, agent: _Agent, record: dict[str, Any], line: int) -> Iterator[Call | Turn]:
    message = record.get("message")
    if record["type"] == "system":
        if record.get("subtype") == "compact_boundary":
            yield from _turn(agent, record, "compacted")
    elif not isinstance(message, dict):
        log.source.problem(line, "no message in the record")
    elif record["type"] == "assistant":
        for block in blocks_of(message):
            kind = block.get("type") if isinstance(block, dict) else "text"
            if not isinstance(kind, str) or not _KNOWN_BLOCKS.fullmatch(kind):
                log.source.problem(line, f"unknown block: {str(kind)[:40]}")
        yield from _calls(log, agent, record, message)
    else:
        blocks = blocks_of(message)
        for block in take_anthropic_results(agent.calls, blocks):
            log.early[str(block.get("tool_use_id"))] = (block, line)
        if holds_user_words(blocks) and not record.get("isMeta") and not record.get("isCompactSummary"):
            yield from _turn(agent, record, "user turn")


def _calls(log: _Log, agent: _Agent, record: dict[str, Any], message: dict[str, Any]) -> Iterator[Call | Turn]:
    turn = text_or_none(message.get("id"))
    for call in anthropic_calls(message, 0, batch=turn or str(record.get("uuid"))):
        call.session, call.agent = agent.session, agent.name
        call.position, call.ts = None, seconds_of(record.get("timestamp"))
        call.identity = None if call.id is None else hash((turn or record.get("timestamp"), call.id, call.tool))
        yield from agent.calls.add_call(call)
        if call.id in log.early:
            take_anthropic_results(agent.calls, [log.early.pop(call.id)[0]])


def _turn(agent: _Agent, record: dict[str, Any], why: str) -> Iterator[Call | Turn]:
    yield from agent.calls.flush()
    uuid = record.get("uuid")
    identity = hash(uuid) if isinstance(uuid, str) else None
    yield Turn(agent.session, seconds_of(record.get("timestamp")), None, agent.name, None, why, identity)

"""Anthropic histories: messages whose content holds `tool_use` and `tool_result` blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopfence.replay.messages import blocks_of, calls_of_anthropic_messages
from loopfence.replay.readers import histories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loopfence.replay.calls import Call, Turn
    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source


def matches(document: Any) -> bool:
    """Whether this is, or holds, a history in which Anthropic tool blocks are seen."""
    messages = histories.messages_of(document) or [document]
    blocks = (b for message in messages if histories.is_message(message) for b in blocks_of(message))
    return any(isinstance(b, dict) and b.get("type") in ("tool_use", "tool_result") for b in blocks)


def read(documents: Iterable[Document], source: Source) -> Iterator[Call | Turn]:
    """The calls and user turns of every history in the file."""
    return histories.read(documents, source, calls_of_anthropic_messages)

"""The registry of transcript formats: name, what a document of it looks like, and the reader of its calls.

To add a format, write a module with `matches(document) -> bool` and
`read(documents, source) -> Iterator[Call | Turn]`, and list it here; the first one that matches wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopfence.replay.readers import (
    anthropic_messages,
    claude_code,
    codex,
    openai_messages,
    otlp,
    own,
    swe_agent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from loopfence.replay.calls import Call, Turn
    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source


class Format(NamedTuple):
    """One transcript format."""

    name: str
    matches: Callable[[Any], bool]
    read: Callable[[Iterable[Document], Source], Iterator[Call | Turn]]


FORMATS: Final = {
    known.name: known
    for known in (
        Format("loopfence", own.matches, own.read),
        Format("codex", codex.matches, codex.read),
        Format("claude-code", claude_code.matches, claude_code.read),
        Format("otlp", otlp.matches, otlp.read),
        Format("swe-agent", swe_agent.matches, swe_agent.read),
        Format("anthropic", anthropic_messages.matches, anthropic_messages.read),
        Format("openai", openai_messages.matches, openai_messages.read),
    )
}


def format_of(document: Any) -> Format | None:
    """The format that this document is of; None when no reader knows it."""
    return next((known for known in FORMATS.values() if known.matches(document)), None)

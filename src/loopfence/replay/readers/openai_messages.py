"""OpenAI histories: chat messages with `tool_calls`, Responses items, objects that hold a list of either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopfence.replay.messages import calls_of_openai_messages
from loopfence.replay.readers import histories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loopfence.replay.calls import Call, Turn
    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source


def matches(document: Any) -> bool:
    """Whether this is, or holds, a history in which OpenAI tool calls are seen."""
    messages = histories.messages_of(document) or [document]
    return any(_shows_tools(message) for message in messages if histories.is_message(message))


def _shows_tools(message: dict[str, Any]) -> bool:
    kind = message.get("type")
    return (
        bool(message.get("tool_calls") or message.get("function_call"))
        or message.get("role") in ("tool", "function")
        or (isinstance(kind, str) and "_call" in kind)
    )


def read(documents: Iterable[Document], source: Source) -> Iterator[Call | Turn]:
    """The calls and user turns of every history in the file."""
    return histories.read(documents, source, calls_of_openai_messages)

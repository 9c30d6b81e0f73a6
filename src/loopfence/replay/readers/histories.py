"""Message histories as files hold them: lists of messages, objects around them, or one message a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from loopfence.replay.calls import Call, Turn
from loopfence.replay.source import outcome_of, text_or_none

if TYPE_CHECKING:
    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source

Parse = Callable[[Sequence[Any], str], Iterator[Call | Turn]]

_LISTS: Final = ("messages", "traj", "input", "conversation", "history", "items")
_WRAPPERS: Final = ("request", "body", "kwargs", "data")
_SESSIONS: Final = (
    "session_id",
    "session",
    "conversation_id",
    "thread_id",
    "litellm_session_id",
    "run_id",
    "id",
)


def messages_of(document: Any) -> Sequence[Any] | None:
    """The history in a document: itself, or the list it holds; None when there is none."""
    if isinstance(document, list):
        return document if any(is_message(item) for item in document) else None
    if not isinstance(document, dict):
        return None
    for name in _LISTS:
        listed = document.get(name)
        if isinstance(listed, list) and any(is_message(item) for item in listed):
            return listed
    inner = next((document[name] for name in _WRAPPERS if isinstance(document.get(name), dict)), None)
    return messages_of(inner) if inner is not None else None


def is_message(item: Any) -> bool:
    """Whether this is one message, or one Responses item, of a history."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return isinstance(item.get("role"), str) or (isinstance(kind, str) and "_call" in kind)


def read(documents: Iterable[Document], source: Source, parse: Parse) -> Iterator[Call | Turn]:
    """The calls of every history in a file.

    A session is named by the object around its list (`session_id`, `conversation_id`, `task_id` and `trial`,
    ...), else by the file and the history's number in it. In histories of one named session, as logged requests
    are, calls with equal position and id are one call. Messages that stand alone, one a line, are one history.
    """
    loose: list[Any] = []
    for number, (line, document, _) in enumerate(documents):
        if is_message(document) and messages_of(document) is None:
            loose.append(document)
            continue
        inner = document if isinstance(document, list) and messages_of(document) is None else [document]
        for index, record in enumerate(inner):
            messages = messages_of(record)
            if messages is None:
                source.problem(line, "no message history")
                continue
            yield from _calls(record, messages, f"{source.name}#{number + index}", parse)
    if loose:
        yield from parse(loose, source.name)


def _calls(record: Any, messages: Sequence[Any], fallback: str, parse: Parse) -> Iterator[Call | Turn]:
    about = record if isinstance(record, dict) else {}
    named = _session_of(about)
    outcome = outcome_of(about)
    for item in parse(messages, named or fallback):
        if isinstance(item, Call):
            item.outcome = outcome
            if named is not None and item.id is not None:
                item.identity = hash((named, item.position, item.id, item.tool))
        elif named is not None:
            item.identity = hash((named, item.position))
        yield item


def _session_of(record: dict[str, Any]) -> str | None:
    task = text_or_none(record.get("task_id"))
    if task is not None:
        trial = text_or_none(record.get("trial"))
        return f"task{task}" if trial is None else f"task{task}/trial{trial}"
    metadata = record.get("metadata")
    places = [record, metadata] if isinstance(metadata, dict) else [record]
    found = (text_or_none(place.get(name)) for place in places for name in _SESSIONS)
    return next((name for name in found if name is not None), None)

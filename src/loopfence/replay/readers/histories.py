"""Message histories as files hold them: lists of messages, objects around them, or one message a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
    are, what is sent again is the same call. Messages that stand alone, one a line, are one history.
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
    identities = _Identities(named) if named is not None else None
    for item in parse(messages, named or fallback):
        if isinstance(item, Call):
            item.outcome = outcome
        if identities is not None:
            item.identity = identities.of(item)
        yield item


class _Identities:
    """Tells the items of one named session apart, however often its history is sent again.

    A call is known by its id and content, and, as models reuse ids, by how many equal ones stand before it; a turn
    by the call it follows. Where an item stands is no part of it: that shifts when the oldest part is cut off.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._made: Counter[Hashable] = Counter()
        self._last: Hashable = None

    def of(self, item: Call | Turn) -> Hashable:
        """The item's identity; None for a call without an id, of which there may be many."""
        if isinstance(item, Call):
            if item.id is None:
                return None
            what: Hashable = (item.id, item.tool, repr(item.args))
            self._last = what
        else:
            what = ("turn", self._last)
        self._made[what] += 1
        return hash((self._session, what, self._made[what]))


def _session_of(record: dict[str, Any]) -> str | None:
    task = text_or_none(record.get("task_id"))
    if task is not None:
        trial = text_or_none(record.get("trial"))
        return f"task{task}" if trial is None else f"task{task}/trial{trial}"
    metadata = record.get("metadata")
    places = [record, metadata] if isinstance(metadata, dict) else [record]
    found = (text_or_none(place.get(name)) for place in places for name in _SESSIONS)
    return next((name for name in found if name is not None), None)

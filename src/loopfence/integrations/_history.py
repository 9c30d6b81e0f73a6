"""The events in an LLM request's own history, each under an id that stays the same however often it is re-sent."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from loopfence.errors import ArgsError
from loopfence.intent import plain_content
from loopfence.replay.calls import UNKNOWN, Call, Turn
from loopfence.replay.messages import calls_of_anthropic_messages, calls_of_openai_messages
from loopfence.settings import UNSET
from loopfence.signature import canonical_json, digest
from loopfence.store.keys import MAX_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

USER_TURN: Final = "(user turn)"
"""The tool under which a user's message enters the window; no model can call a tool of this name."""

# Coding agents put notes of their own beside tool results; they are not the user's words.
_REMINDER: Final = "<system-reminder>"
_ANTHROPIC_BLOCKS: Final = ("tool_use", "tool_result", "server_tool_use", "mcp_tool_use")


@dataclass(frozen=True, slots=True)
class Event:
    """A tool call that has run, or a user's turn, with what came of it."""

    tool: str
    args: Any
    call_id: str
    turn: int
    """The index of the message it stands in: equal for the calls of one model turn."""
    result: Any
    """UNSET where the history holds none."""
    ok: bool

    @property
    def is_call(self) -> bool:
        """Whether a tool was called, and not the user spoke."""
        return self.tool != USER_TURN

    @property
    def is_over(self) -> bool:
        """Whether it is known what came of it."""
        return self.result is not UNSET or not self.is_call


def events_of(request: Mapping[str, Any], most: int, secret: bytes | None = None) -> list[Event]:
    """The last `most` events of a request's history, oldest first; equal calls of one model turn are one.

    A call's id is made of its tool-call id, its content, and how many equal ones stand before it; a user turn is
    known by its words and the call it follows. The place in the list is not part of it: it shifts when an agent
    compacts its history or cuts off the oldest part. Ids that a model uses again (`call_0`), or leaves out, are
    told apart by the count alone. Where such ones are cut off, calls are taken for known that are new: the guard
    then misses repeats, and never makes up any.
    """
    messages = request.get("messages", request.get("input"))
    if not isinstance(messages, list):
        return []
    named = _recent(messages, most)
    known_by = [entry[:2] for entry in named]
    events = []
    for place in range(max(0, len(named) - most), len(named)):
        nth = known_by[:place].count(known_by[place])
        try:
            call_id = digest(canonical_json([*known_by[place], nth]), secret)
        except ArgsError:
            continue  # nested too deep to have a form, here and in the store
        events.append(_event(named[place][2], call_id))
    return events


_Named = tuple[str | None, list[Any], Call | Turn]


def _recent(messages: list[Any], most: int) -> list[_Named]:
    """The events of the end of a history, more than `most`; all of them where ids repeat or the history is short.

    Reading the whole of a long history takes milliseconds for each request.
    """
    start = len(messages) - 2 * most - 8
    if start > 0:
        named = _named(messages[start:])
        before = named[:-most]
        ids = [item.id for _, _, item in named if isinstance(item, Call)]
        alone = None not in ids and len(set(ids)) == len(ids) and not _stands_in(messages[:start], set(ids))
        # A turn is known by the call it follows: there must be one to see.
        if alone and any(isinstance(item, Call) for _, _, item in before):
            return named
    return _named(messages)


def _named(messages: list[Any]) -> list[_Named]:
    """Each call and user turn with the tool-call id it is known by, and what it is."""
    read = calls_of_anthropic_messages if _is_anthropic(messages) else calls_of_openai_messages
    named: list[_Named] = []
    latest: str | None = None
    for item in read(messages):
        if isinstance(item, Turn):
            words = _words(messages[item.position or 0])
            if words:
                named.append((latest, [USER_TURN, words], item))
        elif item.tool != USER_TURN and 0 < len(item.tool.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
            what = [item.tool, item.args]
            latest = item.id
            if what not in _siblings(item, named):
                named.append((item.id, what, item))
    return named


def _stands_in(messages: list[Any], ids: set[Any]) -> bool:
    """Whether one of these tool-call ids stands in the messages, read at a glance."""
    for message in messages:
        if not isinstance(message, dict):
            continue
        parts = message.get("tool_calls") or message.get("content")
        if isinstance(parts, list):
            for part in parts:
                if isinstance(part, dict) and isinstance(found := part.get("id"), str) and found in ids:
                    return True
        elif isinstance(found := message.get("call_id"), str) and found in ids:
            return True
    return False


def _siblings(item: Call, named: list[_Named]) -> list[Any]:
    """What the calls of the same model turn are, of those that stand at the end."""
    return [what for _, what, _ in takewhile(lambda other: _turn(other[2]) == _turn(item), reversed(named))]


def _turn(item: Call | Turn) -> int:
    batch = item.batch if isinstance(item, Call) else None
    return int(batch) if batch is not None else item.position or 0


def _event(item: Call | Turn, call_id: str) -> Event:
    if isinstance(item, Turn):
        # Each turn is its own signature: a user who says "go on" three times is not in a loop.
        return Event(USER_TURN, {"turn": call_id}, call_id, _turn(item), UNSET, ok=True)
    result = UNSET if item.result is UNKNOWN else item.result
    return Event(item.tool, item.args, call_id, _turn(item), result, item.ok)


def _words(message: Mapping[str, Any]) -> Any:
    """What the user said: the content without tool results, reminders of the agent's own and cache hints."""
    content = plain_content(message.get("content"))
    parts = content if isinstance(content, list) else [content]
    return [part for part in parts if part and not _is_tool_result(part) and not _is_reminder(part)]


def _is_tool_result(part: Any) -> bool:
    return isinstance(part, dict) and str(part.get("type")).endswith("tool_result")


def _is_reminder(part: Any) -> bool:
    return isinstance(part, str) and part.lstrip().startswith(_REMINDER)


def _is_anthropic(messages: list[Any]) -> bool:
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return any(isinstance(part, dict) and part.get("type") in _ANTHROPIC_BLOCKS for part in parts)

"""The events in an LLM request's own history, each under an id that stays the same however often it is re-sent."""

from __future__ import annotations

from collections import Counter
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


def events_of(request: Mapping[str, Any], most: int) -> list[Event]:
    """The last `most` events of a request's history, oldest first; equal calls of one model turn are one.

    An event's id is made of its tool-call id, its content, and how many equal ones stand before it. The place
    in the list is not part of it: it shifts when an agent compacts its history or cuts off the oldest part.
    Ids that a model uses again (`call_0`), or leaves out, are told apart by the count. Where such ones are cut
    off, calls are taken for known that are new: the guard then misses repeats, and never makes up any.
    """
    messages = request.get("messages", request.get("input"))
    if not isinstance(messages, list):
        return []
    read = calls_of_anthropic_messages if _is_anthropic(messages) else calls_of_openai_messages
    named = _named(read(messages), messages)
    uses = Counter(event_id for event_id, _, _ in named)
    events = []
    for place in range(max(0, len(named) - most), len(named)):
        event_id, what, item = named[place]
        before = named[:place] if uses[event_id] > 1 else []
        nth = sum(1 for other in before if other[0] == event_id and other[1] == what)
        try:
            call_id = digest(canonical_json([event_id, what, nth]))
        except ArgsError:
            continue  # nested too deep to have a form, here and in the store
        events.append(_event(item, call_id))
    return events


_Named = tuple[str | None, Any, Call | Turn]


def _named(items: Any, messages: list[Any]) -> list[_Named]:
    """Each call and user turn with its tool-call id and its content; no equal calls of one model turn."""
    named: list[_Named] = []
    for item in items:
        if isinstance(item, Turn):
            words = _words(messages[item.position or 0])
            if words:
                named.append((USER_TURN, words, item))
        elif item.tool != USER_TURN and 0 < len(item.tool.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
            what = [item.tool, item.args]
            if what not in _siblings(item, named):
                named.append((item.id, what, item))
    return named


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

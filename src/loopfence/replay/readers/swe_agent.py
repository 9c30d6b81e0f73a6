"""SWE-agent trajectories: the `trajectory` of actions and observations, else the `history` of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopfence.replay.calls import UNKNOWN, Call, Pairing, Turn
from loopfence.replay.messages import calls_of_openai_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source


def matches(document: Any) -> bool:
    """Whether this is a trajectory: steps with an action, or a history whose messages say what they are."""
    if not isinstance(document, dict):
        return False
    return any(
        isinstance(item, dict) and ("action" in item or "message_type" in item)
        for item in (*_steps(document, "trajectory"), *_steps(document, "history"))
    )


def _steps(document: dict[str, Any], name: str) -> Sequence[Any]:
    steps = document.get(name)
    return steps if isinstance(steps, list) else ()


def read(documents: Iterable[Document], source: Source) -> Iterator[Call | Turn]:
    """The calls of a run; the file is the session.

    Tool calls are taken from the history where the model made them; where it wrote commands as text, the
    first word is the tool and the whole command its argument. An observation is a result, no user's turn.
    """
    for number, (line, document, _) in enumerate(documents):
        if not matches(document):
            source.problem(line, "no trajectory")
            continue
        session = source.name if number == 0 else f"{source.name}#{number}"
        history = [_as_message(item) for item in _steps(document, "history") if isinstance(item, dict)]
        calls: Iterable[Call | Turn]
        if any(message.get("tool_calls") for message in history):
            calls = calls_of_openai_messages(history, session)
        else:
            calls = _commands(document, session)
        outcome = _outcome(document)
        for item in calls:
            if isinstance(item, Call):
                item.outcome = outcome
            yield item


def _as_message(item: dict[str, Any]) -> dict[str, Any]:
    """A history entry as a chat message: observations answer calls, demonstrations are nobody's calls."""
    if item.get("is_demo") is True:
        return {}
    if item.get("message_type") == "observation":
        ids = item.get("tool_call_ids")
        answered = ids[0] if isinstance(ids, list) and ids else None
        return {"role": "tool", "content": item.get("content"), "tool_call_id": answered}
    return item


def _commands(document: dict[str, Any], session: str) -> Iterator[Call]:
    """The actions as commands: from the trajectory, where it is kept, else from the history."""
    steps = _steps(document, "trajectory")
    if steps:
        for position, step in enumerate(steps):
            if isinstance(step, dict) and _is_action(step.get("action")):
                yield _command(session, step["action"], position, step.get("observation", UNKNOWN))
        return
    pairing = Pairing()
    for position, item in enumerate(_steps(document, "history")):
        if not isinstance(item, dict) or item.get("is_demo") is True:
            continue
        if item.get("role") == "assistant" and _is_action(item.get("action")):
            yield from pairing.add_call(_command(session, item["action"], position, UNKNOWN))
        elif item.get("role") in ("user", "tool"):
            pairing.add_result(None, item.get("content"), ok=True)
    yield from pairing.flush()


def _is_action(action: Any) -> bool:
    return isinstance(action, str) and bool(action.strip())


def _command(session: str, action: str, position: int, result: Any) -> Call:
    command = action.strip()
    return Call(
        session,
        command.split(None, 1)[0],
        {"command": command},
        result,
        position=position,
        batch=str(position),
    )


def _outcome(document: dict[str, Any]) -> str | None:
    """Resolved or not, where an evaluation wrote it down; handing in a patch is neither."""
    info = document.get("info")
    verdict = info.get("resolved", document.get("resolved")) if isinstance(info, dict) else None
    return ("unresolved", "resolved")[verdict] if isinstance(verdict, bool) else None

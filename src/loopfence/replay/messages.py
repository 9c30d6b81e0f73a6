"""Tool calls in the message histories of LLM requests: OpenAI chat and responses, Anthropic messages.

Both functions take an already parsed list of messages and yield its calls and user turns in order. They
import nothing outside the standard library, so a proxy can use them on every request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from loopfence.replay.calls import UNKNOWN, Call, Pairing, Turn
from loopfence.replay.source import seconds_of

_Step = Callable[[Pairing, Mapping[str, Any], int], Iterator[Call | Turn]]


def calls_of_openai_messages(messages: Sequence[Any], session: str = "") -> Iterator[Call | Turn]:
    """The calls of an OpenAI history: chat messages with `tool_calls` or `function_call`, Responses items.

    Each call carries its tool-call id, the index of the message that made it as `position`, and its result
    where the history holds one. Calls of one assistant message, or of items with no output between them,
    share a `batch`. A user message is a Turn. Arguments that are no JSON stay a string; what is no message is
    passed over.
    """
    return _walk(messages, session, _openai_step)


def calls_of_anthropic_messages(messages: Sequence[Any], session: str = "") -> Iterator[Call | Turn]:
    """The tool calls of an Anthropic history (`tool_use` and `tool_result` blocks), as above.

    A user message that holds only tool results, or a coding agent's reminders, is no Turn; one that holds other
    text or an image is one, after the results. `is_error` makes a call failed.
    """
    return _walk(messages, session, _anthropic_step)


def arguments_of(raw: Any) -> Any:
    """Arguments as a value: a JSON string is parsed, None and "" are `{}`, the rest stays as it is."""
    if raw is None or raw == "":
        return {}
    if not isinstance(raw, str):
        return raw
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw


def text_of(content: Any) -> Any:
    """A result as it is compared: a list of only text parts is their joined text, the rest stays itself."""
    if not isinstance(content, list):
        return content
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else content


def _walk(messages: Sequence[Any], session: str, step: _Step) -> Iterator[Call | Turn]:
    pairing = Pairing()
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            continue
        for item in step(pairing, message, position):
            item.session = session
            yield item
    for call in pairing.flush():
        call.session = session
        yield call


def _openai_step(pairing: Pairing, message: Mapping[str, Any], position: int) -> Iterator[Call | Turn]:
    role, kind = message.get("role"), message.get("type")
    if role == "assistant" and kind in (None, "message"):
        yield from pairing.flush()
        for call in _chat_calls(message, position):
            yield from pairing.add_call(call)
    elif role in ("tool", "function"):
        _take_result(pairing, message.get("tool_call_id"), message.get("content"), message.get("status"))
    elif role == "user":
        yield from pairing.flush()
        yield _turn(message, position)
    elif isinstance(kind, str):
        yield from _responses_step(pairing, message, kind, position)


def _chat_calls(message: Mapping[str, Any], position: int) -> Iterator[Call]:
    listed = message.get("tool_calls")
    entries = listed if isinstance(listed, list) else []
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        entries = [*entries, {"function": legacy}]
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        body = entry.get("function") or entry.get("custom") or entry
        if isinstance(body, Mapping) and isinstance(body.get("name"), str):
            raw = body.get("arguments", body.get("input", body.get("args")))
            call = _call(body["name"], raw, entry.get("id"), position, batch=str(position))
            call.ts = _moment(message)
            yield call


_SHELL_ITEMS = {"local_shell_call": "local_shell", "shell_call": "shell", "apply_patch_call": "apply_patch"}


def _responses_step(pairing: Pairing, item: Mapping[str, Any], kind: str, position: int) -> Iterator[Call | Turn]:
    if kind.endswith("_call_output"):
        _take_result(pairing, item.get("call_id"), item.get("output"), item.get("status"))
        return
    if kind in ("function_call", "custom_tool_call", "mcp_call"):
        name, raw = item.get("name"), item.get("arguments", item.get("input"))
    elif kind in _SHELL_ITEMS:
        name, raw = _SHELL_ITEMS[kind], item.get("action", item.get("operation"))
    else:
        return
    if not isinstance(name, str):
        return
    call = _call(name, raw, item.get("call_id", item.get("id")), position, batch=str(pairing.turn(position)))
    yield from pairing.add_call(call)
    if kind == "mcp_call" and (item.get("output") is not None or item.get("error") is not None):
        call.result, call.ok = item.get("output") or item.get("error"), item.get("error") is None


def _take_result(pairing: Pairing, call_id: Any, content: Any, status: Any) -> None:
    ok = status not in ("error", "failed", "incomplete")
    pairing.add_result(call_id if isinstance(call_id, str) else None, text_of(content), ok=ok)


def _anthropic_step(pairing: Pairing, message: Mapping[str, Any], position: int) -> Iterator[Call | Turn]:
    blocks = blocks_of(message)
    if message.get("role") == "assistant":
        yield from pairing.flush()
        for call in anthropic_calls(message, position, batch=str(position)):
            yield from pairing.add_call(call)
    take_anthropic_results(pairing, blocks)
    if message.get("role") == "user" and holds_user_words(blocks):
        yield from pairing.flush()
        yield _turn(message, position)


_TOOL_USES = ("tool_use", "server_tool_use", "mcp_tool_use")


def anthropic_calls(message: Mapping[str, Any], position: int, *, batch: str) -> Iterator[Call]:
    """The calls among the content blocks of one assistant message, tools on the server's side included."""
    for block in blocks_of(message):
        if _kind(block) in _TOOL_USES and isinstance(block.get("name"), str):
            call = _call(block["name"], block.get("input"), block.get("id"), position, batch=batch)
            call.ts = _moment(message)
            yield call


def take_anthropic_results(pairing: Pairing, blocks: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Hands the results among these content blocks to their calls; returns those that no open call claims."""
    unclaimed = []
    for block in blocks:
        if _kind(block).endswith("tool_result"):
            result, ok = text_of(block.get("content")), block.get("is_error") is not True
            if pairing.add_result(block.get("tool_use_id"), result, ok=ok) is None:
                unclaimed.append(block)
    return unclaimed


def blocks_of(message: Mapping[str, Any]) -> Sequence[Any]:
    """The content blocks of a message; content that is one string is one block."""
    content = message.get("content")
    return content if isinstance(content, list) else [content]


def holds_user_words(blocks: Sequence[Any]) -> bool:
    """Whether the content of a user message holds anything but tool results and a harness's own reminders."""
    return any(not _kind(block).endswith("tool_result") and not _is_reminder(block) for block in blocks)


def _is_reminder(block: Any) -> bool:
    text = block.get("text") if isinstance(block, Mapping) else block
    return isinstance(text, str) and text.lstrip().startswith("<system-reminder>")


def _kind(block: Any) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _turn(message: Mapping[str, Any], position: int) -> Turn:
    return Turn("", _moment(message), position=position)


def _moment(message: Mapping[str, Any]) -> float | None:
    """When a message was written, where a log notes it beside the message."""
    return seconds_of(message.get("timestamp", message.get("created_at")))


def _call(name: str, raw: Any, call_id: Any, position: int, *, batch: str) -> Call:
    known = call_id if isinstance(call_id, str) else None
    return Call("", name, arguments_of(raw), UNKNOWN, batch=batch, id=known, position=position)

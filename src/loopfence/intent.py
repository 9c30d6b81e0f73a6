"""What an LLM request asks for, as one number: its messages, instructions and tools, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from xxhash import xxh3_64_intdigest

from loopfence.canonical import canonical_bytes, canonical_bytes_of_json
from loopfence.errors import ArgsError
from loopfence.parse import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable

# A request is reduced to these fields, in all dialects: what is not listed (model, temperature, top_p, seed,
# stream, user, metadata, token limits, whatever comes next) decides how it is answered, not what it asks for.
_TURNS: Final = ("messages", "contents", "input")
_INSTRUCTIONS: Final = ("system", "instructions", "systemInstruction")
_TOOLS: Final = ("tools", "functions")
# Plain prompts, and conversations that are named, not sent: the same words in another are another request.
_VERBATIM: Final = ("prompt", "suffix", "images", "context",
                    "previous_response_id", "conversation", "cachedContent")  # fmt: skip
_OTHER_SPELLING: Final = {
    "system_instruction": "systemInstruction",
    "cached_content": "cachedContent",
}
REQUEST_FIELDS: Final = (*_TURNS, *_INSTRUCTIONS, *_TOOLS, *_VERBATIM, *_OTHER_SPELLING, "model")
"""All that an LLM request is known by."""

_TEXT_PARTS: Final = ("text", "input_text", "output_text")
# Items that carry their own content, so that their id says nothing; other items are named by it.
_ID_IS_TRANSPORT: Final = ("message", "reasoning", "function_call", "function_call_output",
                           "custom_tool_call", "custom_tool_call_output")  # fmt: skip

_OF_ITEMS: Final = frozenset({"type", "id", "status", "call_id", "parts"})


def intent_fingerprint(path: str, body: bytes) -> int:
    """The fingerprint (unsigned, 64 bits) of a request's intent: equal for equal questions, however sent.

    `path` is the URL's path without its query. `body` is the request as it came: OpenAI chat completions or
    responses, Anthropic messages, Gemini generateContent or Ollama. Sampling and transport fields, key order,
    whitespace, cache hints, made-up message and tool-call ids, and a string against a single text part make
    no difference; another path, message, role, system prompt or tool does. A body that is no LLM request, or
    no JSON, counts byte by byte. Never raises on any body.
    """
    request = llm_request(body)
    if request is not None:
        try:
            return request_fingerprint(path, request)
        except ArgsError:
            pass  # deeper than any request
    return xxh3_64_intdigest(canonical_bytes(path) + b"\n" + body)


def llm_request(body: bytes) -> dict[str, Any] | None:
    """The parsed body of an LLM request in any of the dialects; None for anything else."""
    try:
        request = parse_json(body)
    except ValueError:
        return None
    return request if isinstance(request, dict) and _is_llm_request(_asked(request)) else None


def intent_fingerprint_value(path: str, value: Any) -> int:
    """The same fingerprint for a body that is parsed already.

    One that is no LLM request counts by its canonical JSON; ArgsError where it has none.
    """
    intent = _intent(value)
    return xxh3_64_intdigest(canonical_bytes({path: value} if intent is None else [path, intent]))


def request_fingerprint(path: str, request: dict[str, Any]) -> int:
    """The same fingerprint, several times faster, for an LLM request that `llm_request` or another JSON parser made.

    ArgsError where it is nested too deep.
    """
    return xxh3_64_intdigest(canonical_bytes_of_json([path, _intent(request)]))


def _intent(request: Any) -> dict[str, Any] | None:
    """The fields that say what is asked, each in one form; None where the value is no LLM request."""
    if not isinstance(request, dict):
        return None
    asked = _asked(request)
    if not _is_llm_request(asked):
        return None
    history = _History()
    forms = ((_VERBATIM, _same), (_INSTRUCTIONS, history.content), (_TURNS, history.turns), (_TOOLS, _tools))
    return {name: form(asked[name]) for names, form in forms for name in names if name in asked}


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    return {_OTHER_SPELLING.get(name) or name: value for name, value in request.items() if value}


def _is_llm_request(asked: dict[str, Any]) -> bool:
    for name in ("messages", "contents"):
        turns = asked.get(name)
        if isinstance(turns, list) and isinstance(turns[0], dict):
            return True
    # `input` and `prompt` are common words: alone they do not make a request to a model.
    if isinstance(asked.get("model"), str):
        return "input" in asked or "prompt" in asked
    return isinstance(asked.get("prompt"), dict) and "id" in asked["prompt"]


class _History:
    """The turns of one request; a call's id becomes its number, since models make up a new id each time."""

    def __init__(self) -> None:
        self._calls: dict[str, int] = {}
        self._forms: dict[str, Callable[[Any], Any]] = {
            "content": self.content,
            "output": self.content,
            "tool_calls": self._tool_calls,
        }

    def turns(self, turns: Any) -> Any:
        if isinstance(turns, str):
            return [{"role": "user", "content": turns}]
        return _each(turns, self._turn)

    def content(self, content: Any) -> Any:
        if isinstance(content, str):
            return content
        if isinstance(content, dict) and "parts" in content:
            content = content["parts"]
        return _single(_each(content, self._part))

    def _turn(self, turn: dict[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for name, value in turn.items():
            if type(value) is str:  # most are, and are what they are
                told[name] = self._answered(value) if name == "tool_call_id" else value
            elif value is not None and value != [] and name != "cache_control":
                form = self._forms.get(name)
                told[name] = value if form is None else form(value)
        if _OF_ITEMS.isdisjoint(told):
            return told
        return self._item(told)

    def _item(self, told: dict[str, Any]) -> dict[str, Any]:
        """Settle what is an item's own, of the Responses API, or a turn's of Gemini."""
        kind = told.get("type", "message")
        kind = kind if isinstance(kind, str) else ""
        if kind in _ID_IS_TRANSPORT:
            told.pop("id", None)
            told.pop("status", None)
        if kind == "message":
            told.pop("type", None)
        if "parts" in told:
            told["content"] = self.content(told.pop("parts"))
            told.setdefault("role", "user")
        if "call_id" in told:
            number = self._answered if kind.endswith("_output") else self._called
            told["call_id"] = number(told["call_id"])
        return told

    def _part(self, part: dict[str, Any]) -> Any:
        told = _text_or_told(part)
        if isinstance(told, str):
            return told
        kind = told.get("type")
        if kind == "tool_use" and "id" in told:
            told["id"] = self._called(told["id"])
        elif kind == "tool_result":
            for name, form in (("tool_use_id", self._answered), ("content", plain_content)):
                if name in told:
                    told[name] = form(told[name])
        for name, number in (("functionCall", self._called), ("functionResponse", self._answered)):
            if isinstance(told.get(name), dict):
                told[name] = _numbered(told[name], number)
        return told

    def _tool_calls(self, calls: Any) -> Any:
        if not isinstance(calls, list):
            return calls
        return [_numbered(call, self._called) if isinstance(call, dict) else call for call in calls]

    def _called(self, call_id: Any) -> Any:
        return self._calls.setdefault(call_id, len(self._calls)) if isinstance(call_id, str) else call_id

    def _answered(self, call_id: Any) -> Any:
        # The id of a call that stands in an earlier request says which conversation this is: it stays.
        return self._calls.get(call_id, call_id) if isinstance(call_id, str) else call_id


def plain_content(content: Any) -> Any:
    """The content of a result or a message in its one form: text parts are strings, a single one is all of it."""
    return _single(_each(content, _text_or_told))


def _single(parts: Any) -> Any:
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return parts


def _text_or_told(part: dict[str, Any]) -> Any:
    told = _told(part)
    text, others = told.get("text"), len(told) - 1
    if isinstance(text, str) and (others == 0 or (others == 1 and told.get("type") in _TEXT_PARTS)):
        return text
    return told


def _numbered(call: dict[str, Any], number: Callable[[Any], Any]) -> dict[str, Any]:
    told = _told(call)
    if "id" in told:
        told["id"] = number(told["id"])
    return told


def _each(items: Any, form: Any) -> Any:
    """A list with `form` applied to its objects; anything else as it is."""
    if not isinstance(items, list):
        return items
    return [form(item) if isinstance(item, dict) else item for item in items]


def _tools(tools: Any) -> Any:
    return _each(tools, _told)


def _same(value: Any) -> Any:
    return value


def _told(item: dict[str, Any]) -> dict[str, Any]:
    """An object without cache hints and without what is only a default written out."""
    told = item.copy()
    for name, value in item.items():
        if value is None or value == [] or name == "cache_control":
            del told[name]
    return told

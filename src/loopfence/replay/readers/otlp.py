"""OpenTelemetry traces as OTLP JSON: tool spans of the `gen_ai.*` and of the OpenInference conventions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from loopfence.replay.calls import UNKNOWN, Call, Turn
from loopfence.replay.messages import arguments_of
from loopfence.replay.source import text_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loopfence.replay.documents import Document
    from loopfence.replay.source import Source

_SESSION: Final = ("gen_ai.conversation.id", "session.id")
_AGENT: Final = ("gen_ai.agent.name", "agent.name", "graph.node.id")
_TOOL: Final = ("gen_ai.tool.name", "tool.name")
_ARGUMENTS: Final = ("gen_ai.tool.call.arguments", "tool_arguments", "input.value")
_RESULT: Final = ("gen_ai.tool.call.result", "tool_response", "output.value")


def matches(document: Any) -> bool:
    """Whether this is an export of spans."""
    return isinstance(document, dict) and ("resourceSpans" in document or "resource_spans" in document)


@dataclass(slots=True)
class _Span:
    """What a replay needs of a span; the rest of it is let go at once."""

    id: str
    parent: str
    start: int
    line: int
    role: str
    """tool, model, agent or other."""
    named: dict[str, Any]
    failed: bool


@dataclass(slots=True)
class _Trace:
    spans: dict[str, _Span] = field(default_factory=dict)
    ended: bool = False

    def above(self, span: _Span, names: tuple[str, ...]) -> str | None:
        """The first of these attributes on the span, else on the nearest span around it."""
        seen = set()
        at: _Span | None = span
        while at is not None and at.id not in seen:
            seen.add(at.id)
            value = next((text_or_none(at.named[name]) for name in names if name in at.named), None)
            if value is not None:
                return value
            at = self.spans.get(at.parent)
        return None


def read(documents: Iterable[Document], source: Source) -> Iterator[Call | Turn]:
    """The tool spans of every trace in the order in which they started.

    A session is a conversation (`gen_ai.conversation.id`, `session.id`), else a trace; within it each agent
    is told apart. A trace whose root is an agent is a turn of its session. A tool span without recorded
    arguments is a problem: nobody can tell whether it was the same call. A trace is held until its root span
    has come.
    """
    traces: dict[str, _Trace] = {}
    for line, export, _ in documents:
        if not matches(export):
            source.problem(line, "no export of spans")
            continue
        for raw in _spans_of(export):
            name, span = text_or_none(raw.get("traceId", raw.get("trace_id"))), _span(raw, line)
            if name is None or span is None:
                source.problem(line, "no usable span")
                continue
            trace = traces.setdefault(name, _Trace())
            trace.spans[span.id] = span
            trace.ended = trace.ended or not span.parent
        for ended in [name for name, trace in traces.items() if trace.ended]:
            yield from _calls(ended, traces.pop(ended), source)
    for name, trace in traces.items():
        yield from _calls(name, trace, source)


def _spans_of(export: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in _dicts(export.get("resourceSpans", export.get("resource_spans"))):
        for scope in _dicts(resource.get("scopeSpans", resource.get("scope_spans"))):
            yield from _dicts(scope.get("spans"))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _span(raw: dict[str, Any], line: int) -> _Span | None:
    span_id = text_or_none(raw.get("spanId", raw.get("span_id")))
    try:
        start = int(raw.get("startTimeUnixNano", raw.get("start_time_unix_nano", 0)))
    except (TypeError, ValueError):
        return None
    if span_id is None:
        return None
    attributes = {
        pair["key"]: _value(pair.get("value"))
        for pair in _dicts(raw.get("attributes"))
        if isinstance(pair.get("key"), str)
    }
    role = _role(attributes)
    kept = (*_SESSION, *_AGENT) if role != "tool" else (*_SESSION, *_AGENT, *_TOOL, *_ARGUMENTS, *_RESULT)
    named = {name: attributes[name] for name in (*kept, "gen_ai.tool.call.id") if name in attributes}
    status = raw.get("status")
    code = status.get("code") if isinstance(status, dict) else None
    failed = code in (2, "STATUS_CODE_ERROR") or "error.type" in attributes
    parent = text_or_none(raw.get("parentSpanId", raw.get("parent_span_id"))) or ""
    return _Span(span_id, parent, start, line, role, named, failed)


def _role(attributes: dict[str, Any]) -> str:
    operation, kind = attributes.get("gen_ai.operation.name"), attributes.get("openinference.span.kind")
    if operation == "execute_tool" or kind == "TOOL" or "gen_ai.tool.name" in attributes:
        return "tool"
    if operation in ("chat", "generate_content", "text_completion") or kind == "LLM":
        return "model"
    if operation in ("invoke_agent", "create_agent") or kind in ("AGENT", "CHAIN"):
        return "agent"
    return "other"


def _value(value: Any) -> Any:
    """The value in an OTLP AnyValue."""
    if not isinstance(value, dict):
        return None
    for kind, held in value.items():
        if kind == "intValue" and isinstance(held, str):
            return int(held) if held.lstrip("-").isdecimal() else held
        if kind == "arrayValue":
            return [_value(item) for item in _dicts(held.get("values"))] if isinstance(held, dict) else []
        if kind == "kvlistValue":
            pairs = _dicts(held.get("values")) if isinstance(held, dict) else []
            return {str(pair.get("key")): _value(pair.get("value")) for pair in pairs}
        return held
    return None


def _calls(name: str, trace: _Trace, source: Source) -> Iterator[Call | Turn]:
    spans = sorted(trace.spans.values(), key=lambda span: span.start)
    asked = any(span.role == "agent" and not span.parent for span in spans)
    batches: dict[tuple[str, str | None], str] = {}
    begun: set[tuple[str, str | None]] = set()
    for span in spans:
        who = (trace.above(span, _SESSION) or name, trace.above(span, _AGENT))
        if span.role == "model":
            batches[who] = span.id
        elif span.role == "tool":
            call = _call(span, *who)
            if call is None:
                source.problem(span.line, "tool span without a name or arguments")
                continue
            if asked and who not in begun:
                begun.add(who)
                yield Turn(who[0], call.ts, None, who[1], identity=hash((name, who)))
            call.batch = batches.get(who)
            call.identity = hash((name, span.id))
            yield call


def _call(span: _Span, session: str, agent: str | None) -> Call | None:
    tool = next((span.named[name] for name in _TOOL if name in span.named), None)
    arguments = next((span.named[name] for name in _ARGUMENTS if name in span.named), UNKNOWN)
    if not isinstance(tool, str) or not tool or arguments is UNKNOWN:
        return None
    return Call(
        session,
        tool,
        arguments_of(arguments),
        next((span.named[name] for name in _RESULT if name in span.named), UNKNOWN),
        not span.failed,
        span.start / 1e9,
        agent=agent,
        id=text_or_none(span.named.get("gen_ai.tool.call.id")),
    )

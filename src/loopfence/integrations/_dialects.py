"""How each LLM API says that a request was refused, so that its client library raises the error it has for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopfence.integrations._requests import Refusal


def error_body(refusal: Refusal, session: str, path: str) -> dict[str, Any]:
    """The JSON body of the refusal in the dialect that is spoken at this path."""
    message = f"{refusal.reason}; session {session!r}"
    if path.endswith("/messages"):
        return _anthropic(refusal, message)
    if ":generateContent" in path or ":streamGenerateContent" in path:
        return _gemini(refusal, message, session)
    if path.endswith(("/api/chat", "/api/generate")):
        return {"error": message}
    return _openai(refusal, message, session)


def status(refusal: Refusal) -> int:
    """400 for a loop: client libraries do not repeat it, as they do with 429; 503 where nothing was judged."""
    return 400 if refusal.code == "loop_detected" else 503


def _openai(refusal: Refusal, message: str, session: str) -> dict[str, Any]:
    kind = "invalid_request_error" if refusal.code == "loop_detected" else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": refusal.code, "session": session}
    return {"error": error}


def _anthropic(refusal: Refusal, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if refusal.code == "loop_detected" else "api_error"
    return {"type": "error", "error": {"type": kind, "message": message}}


def _gemini(refusal: Refusal, message: str, session: str) -> dict[str, Any]:
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": refusal.code.upper(),
        "domain": "loopfence",
        "metadata": {"session": session},
    }
    state = "FAILED_PRECONDITION" if refusal.code == "loop_detected" else "UNAVAILABLE"
    return {"error": {"code": status(refusal), "message": message, "status": state, "details": [detail]}}

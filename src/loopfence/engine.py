"""What sync and async share: from arguments to a request, and from a store's answer to a verdict. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loopfence.call_ids import new_id
from loopfence.errors import ConfigError
from loopfence.policy import Limits, micros
from loopfence.results import is_null, result_digest
from loopfence.settings import UNSET, Settings
from loopfence.signature import args_bytes, digest, digest_bytes, select_fields
from loopfence.store.keys import encode, encode_name
from loopfence.store.tally import Bounds, Call, Report, Tally, new_tuple
from loopfence.verdict import ALLOW, BLOCK, STOP, VERDICT_FIELDS, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CALL_ID = 16
MAX_KEPT_ARGS = 4096
_MAX_TOOLS = 1024


class Named(NamedTuple):
    """A session's id as the caller gave it, and as it stands in keys."""

    id: str
    key: str


class Tool(NamedTuple):
    """What is the same for every call of one tool, worked out once."""

    limits: Limits
    bounds: Bounds
    makes_progress: bool
    """Whether a success of any of its calls may be progress."""
    verdict: dict[str, Any]
    """The verdict on a call of it that is allowed, without what differs from call to call."""


class Question(NamedTuple):
    """A call on its way to the store, with what the verdict on it needs."""

    call: Call
    tool: Tool
    verdict: dict[str, Any]
    """The verdict so far: all that is known before the store is asked.

    After a wait for Redis each line takes several times as long, as the processor's caches have gone cold.
    """


class Engine:
    """The pure half of a guard."""

    def __init__(self, settings: Settings) -> None:
        self.policy = settings.policy
        self._key, self._secret, self._keeps_args = settings.key, settings.secret, settings.keep_args
        self.max_age = micros(settings.policy.max_age)
        self._tools: dict[str, Tool] = {}

    def name(self, session_id: str) -> Named:
        """Check a session's id; ConfigError where it is empty, too long or no string."""
        return Named(session_id, encode_name("session", session_id))

    def ask(self, session: Named, name: str, args: Any, call_id: str | None) -> Question:
        """The request for one call of the tool `name`. ConfigError, ArgsError: the input is bad, nothing was sent."""
        if call_id is None:
            call_id = member_id = new_id()
        else:
            member_id = _stored_id(call_id)
        tool, signature, form = self.sign(name, args)
        kept = None
        if self._keeps_args:
            kept = form.decode() if len(form) <= MAX_KEPT_ARGS else form[:MAX_KEPT_ARGS].decode("utf-8", "ignore")
        call = new_tuple(Call, (session.key, signature, member_id, tool.bounds, kept))
        verdict = tool.verdict.copy()
        verdict["tool"] = name
        verdict["signature"] = signature
        verdict["session"] = session.id
        verdict["call_id"] = call_id
        if tool.makes_progress:
            verdict["progress"] = tool.limits.makes_progress(args)
        return new_tuple(Question, (call, tool, verdict))

    def sign(self, name: str, args: Any) -> tuple[Tool, str, bytes]:
        """The tool `name`, the signature of a call of it, and the text of the arguments that was signed."""
        tool = self._tool(name)
        key, limits = tool.bounds.tool, tool.limits
        if limits.selects:
            args = select_fields(args, limits.rule.ignore, limits.rule.only)
        if self._key is None:
            form = args_bytes(args)
        else:
            named, text = _checked_key(self._key(name, args))
            key, form = encode_name("tool", named), text.encode("utf-8", "surrogatepass")
        return tool, f"{key}:{digest_bytes(form, self._secret)}", form

    def ask_many(self, calls: Iterable[tuple[str, str, Any]]) -> list[Question]:
        """The requests for many (session id, tool, args)."""
        return [self.ask(self.name(session), tool, args, None) for session, tool, args in calls]

    def answer(self, question: Question, tally: Tally) -> Verdict:
        """The verdict on a call, from what the store counted."""
        _, tool, verdict = question
        repeats, total, size, failed, stagnant, halted, duplicate, source, degraded, _ = tally
        verdict["count"] = repeats
        verdict["total"] = total
        verdict["size"] = size
        verdict["duplicate"] = duplicate
        verdict["source"] = source
        verdict["degraded"] = degraded
        verdict["halted"] = halted
        if tool.bounds.exempt:
            verdict |= {"count": 0, "total": 0, "size": size - 1}
        level, rule, limit = judge(self.policy, tally, tool.limits)
        if rule is not None:
            enforce = self.policy.enforce
            verdict |= {"level": level, "rule": rule, "limit": limit}
            verdict["allowed"] = level < BLOCK or (not enforce and rule != "halted")
            verdict["streak"] = failed if rule == "failures" else stagnant if rule == "stagnation" else 0
            if rule == "repeat" and level is STOP and enforce:
                verdict["halted"] = tool.bounds.halt_reason
        return Verdict.of(verdict)

    def report(self, verdict: Verdict, result: Any, ok: bool) -> Report | None:  # noqa: FBT001 - as the caller names it
        """The report on a verdict's call; None where it was not allowed to run."""
        if not verdict.allowed:
            return None
        session_key, call_id = encode(verdict.session), _stored_id(verdict.call_id)
        tool = self._tool(verdict.tool)
        return self._report(session_key, verdict.signature, call_id, tool, verdict.progress, result, ok)

    def outcome(self, question: Question, result: Any, ok: bool) -> Report:  # noqa: FBT001 - as the caller names it
        """The report on a question's call, where no verdict is made of it."""
        session_key, signature, call_id, *_ = question.call
        progress: bool = question.verdict["progress"]
        return self._report(session_key, signature, call_id, question.tool, progress, result, ok)

    def report_call(
        self,
        session: Named,
        name: str,
        args: Any,
        call_id: str,
        result: Any,
        ok: bool,  # noqa: FBT001 - as the caller names it
    ) -> Report:
        """The report on a call of the tool `name` that another process recorded under `call_id`."""
        tool, signature, _ = self.sign(name, args)
        progress = tool.limits.makes_progress(args)
        return self._report(session.key, signature, _stored_id(call_id), tool, progress, result, ok)

    def halt_reason(self, reason: str) -> str:
        """Check an operator's reason for a halt: a non-empty string; at most 500 characters of it are kept."""
        if not isinstance(reason, str) or not reason.strip():
            raise ConfigError(f"reason must be a non-empty string (got {reason!r})")
        return reason[:500].encode("utf-8", "replace").decode()

    def _report(
        self,
        session_key: str,
        signature: str,
        call_id: str,
        tool: Tool,
        progress: bool,  # noqa: FBT001
        result: Any,
        ok: bool,  # noqa: FBT001
    ) -> Report:
        known, rule = "", tool.limits.rule
        if result is not UNSET:
            masks, secret = tool.limits.masks, self._secret
            known = result_digest(result, ignore=rule.result_ignore, masks=masks, secret=secret) or ""
        stagnates = known != "" and rule.progress is False and not is_null(result)
        bounds = tool.bounds
        return Report(
            session_key,
            signature,
            call_id,
            bounds.tool,
            bounds.max_age,
            bool(ok),
            known,
            progress,
            stagnates,
            bounds.exempt,
        )

    def _tool(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except (KeyError, TypeError):
            key = encode_name("tool", name)
        limits, policy = self.policy.limits(name), self.policy
        rule = limits.rule
        stop = limits.stop if limits.stop is not None and policy.enforce else 0
        reason = f"{key} was called {stop} times without progress" if stop else ""
        # An exempt call takes no place, so none has to leave for it.
        bounds = Bounds(key, policy.window + rule.exempt, self.max_age, limits.pace, stop, reason, rule.exempt)
        verdict = {
            **dict.fromkeys(VERDICT_FIELDS),
            "level": ALLOW,
            "allowed": True,
            "window": policy.window,
            "threshold": limits.threshold,
            "streak": 0,
            "progress": False,
        }
        # Tool names come from a model: a bounded memory of them.
        if len(self._tools) >= _MAX_TOOLS:
            self._tools.clear()
        self._tools[name] = tool = Tool(limits, bounds, rule.progress is not False, verdict)
        return tool


def _checked_key(named: Any) -> tuple[str, str]:
    if not isinstance(named, tuple) or len(named) != 2 or not all(isinstance(part, str) for part in named):
        raise ConfigError(f"key must return a tuple of two strings (got {type(named).__name__})")
    tool, text = named
    return tool, text


def _stored_id(call_id: Any) -> str:
    if not isinstance(call_id, str) or not call_id:
        raise ConfigError(f"call_id must be a non-empty string or None (got {call_id!r:.80})")
    return encode(call_id) if len(call_id) <= MAX_CALL_ID else digest(call_id)

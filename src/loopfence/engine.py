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
from loopfence.store.tally import Call, Report, Tally
from loopfence.verdict import BLOCK, STOP, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CALL_ID = 16
MAX_KEPT_ARGS = 4096
_MAX_TOOLS = 1024


class Named(NamedTuple):
    """A session's id as the caller gave it, and as it stands in keys."""

    id: str
    key: str


class Question(NamedTuple):
    """A call on its way to the store, with what the verdict on it needs."""

    call: Call
    session: str
    tool: str
    call_id: str
    limits: Limits
    progress: bool


class _Tool(NamedTuple):
    """What is the same for every call of one tool, worked out once."""

    limits: Limits
    key: str
    """The tool's name as it stands in keys."""
    fixed: tuple[str, int, int, int, int, str]
    """The parts of a `Call` from `tool` to `halt_reason`."""


class Engine:
    """The pure half of a guard."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.policy = settings.policy
        self.max_age = micros(settings.policy.max_age)
        self._tools: dict[str, _Tool] = {}

    def name(self, session_id: str) -> Named:
        """Check a session's id; ConfigError where it is empty, too long or no string."""
        return Named(session_id, encode_name("session", session_id))

    def ask(self, session: Named, tool: str, args: Any, call_id: str | None) -> Question:
        """The request for one call. ConfigError, ArgsError: the input is bad and nothing was sent."""
        limits, tool_key, fixed = self._tool(tool)
        if call_id is None:
            call_id = member_id = new_id()
        else:
            member_id = _stored_id(call_id)
        signature, form = self._sign(limits, tool, tool_key, args)
        kept = form[:MAX_KEPT_ARGS].decode("utf-8", "ignore") if self.settings.keep_args else None
        call = Call(session.key, signature, member_id, *fixed, kept, limits.rule.exempt)
        progress = limits.rule.progress is not False and limits.makes_progress(args)
        return Question(call, session.id, tool, call_id, limits, progress)

    def ask_many(self, calls: Iterable[tuple[str, str, Any]]) -> list[Question]:
        """The requests for many (session id, tool, args)."""
        return [self.ask(self.name(session), tool, args, None) for session, tool, args in calls]

    def answer(self, question: Question, tally: Tally) -> Verdict:
        """The verdict on a call, from what the store counted."""
        call, session, tool, call_id, limits, progress = question
        policy = self.policy
        level, rule, limit = judge(policy, tally, limits)
        exempt = limits.rule.exempt
        stopped = rule == "repeat" and level is STOP and policy.enforce
        return Verdict.of(
            {
                "level": level,
                "allowed": level < BLOCK or (not policy.enforce and rule != "halted"),
                "rule": rule,
                "count": 0 if exempt else tally.repeats,
                "total": 0 if exempt else tally.total,
                "size": tally.size - exempt,
                "window": policy.window,
                "threshold": limits.threshold,
                "limit": limit,
                "streak": tally.failed if rule == "failures" else tally.stagnant if rule == "stagnation" else 0,
                "tool": tool,
                "signature": call.signature,
                "session": session,
                "call_id": call_id,
                "duplicate": tally.duplicate,
                "source": tally.source,
                "degraded": tally.degraded,
                "progress": progress,
                "halted": call.halt_reason if stopped else tally.halted,
            }
        )

    def report(self, verdict: Verdict, result: Any, ok: bool) -> Report | None:  # noqa: FBT001 - as the caller names it
        """The report on a verdict's call, or None where there is nothing to report: it was not allowed to run."""
        if not verdict.allowed:
            return None
        limits, tool_key, _ = self._tool(verdict.tool)
        session_key, call_id = encode(verdict.session), _stored_id(verdict.call_id)
        return self._report(session_key, verdict.signature, call_id, tool_key, limits, verdict.progress, result, ok)

    def outcome(self, question: Question, result: Any, ok: bool) -> Report:  # noqa: FBT001 - as the caller names it
        """The report on a question's call, where no verdict is made of it."""
        call = question.call
        limits, progress = question.limits, question.progress
        return self._report(call.session, call.signature, call.call_id, call.tool, limits, progress, result, ok)

    def report_call(
        self,
        session: Named,
        tool: str,
        args: Any,
        call_id: str,
        result: Any,
        ok: bool,  # noqa: FBT001 - as the caller names it
    ) -> Report:
        """The report on a call that another process recorded under `call_id`."""
        limits, tool_key, _ = self._tool(tool)
        signature, _ = self._sign(limits, tool, tool_key, args)
        progress = limits.makes_progress(args)
        return self._report(session.key, signature, _stored_id(call_id), tool_key, limits, progress, result, ok)

    def is_exempt(self, tool: str) -> bool:
        """Whether calls of this tool are never counted."""
        return self._tool(tool).limits.rule.exempt

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
        tool_key: str,
        limits: Limits,
        progress: bool,  # noqa: FBT001
        result: Any,
        ok: bool,  # noqa: FBT001
    ) -> Report:
        known = None
        if result is not UNSET:
            ignore = limits.rule.result_ignore
            known = result_digest(result, ignore=ignore, masks=limits.masks, secret=self.settings.secret)
        stagnates = known is not None and limits.rule.progress is False and not is_null(result)
        return Report(
            session_key,
            signature,
            call_id,
            tool_key,
            self.max_age,
            bool(ok),
            known or "",
            progress,
            stagnates,
        )

    def _tool(self, tool: str) -> _Tool:
        try:
            return self._tools[tool]
        except (KeyError, TypeError):
            key = encode_name("tool", tool)
        limits, policy = self.policy.limits(tool), self.policy
        stop = limits.stop if limits.stop is not None and policy.enforce else 0
        reason = f"{key} was called {stop} times without progress" if stop else ""
        # An exempt call takes no place, so none has to leave for it.
        window = policy.window + limits.rule.exempt
        # Tool names come from a model: a bounded memory of them.
        if len(self._tools) >= _MAX_TOOLS:
            self._tools.clear()
        self._tools[tool] = found = _Tool(limits, key, (key, window, self.max_age, limits.pace, stop, reason))
        return found

    def _sign(self, limits: Limits, tool: str, tool_key: str, args: Any) -> tuple[str, bytes]:
        if limits.selects:
            args = select_fields(args, limits.rule.ignore, limits.rule.only)
        if self.settings.key is None:
            form = args_bytes(args)
        else:
            name, text = _checked_key(self.settings.key(tool, args))
            tool_key, form = encode_name("tool", name), text.encode("utf-8", "surrogatepass")
        return f"{tool_key}:{digest_bytes(form, self.settings.secret)}", form


def _checked_key(named: Any) -> tuple[str, str]:
    if not isinstance(named, tuple) or len(named) != 2 or not all(isinstance(part, str) for part in named):
        raise ConfigError(f"key must return a tuple of two strings (got {type(named).__name__})")
    tool, text = named
    return tool, text


def _stored_id(call_id: Any) -> str:
    if not isinstance(call_id, str) or not call_id:
        raise ConfigError(f"call_id must be a non-empty string or None (got {call_id!r:.80})")
    return encode(call_id) if len(call_id) <= MAX_CALL_ID else digest(call_id)

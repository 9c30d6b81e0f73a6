"""What all adapters share, with real guards and no framework."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import loopfence
from loopfence import ConfigError, Level, Policy
from loopfence.integrations._adapter import Adapter, Call, Hooks, refused, stop_reason, stops

if TYPE_CHECKING:
    from collections.abc import Callable

LOGGER = "loopfence.integrations"
RAN = "ran"


def checked(adapter: Adapter, tool: str, args: Any, *, turn: str | None = None) -> Any:
    """The verdict on a call of one run."""
    return asyncio.run(adapter.acheck(adapter.call(None, tool, args, ids=("run",), turn=turn)))


def around(adapter: Adapter, mode: str, call: Call, run: Callable[[], Any] = lambda: RAN, **options: Any) -> Any:
    """The answer to a call: the tool's own, or what the guard says in its place."""

    async def arun() -> Any:
        return run()

    hooks: Hooks[Any] = Hooks(
        run if mode == "sync" else arun,
        refuse=lambda verdict: f"refused {verdict.count}",
        outcome=lambda answer: {"result": answer},
        **options,
    )
    return adapter.around(call, hooks) if mode == "sync" else asyncio.run(adapter.aaround(call, hooks))


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def let_through(mode: str, adapter: Adapter, tool: str, args: Any, ids: tuple[str, ...] = ("run",)) -> bool:
    return around(adapter, mode, adapter.call(None, tool, args, ids=ids)) == RAN


# -- arguments


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": 2}', {"b": 2, "a": 1}),
        ("", {}),
        ("  ", {}),
        (None, {}),
        ("[1, 2]", [1, 2]),
        ('{"a": ', '{"a": '),
    ],
)
def test_arguments_are_the_same_call_however_a_framework_writes_them(one: Any, other: Any) -> None:
    adapter = Adapter("test")
    assert [checked(adapter, "tool", args).count for args in (one, other)] == [1, 2]


def test_broken_json_is_not_the_call_it_might_have_become() -> None:
    adapter = Adapter("test")
    for args in ('{"a": 1', '{"a": 1}', "[" * 100_000):
        assert checked(adapter, "tool", args).count == 1


def test_arguments_without_a_form_are_let_through_with_one_line(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, LOGGER):
        assert let_through(mode, Adapter("test"), "tool", {"path": {"deep": object()}})
    [record] = caplog.records
    assert (record.name, record.levelname, record.exc_info) == (LOGGER, "WARNING", None)
    assert "'tool'" in record.getMessage()
    assert "path.deep" in record.getMessage()


@pytest.mark.parametrize("name", ["", "x" * 600])
def test_a_tool_name_that_no_key_can_hold_is_let_through_with_one_line(
    mode: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert let_through(mode, Adapter("test"), name, {})
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_session_id_that_no_key_can_hold_is_let_through_with_one_line(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert let_through(mode, Adapter("test"), "tool", {}, ids=("x" * 600,))
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_key_function_that_breaks_does_not_break_the_agent(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(tool: str, args: Any) -> tuple[str, str]:
        raise KeyError(tool)

    assert let_through(mode, Adapter("test", key=broken), "tool", {})
    assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [("ERROR", True)]


# -- sessions


def test_the_session_is_the_callables_then_the_contexts_then_the_frameworks() -> None:
    def session(source: str) -> str | None:
        return f"explicit-{source}" if source == "known" else None

    adapter = Adapter("test", session=session)
    ids = ("thread", "run")
    with loopfence.session("context"):
        assert adapter.call("known", "tool", {}, ids=ids).session == "explicit-known"
        assert adapter.call("unknown", "tool", {}, ids=ids).session == "context"
    assert adapter.call("unknown", "tool", {}, ids=ids).session == "thread/run"
    assert adapter.call("unknown", "tool", {}, ids=(None, "run")).session == "run"


def test_no_two_pairs_of_ids_give_one_session() -> None:
    adapter = Adapter("test")
    pairs = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "b%2Fc")]
    assert len({adapter.call(None, "tool", {}, ids=pair).session for pair in pairs}) == 4


def test_without_any_id_a_session_is_made_up_and_said_so_once(caplog: pytest.LogCaptureFixture) -> None:
    one, other = Adapter("one"), Adapter("other")
    sessions = [adapter.call(None, "tool", {}).session for adapter in (one, one, other)]
    assert sessions[0] == sessions[1] != sessions[2]
    assert sessions[0].startswith("one-")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert sessions[0] in caplog.text
    assert sessions[2] in caplog.text


def test_the_turn_makes_equal_calls_one() -> None:
    adapter = Adapter("test")
    verdicts = [checked(adapter, "tool", {}, turn=turn) for turn in ("1", "1", "2", None, None)]
    assert [(verdict.count, verdict.duplicate) for verdict in verdicts] == [
        (1, False),
        (1, True),
        (2, False),
        (3, False),
        (4, False),
    ]


# -- guards


def test_a_ready_guard_is_used_on_both_sides() -> None:
    for guard in (loopfence.LoopGuard("memory://"), loopfence.AsyncLoopGuard("memory://")):
        adapter = Adapter("test", guard=guard)
        call = adapter.call(None, "tool", {}, ids=("run",))
        answers = [around(adapter, side, call) for side in ("sync", "async", "sync", "async")]
        assert answers == [RAN, RAN, "refused 3", "refused 4"]


def test_a_guard_and_settings_for_one_exclude_each_other() -> None:
    guard = loopfence.LoopGuard("memory://")
    for settings in ({"url": "memory://"}, {"policy": Policy()}, {"window": 5}):
        with pytest.raises(TypeError, match="not both"):
            Adapter("test", guard=guard, **settings)


def test_a_bad_setting_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="threshold must be >= 2"):
        Adapter("test", "memory://", threshold=1)


# -- verdicts


def test_only_what_may_not_run_is_refused_and_only_a_stop_stops() -> None:
    adapter = Adapter("test", threshold=2, stop=3)
    verdicts = [checked(adapter, "tool", {}) for _ in range(3)]
    assert [(refused(verdict), stops(verdict)) for verdict in verdicts] == [(False, False), (True, False), (True, True)]
    assert (refused(None), stops(None)) == (False, False)
    shadow = Adapter("test", threshold=2, stop=3, enforce=False)
    verdicts = [checked(shadow, "tool", {}) for _ in range(3)]
    assert [(refused(verdict), stops(verdict)) for verdict in verdicts] == [(False, False)] * 3
    assert verdicts[-1].level is Level.STOP


def test_the_reason_of_a_stop_is_plain_data() -> None:
    adapter = Adapter("test", threshold=2, stop=3)
    last = [checked(adapter, "tool", {}) for _ in range(3)][-1]
    assert stop_reason(last) == {"rule": "repeat", "tool": "tool", "session": "run", "message": last.message}


def test_a_wrapped_call_runs_or_is_answered_for(mode: str) -> None:
    adapter = Adapter("test")
    call = adapter.call(None, "tool", {}, ids=("run",))
    assert [around(adapter, mode, call) for _ in range(4)] == [RAN, RAN, "refused 3", "refused 4"]


def test_a_wrapped_calls_results_are_reported(mode: str) -> None:
    adapter, numbers = Adapter("test"), iter(range(5))
    call = adapter.call(None, "tool", {}, ids=("run",))
    assert [around(adapter, mode, call, lambda: next(numbers)) for _ in range(5)] == [0, 1, 2, 3, 4]


class ControlFlow(Exception):  # noqa: N818 - it is no error
    """What a framework raises to wait for its user."""


@pytest.mark.parametrize(("kind", "answer"), [(OSError, "refused 2"), (ControlFlow, RAN)])
def test_a_wrapped_calls_exception_is_a_failure_and_goes_on_to_the_framework(
    mode: str, kind: type[Exception], answer: str
) -> None:
    def run() -> Any:
        raise kind("gone")

    adapter = Adapter("test", failures=2)
    call = adapter.call(None, "tool", {}, ids=("run",))
    with pytest.raises(kind, match="gone"):
        around(adapter, mode, call, run, not_a_failure=(ControlFlow,))
    assert around(adapter, mode, call) == answer


@pytest.mark.parametrize(
    ("module", "framework", "extra"),
    [
        ("langchain", "langchain", "langchain"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("openai_agents", "agents", "openai-agents"),
        ("fastmcp", "fastmcp", "fastmcp"),
        ("mcp", "mcp", "mcp"),
        ("claude_agent", "claude_agent_sdk", "claude-agent"),
    ],
)
def test_without_its_framework_an_adapter_names_the_extra(module: str, framework: str, extra: str) -> None:
    code = ABSENT.format(framework=framework, module=module)
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    assert last.startswith("ImportError: this loopfence integration cannot be used (No module named ")
    assert last.endswith(f"): pip install -U 'loopfence[{extra}]'")


ABSENT = """
import sys

class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "{framework}":
            raise ModuleNotFoundError("No module named '{framework}'", name=name)

sys.meta_path.insert(0, Absent)
import loopfence.integrations.{module}
"""

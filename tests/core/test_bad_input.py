"""Bad input has a defined form or raises the documented error, which names the field; the window stays as it was."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from counting import OTHER, SEARCH, call, counts

from loopfence import ArgsError, ConfigError, LoopfenceError, LoopGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import StoreUnderTest

TOO_LONG = "session must be at most 512 bytes of UTF-8 (got 600)"

# -- names


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "session must not be empty"),
        ("x" * 600, TOO_LONG),
        ("é" * 300, TOO_LONG),
        (None, "session must be a string (got NoneType)"),
        (7, "session must be a string (got int)"),
        (b"run", "session must be a string (got bytes)"),
    ],
)
def test_a_bad_session_id_is_refused(name: Any, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LoopGuard("memory://").session(name)
    assert str(caught.value) == text


BAD_TOOLS = [
    ("", "tool must not be empty"),
    ("x" * 513, "tool must be at most 512 bytes of UTF-8 (got 513)"),
    (None, "tool must be a string (got NoneType)"),
    (["search"], "tool must be a string (got list)"),
    (7, "tool must be a string (got int)"),
]


@pytest.mark.parametrize(("tool", "text"), BAD_TOOLS)
def test_a_bad_tool_name_is_refused_everywhere_and_the_window_stays(
    store: StoreUnderTest, tool: Any, text: str
) -> None:
    session = store.guard().session("run")
    counts(session, SEARCH)
    for method in (session.check, session.record, session.peek, session.would_raise):
        with pytest.raises(ConfigError) as caught:
            method(tool)
        assert str(caught.value) == text
    with pytest.raises(ConfigError, match="tool must"):
        session.report_call(tool, None, call_id="1")
    assert counts(session, SEARCH) == [2]


@pytest.mark.parametrize("tool", ["my tool", "a\nb", "nul\0", "{}", "{x}", "*", "ключ", "😀", "\ud800", "a:b", "%20"])
def test_a_strange_tool_name_is_a_name_of_its_own(store: StoreUnderTest, tool: str) -> None:
    session = store.guard(keep_args=True).session("run")
    assert [session.check(tool, {"q": 1}).count for _ in range(2)] == [1, 2]
    assert session.check(tool + "x", {"q": 1}).count == 1
    assert session.recent_keys() == [(tool, '{"q":1}'), (tool, '{"q":1}'), (tool + "x", '{"q":1}')]


@pytest.mark.parametrize("call_id", ["", 7, b"1", ["1"]])
def test_a_bad_call_id_is_refused(store: StoreUnderTest, call_id: Any) -> None:
    session = store.guard().session("run")
    for ask in (
        lambda: session.check(*SEARCH, call_id=call_id),
        lambda: session.report_call(*SEARCH, call_id=call_id),
    ):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert str(caught.value) == f"call_id must be a non-empty string or None (got {call_id!r})"
    assert session.is_empty


@pytest.mark.parametrize("call_id", ["a b", "\n", "nul\0", "{}", "😀" * 16, "\ud800", "x" * 100_000])
def test_a_strange_call_id_is_an_id_of_its_own(store: StoreUnderTest, call_id: str) -> None:
    session = store.guard().session("run")
    verdicts = [session.check(*SEARCH, call_id=one) for one in (call_id, call_id, call_id + "x")]
    assert [(verdict.count, verdict.duplicate) for verdict in verdicts] == [(1, False), (1, True), (2, False)]
    session.report(verdicts[0], result=1)
    assert [one.reported for one in session.snapshot().calls] == [True, False]


@pytest.mark.parametrize("reason", ["", "  ", None, 7])
def test_a_halt_needs_a_reason(store: StoreUnderTest, reason: Any) -> None:
    session = store.guard().session("run")
    with pytest.raises(ConfigError, match="reason must be a non-empty string"):
        session.halt(reason)
    assert session.check(*SEARCH).allowed


@pytest.mark.parametrize("reason", ["two words", "line\nbreak", "nul\0", "😀", "1 2 3", "é" * 500])
def test_a_strange_reason_comes_back_as_it_was(store: StoreUnderTest, reason: str) -> None:
    session = store.guard().session("run")
    session.halt(reason)
    assert session.check(*SEARCH).halted == reason
    assert session.snapshot().halted == reason


def test_a_custom_key_must_return_two_strings(store: StoreUnderTest) -> None:
    for returned in (None, "search", ("search",), ("search", 1), ["search", "x"]):
        session = store.guard(key=lambda tool, args, returned=returned: returned).session("run")
        with pytest.raises(ConfigError, match="key must return a tuple of two strings"):
            session.check("search")
        assert session.is_empty


# -- arguments


class Item(pydantic.BaseModel):
    """A Pydantic model."""

    name: str
    at: dt.date


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int
    y: list[int]


class Opaque:
    """Its repr holds an address in memory."""


WITH_A_FORM: list[tuple[Any, Any]] = [
    ({"n": math.nan}, {"n": float("nan")}),
    ({"n": math.inf}, {"n": float("1e999")}),
    ({"s": {3, 1, 2}}, {"s": {2, 3, 1}}),
    ({"b": b"\0\xff"}, {"b": bytearray(b"\0\xff")}),
    ({"t": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)}, {"t": "2026-01-02T03:04:05+00:00"}),
    (Item(name="a", at=dt.date(2026, 1, 2)), {"at": "2026-01-02", "name": "a"}),
    (Point(1, [2]), {"y": [2], "x": 1}),
    ({"s": "\ud800"}, {"s": "\ud800"}),
    ({"n": 2**80}, {"n": 2**80}),
    ({2: "a", None: "b", True: "c"}, {"2": "a", "null": "b", "true": "c"}),
    ((1, 2), [1, 2]),
]


@pytest.mark.parametrize(("args", "same"), WITH_A_FORM)
def test_arguments_with_a_form_are_counted(store: StoreUnderTest, args: Any, same: Any) -> None:
    session = store.guard().session("run")
    assert [session.check("search", one).count for one in (args, same, {"other": 1})] == [1, 2, 1]


DIFFERENT: list[tuple[Any, Any]] = [
    ({"n": 1}, {"n": "1"}),
    ({"n": True}, {"n": 1}),
    ({"n": 1}, {"n": 1.0}),
    ([], {}),
    ({"n": None}, {}),
    ({"n": math.nan}, {"n": None}),
    ({"s": "\u00e9"}, {"s": "e\u0301"}),
    ({"a": {"b": 1}}, {"a": {"b": 1, "c": None}}),
]


@pytest.mark.parametrize(("one", "another"), DIFFERENT)
def test_arguments_that_differ_are_different_calls(one: Any, another: Any) -> None:
    session = LoopGuard("memory://").session("run")
    assert [session.check("search", args).count for args in (one, another)] == [1, 1]


def cyclic() -> list[Any]:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


WITHOUT_A_FORM: list[tuple[Callable[[], Any], str]] = [
    (lambda: {"who": Opaque()}, "args.who: Opaque has no canonical JSON"),
    (lambda: {"n": [0, {"f": open}]}, "args.n[1].f: builtin_function_or_method has no canonical JSON"),
    (lambda: (number for number in [1]), "args: generator has no canonical JSON"),
    (cyclic, "args[1].again: the value holds itself"),
    (lambda: {1: "a", "1": "b"}, 'args: two keys are both "1" in JSON'),
    (lambda: {(1, 2): "a"}, "args: a key of type tuple has no canonical JSON"),
    (lambda: {"n": 10**5000}, "args.n: the integer has too many digits for canonical JSON"),
]


@pytest.mark.parametrize(("make", "text"), WITHOUT_A_FORM)
def test_arguments_without_a_form_are_refused_and_the_window_stays(
    store: StoreUnderTest, make: Callable[[], Any], text: str
) -> None:
    session = store.guard().session("run")
    counts(session, SEARCH)
    for ask in (session.check, session.record, session.peek, session.would_raise):
        with pytest.raises(ArgsError) as caught:
            ask("search", make())
        assert str(caught.value) == text
        assert isinstance(caught.value, TypeError)
    with pytest.raises(ArgsError):
        session.report_call("search", make(), call_id="1")
    assert counts(session, SEARCH) == [2]


def test_ten_thousand_levels_are_refused_and_no_stack_overflows(store: StoreUnderTest) -> None:
    session = store.guard().session("run")
    with pytest.raises(ArgsError, match="more than 1000 levels have no canonical JSON") as caught:
        session.check("search", nested(10_000))
    assert len(str(caught.value)) < 300
    assert session.check("search", nested(900)).count == 1


# -- results: the tool has run, nothing may raise any more


@pytest.mark.parametrize("make", [make for make, _ in WITHOUT_A_FORM] + [lambda: nested(10_000)])
def test_a_result_without_a_form_is_unknown_and_nothing_raises(store: StoreUnderTest, make: Callable[[], Any]) -> None:
    session = store.guard(threshold=9).session("run")
    call(session, result="one")
    call(session, result=make())
    assert call(session, result="one").count == 3
    call(session, OTHER, result=make())
    assert session.peek(*OTHER).count == 2


def test_no_error_but_our_own_escapes_from_odd_arguments() -> None:
    from odd_values import REFUSED

    session = LoopGuard("memory://").session("run")
    for value, _ in REFUSED:
        with pytest.raises(LoopfenceError):
            session.check("search", value)
        with pytest.raises(LoopfenceError):
            session.check("search", {"deep": [value]})
        call(session, result=value)
        session.reset()

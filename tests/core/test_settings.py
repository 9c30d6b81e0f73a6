"""A guard's settings are laid over each other, keyword over policy over URL over default, and checked once."""

from __future__ import annotations

from typing import Any

import pytest

from loopfence import ConfigError, LoopGuard, Policy


def test_keyword_wins_over_policy_over_url_over_default() -> None:
    guard = LoopGuard(
        "memory://?window=11&threshold=5&failures=6&ttl=60",
        policy=Policy(threshold=4, failures=7),
        failures=None,
        ttl=90,
    )
    policy = guard.policy
    assert (policy.window, policy.threshold, policy.failures, policy.stagnation) == (11, 4, None, None)
    assert (guard._settings.ttl, guard._settings.timeout) == (90.0, 0.25)


def test_a_policy_that_names_the_default_wins_over_the_url() -> None:
    assert LoopGuard("memory://?threshold=5", policy=Policy(threshold=3)).threshold == 3
    assert LoopGuard("memory://?threshold=5", policy=Policy()).threshold == 5


def test_a_policy_with_nothing_laid_over_it_stays_the_same_object() -> None:
    policy = Policy(threshold=4)
    assert LoopGuard("memory://", policy=policy).policy is policy


def test_all_of_a_policy_but_its_tools_can_stand_in_a_url() -> None:
    url = (
        "memory://?window=9&threshold=4&warn=2&stop=8&ceiling=7&failures=none&stagnation=5&max_age=1.5&enforce=false"
        "&namespace=fleet%3Aa&ttl=60&timeout=0.5&on_outage=block"
    )
    guard = LoopGuard(url)
    assert guard.policy == Policy(
        window=9, threshold=4, warn=2, stop=8, ceiling=7, failures=None, stagnation=5, max_age=1.5, enforce=False
    )
    settings = guard._settings
    assert (settings.namespace, settings.ttl, settings.timeout, settings.on_outage) == ("fleet:a", 60.0, 0.5, "block")


def test_the_environment_names_the_url_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPFENCE_URL", "memory://?window=9&threshold=4")
    assert (LoopGuard().window, LoopGuard("memory://").window) == (9, 20)
    monkeypatch.setenv("LOOPFENCE_URL", "")
    assert LoopGuard().window == 20


SCHEMES = "memory://, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"

WRONG_SETTINGS = [
    ({"url": "memory://?window=x"}, "window must be a whole number (got 'x')"),
    ({"url": "memory://?window=none"}, "window must be a whole number (got 'none')"),
    ({"url": "memory://?window=1"}, "window must be >= 2 (got 1)"),
    ({"url": "memory://?max_age=soon"}, "max_age must be a number of seconds (got 'soon')"),
    ({"url": "memory://?enforce=maybe"}, "enforce must be true or false (got 'maybe')"),
    ({"url": "memory://?window=8&window=9"}, "url: the query field window is given twice"),
    ({"url": "memory://?db=1"}, "url: memory:// takes loopfence's own query fields only"),
    ({"url": "memory://?window=8&db=1"}, "url: memory:// takes loopfence's own query fields only"),
    ({"url": "redis://localhost?windw=8"}, "url: neither loopfence nor redis-py knows the query field 'windw'"),
    ({"url": "redis://localhost:port/0"}, "url: it is no valid Redis URL"),
    ({"url": "http://localhost"}, f"url must start with one of {SCHEMES} (got 'http')"),
    ({"url": "localhost:6379"}, f"url must start with one of {SCHEMES} (got 'localhost:6379')"),
    ({"url": 7}, "url must be a string (got int)"),
    ({"ttl": 0}, "ttl must be > 0 seconds and at most 10 years (got 0)"),
    ({"ttl": "60"}, "ttl must be > 0 seconds and at most 10 years (got '60')"),
    ({"timeout": -1}, "timeout must be > 0 seconds and at most 10 years (got -1)"),
    ({"on_outage": "panic"}, "on_outage must be one of local, allow, block, raise (got 'panic')"),
    ({"namespace": ""}, "namespace must be a non-empty string (got '')"),
    ({"namespace": "a{b"}, "namespace must hold none of {}*?[]\\ (got 'a{b')"),
    ({"key": "tool"}, "key must be a callable of (tool, args) (got str)"),
    ({"secret": b""}, "secret must be a non-empty string or bytes"),
    ({"secret": 7}, "secret must be a non-empty string or bytes"),
    ({"policy": {"window": 8}}, "policy must be a Policy (got dict)"),
    ({"url": "redis://localhost", "clock": float}, "clock is for memory:// only: on Redis the server's clock counts"),
    ({"url": "memory://", "client": object()}, "give url or client, not both"),
    ({"client": object()}, "client must be a redis-py client (got object)"),
    ({"session": "x" * 513}, "session must be at most 512 bytes of UTF-8 (got 513)"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "text"), WRONG_SETTINGS)
def test_a_wrong_setting_names_itself_and_the_rule(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LoopGuard(**settings)
    assert str(caught.value) == text


def test_no_setting_shows_the_password_of_a_url() -> None:
    guard = LoopGuard("redis://user:hunter2@localhost:6379/0?window=9")
    assert "hunter2" not in repr(guard) + repr(guard._settings)
    with pytest.raises(ConfigError) as caught:
        LoopGuard("redis://user:hunter2@localhost:6379/0?windw=9")
    assert "hunter2" not in str(caught.value)

"""Writes a policy as TOML that Policy.from_mapping reads back, with guesses as comments."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from loopfence.policy import Policy, ToolRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loopfence.replay.guesses import Guess


def policy_toml(policy: Policy, guesses: Iterable[Guess] = (), remarks: Iterable[str] = ()) -> str:
    """The fields of `policy` that differ from the default, always with window and threshold.

    What TOML cannot say is left out: a limit that is None, a `progress` that is a callable. Remarks stand at the
    top, guesses below, all as comments.
    """
    lines = [f"# {remark}" for remark in remarks]
    default = Policy()
    for spec in fields(Policy):
        value = getattr(policy, spec.name)
        told = spec.name in ("window", "threshold") or value != getattr(default, spec.name)
        if told and value is not None and spec.name != "tools":
            lines.append(f"{spec.name} = {_value(value)}")
    for glob, rule in policy.tools.items():
        lines += ["", f"[tools.{_value(glob)}]", *_rule(rule)]
    for guess in guesses:
        lines += ["", f"# {_plain(guess.why)}", f"# [tools.{_value(guess.tool)}]", f"# {guess.rule}"]
    return "\n".join(lines) + "\n"


def _rule(rule: ToolRule) -> list[str]:
    default = ToolRule()
    set_here = ((spec.name, getattr(rule, spec.name)) for spec in fields(ToolRule))
    return [
        f"{name} = {_value(value)}"
        for name, value in set_here
        if value != getattr(default, name) and not callable(value)
    ]


def _value(value: Any) -> str:
    """A TOML value: of what a policy holds, JSON's form is TOML's, but for the character DEL."""
    if isinstance(value, tuple):
        value = list(value)
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return text.encode("utf-8", "replace").decode()


def _plain(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())

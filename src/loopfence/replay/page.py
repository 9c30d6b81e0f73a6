"""One self-contained HTML page of a backtest: a timeline a session, every call a cell, loops plain to see."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from loopfence.replay.history import MARK
from loopfence.replay.loops import worst_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loopfence.policy import Policy
    from loopfence.replay.history import History
    from loopfence.replay.summary import Totals


def page(totals: Totals, sessions: Sequence[History], left_out: int, policy: Policy) -> str:
    """The page. All of what a recording says is in one block of data, which the page shows as text only."""
    data = {
        "totals": totals.as_dict(),
        "policy": {"window": policy.window, "threshold": policy.threshold},
        "leftOut": left_out,
        "sessions": [_session(history) for history in sessions],
    }
    # "<" is the one sign that could end the script element
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    template = (files("loopfence.replay") / "page.html").read_text(encoding="utf-8")
    return template.replace("/*DATA*/", text)


def _session(history: History) -> dict[str, Any]:
    loop = worst_loop(history)
    signatures = sorted(history.signatures.values(), key=lambda signature: signature.index)
    return {
        "name": history.label,
        "calls": history.calls,
        "saved": history.saved,
        "redundant": history.redundant,
        "wrong": history.wrong,
        "stopped": history.stopped,
        "outcome": history.outcome,
        "loop": loop.text if loop else None,
        "loopSteps": [step.index for step in loop.steps] if loop else [],
        "more": history.calls - sum(cell != MARK for cell in history.cells),
        "signatures": [[s.tool, s.text, s.count] for s in signatures],
        "cells": history.cells,
        "flags": {f.cell: [f.rule, f.count, f.redundant] for f in history.flags if f.cell is not None},
    }

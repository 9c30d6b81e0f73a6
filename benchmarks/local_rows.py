"""What loopfence costs without Redis: memory://, signatures, imports and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import xxhash

from benchmarks.harness import Row, by_turns, in_turns, per_call, row
from loopfence import LoopGuard, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ARGS = {"query": "the price of tea in the shops around the corner", "filters": {"brand": "any", "stock": True},
        "page": 1, "sort": ["price", "name"], "note": "x" * 60}  # fmt: skip


class _Deque:
    """The guard that everybody writes first."""

    def __init__(self, window: int) -> None:
        self._calls: deque[tuple[str, str]] = deque(maxlen=window)

    def record(self, tool: str, args: Any) -> int:
        call = tool, json.dumps(args, sort_keys=True)
        self._calls.append(call)
        return self._calls.count(call)


def memory_store_rows(*, quick: bool) -> Iterator[Row]:
    """A record on memory:// against a deque, and against itself with a window 500 times as long."""
    turns, calls = (200, 100) if quick else (1000, 300)
    sessions = {window: LoopGuard("memory://", window=window).session("bench") for window in (20, 10_000)}
    deques = {window: _Deque(window) for window in (20, 10_000)}
    works: list[Callable[[int], object]] = [
        lambda index: sessions[20].check("search", {**ARGS, "page": index % 50}),
        lambda index: deques[20].record("search", {**ARGS, "page": index % 50}),
        lambda index: sessions[10_000].check("search", {**ARGS, "page": index % 50}),
    ]
    ours, theirs, long = by_turns(works, turns, calls)
    yield row("memory:// record, 200-byte arguments", ours, "µs", "deque and json.dumps", theirs, "<= 1.5")
    yield row("memory:// record, window 10,000", long, "µs", "window 20", ours, "<= 1.2")
    for index in range(10_000):
        deques[10_000].record("search", {**ARGS, "page": index % 50})
    slow = per_call(lambda index: deques[10_000].record("search", {**ARGS, "page": index % 50}), 200)
    yield row("memory:// record, window 10,000", long, "µs", "deque of 10,000", slow, "< 1.0")


def signature_rows(*, quick: bool) -> Iterator[Row]:
    """The signature of 100 KB of arguments."""
    args = {"rows": [{"id": n, "name": f"row {n}", "tags": ["a", "b"], "price": n / 7} for n in range(1400)]}
    repeats = 9 if quick else 25
    ours, theirs = in_turns(
        [
            partial(per_call, lambda _: signature("search", args), 20),
            partial(per_call, lambda _: xxhash.xxh3_64_hexdigest(json.dumps(args, sort_keys=True).encode()), 20),
        ],
        repeats,
    )
    yield row("signature of 100 KB", ours, "µs", "json.dumps and xxh3", theirs, "<= 0.5")


def process_rows(url: str, *, quick: bool) -> Iterator[Row]:
    """Whole processes: importing loopfence, and one `loopfence check`."""
    repeats = 7 if quick else 21
    check = [
        sys.executable,
        "-c",
        "from loopfence.cli import main; main()",
        "check",
        "bench-cli",
        "search",
        '{"page": 1}',
        "--url",
        url,
    ]
    runs = [_process([sys.executable, "-c", "import loopfence"]), _process([sys.executable, "-c", "import redis"]),
            _process(check, {0, 1}), _process([sys.executable, "-c", "pass"])]  # fmt: skip
    ours, theirs, cli, nothing = in_turns(runs, repeats)
    yield row("import loopfence", ours - nothing, "ms", "import redis", theirs - nothing, "<= 0.4")
    yield row("loopfence check, a process", cli, "ms", "import redis, a process", theirs, "<= 1.5")


def _process(command: list[str], codes: set[int] | None = None) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, env={**os.environ, "NO_COLOR": "1"}, check=False)
        spent = (time.perf_counter() - start) * 1000
        if done.returncode not in (codes or {0}):
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.decode()[-500:]}")
        return spent

    return run

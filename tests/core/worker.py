"""One worker of a fleet, a process of its own: makes its calls when told to and prints what it was told of each."""

from __future__ import annotations

import json
import sys
from typing import Any

from loopfence import LoopGuard


def plan(worker: int, calls: int, sessions: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """The worker's calls: two thirds are made by other workers as well, one third by nobody else."""
    made = []
    for number in range(calls):
        args = {"page": number % 7} if number % 3 else {"worker": worker, "number": number}
        made.append((sessions[number // 2 % len(sessions)], args))
    return made


def main(url: str, window: int, threshold: int, worker: int, calls: int, sessions: list[str]) -> None:
    """Wait for a line on stdin, then go."""
    with LoopGuard(url, window=window, threshold=threshold, timeout=20, on_outage="raise") as guard:
        guard.session(sessions[0]).peek("fetch")
        print("ready", flush=True)
        sys.stdin.readline()
        told = []
        for session, args in plan(worker, calls, sessions):
            verdict = guard.session(session).check("fetch", args)
            told.append((session, verdict.signature, verdict.call_id, verdict.count, verdict.size, verdict.allowed))
    print(json.dumps(told))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

"""Many worker processes see one window: what each is told is what one process would be told of the same calls."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopfence import LoopGuard

if TYPE_CHECKING:
    from servers import RedisServer

WORKERS, CALLS = 4, 500
WINDOW, THRESHOLD = 30, 4
END = "that was all"


class Order(threading.Thread):
    """Listens to the server: the (session key, member) of every call in the order in which it was executed."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self.made: list[tuple[str, str]] = []
        self.server = server
        self.monitor = server.connect().monitor().__enter__()
        self.start()

    def run(self) -> None:
        while (sent := self.monitor.next_command())["command"] != f"ECHO {END}":
            if sent["client_type"] == "lua" and sent["command"].startswith("ZADD "):
                _, key, _, _, member = sent["command"].split(" ", 4)
                self.made.append((key, member))

    def end(self) -> list[tuple[str, str]]:
        self.server.admin.echo(END)
        self.join()
        self.monitor.__exit__(None, None, None)
        return self.made


def run_fleet(url: str, sessions: list[str]) -> list[list[Any]]:
    """What the workers were told, after all of them have started at once."""
    common = {"url": url, "window": WINDOW, "threshold": THRESHOLD, "calls": CALLS, "sessions": sessions}
    script = str(Path(__file__).with_name("worker.py"))
    fleet = [
        subprocess.Popen(
            [sys.executable, script, json.dumps({**common, "worker": worker})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for worker in range(WORKERS)
    ]
    for worker in fleet:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in fleet:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    outputs = [worker.communicate(timeout=100)[0] for worker in fleet]
    assert [worker.returncode for worker in fleet] == [0] * WORKERS
    return [json.loads(output) for output in outputs]


def check_fleet(server: RedisServer, sessions: list[str]) -> None:
    """Run the fleet and a list beside each other: every verdict and the final windows are equal."""
    order = Order(server)
    told = {
        (f"loopfence:{{{session}}}:calls", f"{signature} {call_id}"): (worker, count, size, allowed)
        for worker, calls in enumerate(run_fleet(server.url, sessions))
        for session, signature, call_id, count, size, allowed in calls
    }
    made = order.end()
    assert len(made) == len(told) == WORKERS * CALLS
    assert len({told[call][0] for call in made[: WORKERS * CALLS // 2]}) == WORKERS, "they ran one after the other"
    windows = {f"loopfence:{{{session}}}:calls": deque[str](maxlen=WINDOW) for session in sessions}
    blocked = 0
    for key, member in made:
        signature = member.split(" ")[0]
        windows[key].append(signature)
        count = windows[key].count(signature)
        assert told[key, member][1:] == (count, len(windows[key]), count < THRESHOLD)
        blocked += count >= THRESHOLD
    assert 0 < blocked < WORKERS * CALLS
    with LoopGuard(server.url, window=WINDOW, threshold=THRESHOLD, timeout=20) as guard:
        for session in sessions:
            calls = list(windows[f"loopfence:{{{session}}}:calls"])
            snapshot = guard.session(session).snapshot()
            assert [call.signature for call in snapshot.calls] == calls
            assert snapshot.counts == Counter(calls)
            counts = server.admin.hgetall(f"loopfence:{{{session}}}:counts")
            assert {key.decode(): int(value) for key, value in counts.items()} == Counter(calls)


def test_a_fleet_on_one_session_is_told_what_one_process_would_be_told(redis_server: RedisServer) -> None:
    check_fleet(redis_server, ["run"])


def test_nothing_leaks_between_two_sessions_of_one_fleet(newest_server: RedisServer) -> None:
    check_fleet(newest_server, ["one-run", "another-run"])

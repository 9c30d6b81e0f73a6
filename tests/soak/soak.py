"""Minutes of random faults under load, each round's verdicts held against the order that the server itself kept.

Run as a script: python tests/soak/soak.py --minutes 10 [--seed 7]. Exit code 1 where anything was lost, doubled
or judged wrongly. A round's session is as large as a window can be, so that nothing leaves it: the order in Redis
is the serial order of all calls, and every verdict that Redis gave must be the one of that place in it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from loopfence import AsyncLoopGuard, LoopGuard
from proxy import Proxy
from servers import RedisServer
from servers.binaries import newest_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopfence import Verdict

THREADS = 4
TASKS = 8
TOOLS = 5
WINDOW = 10_000
TIMEOUT = 1.0
ROUND_SECONDS = 6.0
BETWEEN_CALLS = 0.01
BETWEEN_FAULTS = 0.15
# what each fault does to the proxy; all pass within the timeout, so that most calls are answered all the same
WIRE_FAULTS = {
    "reply dropped": ("drop", {"times": 2}),
    "refused": ("refuse", {"times": 2}),
    "cut in mid-reply": ("cut", {"size": 5}),
    "reply late": ("delay", {"seconds": 0.1}),
    "reply dripping": ("drip", {"seconds": 0.001}),
}


@dataclass
class Account:
    """What a soak did and found."""

    calls: int = 0
    degraded: int = 0
    compared: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    longest: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)

    def lines(self) -> Iterator[str]:
        yield f"calls made         {self.calls}"
        yield f"answered locally   {self.degraded}"
        yield f"verdicts compared  {self.compared}"
        yield f"faults injected    {self.faults.total()}: " + ", ".join(
            f"{number} {name}" for name, number in sorted(self.faults.items())
        )
        yield f"lost               {self.lost}"
        yield f"doubled            {self.doubled}"
        yield f"wrong              {self.wrong}"
        yield f"longest call       {self.longest * 1000:.0f} ms (timeout {TIMEOUT * 1000:.0f} ms)"


class Soak:
    """One server that survives its own death, a proxy before it, sync and async workers, and chaos."""

    def __init__(self, seed: int) -> None:
        self.account = Account()
        self._rng = random.Random(seed)
        self._verdicts: list[Verdict] = []
        self._lock = threading.Lock()

    def run(self, seconds: float, *, show: bool = False) -> Account:
        """Rounds of faults until the time is up."""
        # every write is on disk before it is answered: what a killed server acknowledged must be there again
        config = ["appendonly yes", "appendfsync always"]
        until = time.monotonic() + seconds
        number = 0
        with RedisServer(newest_binary(), config=config) as server, Proxy(server.address) as proxy:
            while time.monotonic() < until:
                number += 1
                self._round(f"round-{number}", server, proxy)
                if show:
                    print(f"round {number}: {self.account.compared} compared, {self.account.faults.total()} faults")
        return self.account

    def _round(self, session: str, server: RedisServer, proxy: Proxy) -> None:
        self._verdicts.clear()
        over = threading.Event()
        workers = [threading.Thread(target=self._work, args=(proxy.url, session, over)) for _ in range(THREADS)]
        workers.append(threading.Thread(target=self._work_async, args=(proxy.url, session, over)))
        for worker in workers:
            worker.start()
        self._spoil(server, proxy)
        over.set()
        for worker in workers:
            worker.join()
        proxy.heal()
        self._compare(session, server)
        server.flush()

    def _settings(self) -> dict[str, object]:
        return {"window": WINDOW, "threshold": WINDOW, "failures": None, "timeout": TIMEOUT}

    def _call(self, rng: random.Random) -> tuple[str, dict[str, int]]:
        return f"tool{rng.randrange(TOOLS)}", {"page": rng.randrange(2)}

    def _note(self, verdict: Verdict, started: float) -> None:
        with self._lock:
            self._verdicts.append(verdict)
            self.account.longest = max(self.account.longest, time.perf_counter() - started)

    def _work(self, url: str, session: str, over: threading.Event) -> None:
        rng = random.Random()
        with LoopGuard(url, **self._settings()) as guard:
            run = guard.session(session)
            while not over.is_set():
                started = time.perf_counter()
                verdict = run.check(*self._call(rng))
                self._note(verdict, started)
                run.report(verdict, result="the same as ever")
                time.sleep(BETWEEN_CALLS)

    def _work_async(self, url: str, session: str, over: threading.Event) -> None:
        async def work(guard: AsyncLoopGuard) -> None:
            rng, run = random.Random(), guard.session(session)
            while not over.is_set():
                started = time.perf_counter()
                verdict = await run.check(*self._call(rng))
                self._note(verdict, started)
                await asyncio.sleep(BETWEEN_CALLS)

        async def work_all() -> None:
            async with AsyncLoopGuard(url, **self._settings()) as guard:
                await asyncio.gather(*(work(guard) for _ in range(TASKS)))

        asyncio.run(work_all())

    def _spoil(self, server: RedisServer, proxy: Proxy) -> None:
        until = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < until:
            name = self._rng.choice([*WIRE_FAULTS, *WIRE_FAULTS, "all cut", "frozen", "scripts flushed", "killed"])
            if name in WIRE_FAULTS:
                kind, details = WIRE_FAULTS[name]
                proxy.inject(kind, **details)
            elif name == "all cut":
                proxy.cut_all()
            elif name == "scripts flushed":
                server.admin.script_flush()
            elif name == "frozen":
                server.freeze()
                time.sleep(self._rng.choice([0.1, 0.4, 0.4, 1.5]))
                server.thaw()
            else:
                server.kill()
                time.sleep(self._rng.choice([0.0, 0.02, 0.5]))
                server.start()
            self.account.faults[name] += 1
            time.sleep(self._rng.uniform(0, 2 * BETWEEN_FAULTS))

    def _compare(self, session: str, server: RedisServer) -> None:
        """Hold the round's verdicts against the server's order: each call once, each count the one of its place."""
        account = self.account
        members = [member.decode() for member in server.admin.zrange(f"loopfence:{{{session}}}:calls", 0, -1)]
        counts = server.admin.hgetall(f"loopfence:{{{session}}}:counts")
        seen: Counter[str] = Counter()
        places: dict[str, int] = {}
        for member in members:
            signature = member.partition(" ")[0]
            seen[signature] += 1
            places[member] = seen[signature]
        account.calls += len(self._verdicts)
        account.doubled += sum(abs(int(counts.get(name.encode(), 0)) - number) for name, number in seen.items())
        account.doubled += max(0, len(members) - len(self._verdicts))
        for verdict in self._verdicts:
            if verdict.degraded:
                account.degraded += 1
                continue
            account.compared += 1
            place = places.get(f"{verdict.signature} {verdict.call_id}")
            if place is None:
                account.lost += 1
            elif verdict.duplicate:
                # its reply was lost, and it was judged anew from the counts of that later moment
                account.wrong += not place <= verdict.total <= seen[verdict.signature]
            else:
                account.wrong += (verdict.total, verdict.count) != (place, place)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="of the order of faults")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}")
    logging.getLogger("loopfence").setLevel(logging.CRITICAL)  # outages are what this is about
    account = Soak(seed).run(options.minutes * 60, show=True)
    print(*account.lines(), sep="\n")
    return 0 if account.clean else 1


if __name__ == "__main__":
    sys.exit(main())

"""How often the guard is right: precision and recall on recorded runs, and cases that must trip at one exact call.

    python -m benchmarks.quality TRACES CASES

TRACES is a folder of recorded calls, one JSON lines file a source (`loopfence replay` reads the same files). CASES
is a folder of call sequences `NN.jsonl`, each beside a `NN.case.json` that says whether and at which call the guard
must block (`expected`, `trip_at_call`), under which `policy`, and which fields make up a session (`session_key`).

The guard runs with its default policy and, by source, the tools that make progress there. Beside it stands what it
is to improve on: counting equal calls, whatever they return. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopfence import Policy, ToolRule
from loopfence.replay.backtest import Backtest
from loopfence.replay.calls import SESSION_FIELDS, Call, Problems, Turn
from loopfence.replay.clockwork import Clockwork, SessionRun
from loopfence.replay.files import read_calls, transcript_files
from loopfence.replay.history import History
from loopfence.replay.sessions import follow
from loopfence.replay.summary import Totals
from loopfence.verdict import Level, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

PRECISION, RECALL = 0.98, 0.95
CASES_WITHOUT_POLICY = 11 / 14

PROGRESS = {"swe_agent": ("create", "edit", "insert")}
"""Start of a source's name -> its tools that change something. The bookings of tau_bench are none of them: its rows
do not say which of them failed, and a failed one is no progress."""

_ROW = "{:<28} {:<15} {:>6} {:>6} {:>9} {:>7} {:>7} {:>9}"


class CountingOnly(Backtest):
    """The classic guard: nothing is ever reported, so that equal calls are counted whatever they return."""

    def begin(self, key: dict[str, Any]) -> tuple[SessionRun, History]:
        return _Unreported(self._clockwork), History(key)


class _Unreported(SessionRun):
    def _report(self, _: object) -> None:
        pass


class FirstTrip:
    """Follows the sessions of a case; `at` is the number, in the file, of the first call that is blocked."""

    def __init__(self, policy: Policy) -> None:
        self.at: int | None = None
        self._clockwork = Clockwork(policy)
        self._row = 0

    def begin(self, _: dict[str, Any]) -> SessionRun:
        return SessionRun(self._clockwork)

    def take(self, run: SessionRun, item: Call | Turn) -> None:
        self._row += 1
        item.position = self._row  # a call may be counted later than it is taken
        for one, counted in run.take(item):
            if counted is not None and self.at is None:
                level, _, _ = judge(self._clockwork.policy, counted[1], counted[0].tool.limits)
                self.at = one.position if level >= Level.BLOCK else None

    def end(self, run: SessionRun) -> None:
        run.end()


def measure(file: Path, kind: type[Backtest], policy: Policy) -> Totals:
    """What a guard of this kind does on one source."""
    totals, problems = Totals(), Problems()
    follow(read_calls([file], problems), kind(policy, totals.add, problems))
    if problems.total():
        sys.exit(f"{file}: {problems.examples[0]}")
    return totals


def first_trip(calls: Path, policy: Policy, fields: Sequence[str] = SESSION_FIELDS) -> int | None:
    """The number of the first blocked call of a case; None where none is."""
    trip = FirstTrip(policy)
    follow(read_calls([calls], Problems()), trip, fields)
    return trip.at


def shipped_policy(source: str) -> Policy:
    """The default policy with the tools that make progress in this source."""
    globs = next((globs for name, globs in PROGRESS.items() if source.startswith(name)), ())
    return Policy(tools={glob: ToolRule(progress=True) for glob in globs})


def _print_traces(folder: Path) -> Totals:
    print(_ROW.format("source", "guard", "calls", "flags", "precision", "recall", "wrong*", "resolved*"))
    sums = {"loopfence": Totals(), "counting at 3": Totals(), "counting at 5": Totals()}
    for file in transcript_files([folder]):
        rows = {
            "loopfence": measure(file, Backtest, shipped_policy(file.stem)),
            "counting at 3": measure(file, CountingOnly, Policy(threshold=3, failures=None)),
            "counting at 5": measure(file, CountingOnly, Policy(threshold=5, failures=None)),
        }
        for guard, totals in rows.items():
            _print_row(file.stem, guard, totals)
            for field, value in vars(totals).items():
                setattr(sums[guard], field, getattr(sums[guard], field) + value)
    for guard, totals in sums.items():
        _print_row("TOTAL", guard, totals)
    print("* sessions with a wrong flag; resolved sessions hit, of all resolved ones\n")
    return sums["loopfence"]


def _print_row(source: str, guard: str, totals: Totals) -> None:
    parts = ("-" if part is None else f"{part:.1%}" for part in (totals.precision, totals.recall))
    hit = f"{totals.resolved_hit}/{totals.resolved}"
    print(_ROW.format(source[:28], guard, totals.calls, totals.flagged, *parts, totals.sessions_wrong, hit))


def _print_cases(folder: Path) -> tuple[float, float]:
    """The parts of the cases that are right with their policy and without any."""
    described = sorted(folder.glob("*.case.json"))
    right = bare = 0
    for file in described:
        case = json.loads(file.read_text(encoding="utf-8"))
        calls, fields = file.with_name(file.name.replace(".case.json", ".jsonl")), case["session_key"]
        wanted = case["trip_at_call"]
        with_policy = first_trip(calls, Policy.from_mapping(case["policy"]), fields)
        without = first_trip(calls, Policy(), fields)
        right += with_policy == wanted
        bare += without == wanted
        marks = ("ok" if with_policy == wanted else f"BLOCKED AT {with_policy}", "ok" if without == wanted else "-")
        at = f"trip at {wanted}" if wanted else "no trip"
        print(f"case {file.name.split('.')[0]}  {at:<11} {marks[0]:<14} without policy: {marks[1]:<3} {case['title']}")
    print(f"cases right: {right} of {len(described)} with their policy, {bare} without any\n")
    return right / len(described), bare / len(described)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.split("\n\n")[0])
    parser.add_argument("traces", type=Path, help="folder of recorded calls, one file a source")
    parser.add_argument("cases", type=Path, help="folder of NN.jsonl and NN.case.json")
    given = parser.parse_args()
    totals = _print_traces(given.traces)
    right, bare = _print_cases(given.cases)
    goals = {
        f"precision >= {PRECISION}": (totals.precision or 0.0) >= PRECISION,
        f"recall >= {RECALL}": (totals.recall or 0.0) >= RECALL,
        "every case right with its policy": right == 1.0,
        "11 of 14 cases right without any": bare >= CASES_WITHOUT_POLICY,
    }
    for goal, met in goals.items():
        print(f"{'met   ' if met else 'MISSED'} {goal}")
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Sweeps policies over recorded calls and proposes the one that catches most for a wanted precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from loopfence.errors import ConfigError, LoopfenceError
from loopfence.policy import Policy
from loopfence.replay.backtest import no_signature
from loopfence.replay.calls import Call, Problems, Turn
from loopfence.replay.clockwork import Clockwork, SessionRun
from loopfence.replay.history import History
from loopfence.replay.summary import Totals
from loopfence.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SWEPT: Final = {"window": (10, 20, 30, 50), "threshold": (2, 3, 4, 5)}
"""What is tried unless the user says otherwise."""


def combinations(base: Policy, swept: dict[str, Sequence[Any]]) -> list[Policy]:
    """The base policy with every combination of the swept fields that is a policy at all.

    ConfigError, of the first combination, where none is.
    """
    policies, first = [], None
    for values in product(*swept.values()):
        try:
            policies.append(base.override(**dict(zip(swept, values, strict=True))))
        except ConfigError as error:
            first = first or error
    if not policies:
        raise first or ConfigError("nothing to sweep")
    return policies


@dataclass
class Trial:
    """One policy and what it would have done."""

    policy: Policy
    totals: Totals = field(default_factory=Totals)


@dataclass
class _Recorded:
    key: dict[str, Any]
    items: list[Call | Turn] = field(default_factory=list)


class Tuner:
    """Follows sessions and runs each, at its end, under all policies; it holds a session's calls until then.

    A trial's totals are those that a backtest under its policy would come to. `watch` is shown every session's
    items as well.
    """

    def __init__(
        self,
        policies: Iterable[Policy],
        problems: Problems,
        watch: Callable[[list[Call | Turn]], None] = lambda _: None,
    ) -> None:
        self.trials = [Trial(policy) for policy in policies]
        self._problems = problems
        self._watch = watch
        # thresholds are judged afterwards, from the same counts
        self._passes: dict[tuple[Any, ...], tuple[Clockwork, list[Trial]]] = {}
        for trial in self.trials:
            counting = (trial.policy.window, trial.policy.max_age)
            self._passes.setdefault(counting, (Clockwork(trial.policy), []))[1].append(trial)

    def begin(self, key: dict[str, Any]) -> _Recorded:
        """A session without calls."""
        return _Recorded(key)

    def take(self, recorded: _Recorded, item: Call | Turn) -> None:
        """Keeps an item until the session's end."""
        recorded.items.append(item)

    def end(self, recorded: _Recorded) -> None:
        """Runs the session under every policy."""
        self._watch(recorded.items)
        problems = self._problems
        for clockwork, trials in self._passes.values():
            judged = [(trial, History(recorded.key)) for trial in trials]
            run = SessionRun(clockwork)
            for item in recorded.items:
                try:
                    taken = run.take(item)
                except LoopfenceError as error:
                    problems.add(judged[0][1].label, 0, no_signature(error))
                    continue
                for call, counted in taken:
                    if counted is None or not isinstance(call, Call):
                        continue
                    for trial, history in judged:
                        level, rule, _ = judge(trial.policy, counted[1], trial.policy.limits(call.tool))
                        history.add(call, counted, level, rule)
            quiet = run.end()
            for _, history in judged:
                history.add_uncounted(quiet, timeline=False)
            problems = Problems()  # a call without a signature has none under any policy: it is told once
            for trial, history in judged:
                trial.totals.add(history)


def propose(trials: Sequence[Trial], precision: float) -> Trial:
    """The trial that catches most of what it should among those of this precision, else the most precise one.

    A trial that flags nothing counts as precise. Among equals: more calls saved, fewer resolved sessions hit,
    then the nearest to the default window and threshold.
    """
    default = Policy()

    def worth(trial: Trial) -> tuple[float, ...]:
        totals, policy = trial.totals, trial.policy
        nearness = -abs(policy.threshold - default.threshold) - abs(policy.window - default.window) / 1000
        return (totals.recall or 0.0, totals.saved, -totals.resolved_hit, nearness)

    precise = [trial for trial in trials if _precision(trial) >= precision]
    return max(precise, key=worth) if precise else max(trials, key=lambda t: (_precision(t), *worth(t)))


def _precision(trial: Trial) -> float:
    reached = trial.totals.precision
    return 1.0 if reached is None else reached

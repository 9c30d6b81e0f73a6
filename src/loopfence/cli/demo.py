"""`loopfence demo`: an agent's calls are made by many workers, and the loop none of them can see is cut."""

import dataclasses
import secrets
import time
from collections import Counter
from typing import Annotated

import typer

from loopfence import Policy, Verdict
from loopfence.cli import options
from loopfence.cli.demo_screen import Screen
from loopfence.cli.demo_team import AgentCall, Team, demo_guard

POLICY = Policy.from_mapping(dataclasses.asdict(Policy()))
"""The default policy with every field given, so that no policy field in a URL changes what the demo tells."""

_ORDERS = AgentCall("find_orders", {"customer": "C-17"}, "[]")
_CUSTOMER = AgentCall("get_customer", {"id": "C-17"}, "Ann Lee")
_RULES = AgentCall("read_rules", {"topic": "refund"}, "30 days")
_BY_MAIL = AgentCall("find_orders", {"mail": "ann@x.org"}, "[8812]")
_REFUND = AgentCall("find_refund", {"order": 8812}, "[]")
_RESULTS = ("queued", "20 %", "55 %", "90 %", "done")


def demo(
    url: options.Url = None,
    workers: Annotated[int, typer.Option(min=2, max=16, help="How many workers make the agent's calls.")] = 4,
) -> None:
    """See a loop being cut: over memory or, with --url, over Redis.

    The workers that make the agent's calls are processes over Redis, threads over memory. The session that
    they leave in Redis can be looked at with the commands that are printed last, and is gone after ten minutes.
    """
    session = f"demo-{secrets.token_hex(2)}"
    store = url if url and not url.startswith("memory:") else f"memory://{session}"
    screen = Screen(store, session, POLICY)
    with demo_guard(store, POLICY) as guard:
        # A server that does not answer is found here, before any worker is started.
        guard.session(session).peek(_ORDERS.tool, _ORDERS.args)
        with Team(store, POLICY, workers) as team:
            with screen.starting(workers):
                team.start()
            screen.opening(team)
            story = _Story(screen, session, team)
            story.repeat()
            story.progress()
            story.race()
        screen.closing(team)


class _Story:
    """The three scenes, each a run of calls that the workers make on one session."""

    def __init__(self, screen: Screen, session: str, team: Team) -> None:
        self._screen = screen
        self._session = session
        self._workers = team.workers

    def repeat(self) -> None:
        """The same call three times without progress, by different workers."""
        self._screen.scene("A loop that no worker can see", "Whichever worker is free makes the agent's next call.")
        made: Counter[int] = Counter()
        calls = (_ORDERS, _CUSTOMER, _ORDERS, _RULES, _ORDERS)
        verdicts = []
        for index, call in zip((0, 1, 2, 3, 1), calls, strict=True):
            verdicts.append(self._make(index, call))
            made[index % len(self._workers)] += call is _ORDERS
        self._screen.refusal(verdicts[-1], most=max(made.values()))
        self._screen.remark("The agent reads that, tries something else, and is let through:")
        self._make(2, _BY_MAIL)

    def progress(self) -> None:
        """The same call more often than the threshold, with a new result each time."""
        self._screen.scene("Progress is no loop", "The agent asks for a job's state: the same call, but new results.")
        verdicts = [self._make(i, AgentCall("job_state", {"job": 7}, result)) for i, result in enumerate(_RESULTS)]
        self._screen.progress(verdicts)

    def race(self) -> None:
        """The same call by all workers at one instant."""
        self._screen.scene("All at once", "Every worker makes the same call at the same instant.")
        size = max(len(self._workers), POLICY.threshold + 1)
        at = time.time() + 0.1
        racers = [self._workers[index % len(self._workers)] for index in range(size)]
        futures = [worker.start(self._session, _REFUND, at=at) for worker in racers]
        outcome = sorted(
            zip(racers, (future.result() for future in futures), strict=True), key=lambda one: one[1].total
        )
        for worker, verdict in outcome:
            self._screen.call(worker, _REFUND, verdict)
        self._screen.race([verdict for _, verdict in outcome])

    def _make(self, index: int, call: AgentCall) -> Verdict:
        worker = self._workers[index % len(self._workers)]
        verdict = worker.start(self._session, call).result()
        self._screen.call(worker, call, verdict)
        return verdict

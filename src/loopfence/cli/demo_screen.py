"""What the demo prints: a line a call as it is made, the refusal, and how to look at the session by hand."""

import json
import shlex
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from loopfence import Policy, Verdict
from loopfence.cli.demo_team import TTL, AgentCall, Team, Worker
from loopfence.cli.redis_cli import Recipe, holds_password, session_recipes
from loopfence.cli.tables import duration

_PAUSE = 0.2
"""Seconds after a call, so that the eye can follow; none where nobody looks on (a pipe)."""
_WIDTH = 78
_INDENT = "   "
_COLOURS = ("cyan", "magenta", "blue", "yellow")
_EXAMPLE_URL = "redis://localhost:6379/0"


class Screen:
    """Prints the demo: with colour and at reading speed on a terminal, plain and at once into a pipe."""

    def __init__(self, url: str, session: str, policy: Policy) -> None:
        self._out = Console(highlight=False)
        self._dot, self._ring = ("●", "○") if self._out.encoding.startswith("utf") else ("#", "-")
        self._url = url
        self._session = session
        self._policy = policy
        self._scenes = 0

    def starting(self, workers: int) -> AbstractContextManager[object]:
        """Shown on a terminal while the workers start."""
        return self._out.status(f"starting {workers} workers")

    def opening(self, team: Team) -> None:
        """Who makes the calls, what they share, and where a call becomes a loop."""
        if team.processes:
            kind, store = "processes", "Redis" if holds_password(self._url) else self._url
        else:
            kind, store = "threads", "memory"
        who = f": {len(team.workers)} worker {kind}, one window in {store}"
        self._out.print(Text.assemble(("loopfence", "bold"), who), soft_wrap=True)
        self._out.print(
            Text(
                f"session {self._session}, its last {self._policy.window} calls; "
                f"blocked at {self._policy.threshold} repeats without progress",
                "dim",
            )
        )

    def scene(self, title: str, text: str) -> None:
        """The heading of a scene and of its columns."""
        self._scenes += 1
        self._title(f"{self._scenes}  {title}")
        self.remark(text)
        self._out.print()
        self.remark(f"{'worker':12}{'call':33}{'result':9}{'total':>5}  repeats  verdict", "dim")

    def call(self, worker: Worker, call: AgentCall, verdict: Verdict) -> None:
        """One call, when it has been made."""
        name = f"w{worker.number}" + (f" {worker.pid}" if worker.pid else "")
        what = f"{call.tool} {json.dumps(call.args, separators=(',', ':'))}"
        refused = not verdict.allowed
        filled = min(verdict.count, verdict.threshold)
        gauge = self._dot * filled + self._ring * (verdict.threshold - filled)
        self._out.print(
            Text.assemble(
                _INDENT,
                (f"{name:12}", _COLOURS[(worker.number - 1) % len(_COLOURS)]),
                f"{what:33}",
                (f"{'not run' if refused else call.result:9}", "red" if refused else "dim"),
                f"{verdict.total:5}  ",
                (f"{gauge}{verdict.count:3}  ", "red" if refused else ""),
                (verdict.level.name, "bold red" if refused else "green"),
            ),
            soft_wrap=True,
        )
        if self._out.is_terminal:
            time.sleep(_PAUSE)

    def refusal(self, verdict: Verdict, most: int) -> None:
        """What the model reads in place of a result, and the most that any worker alone has seen."""
        panel = Panel(
            verdict.message,
            title="the model gets, in place of a result",
            title_align="left",
            border_style="red",
        )
        self._out.print()
        self._out.print(Padding(panel, (0, 0, 0, len(_INDENT))), width=_WIDTH)
        self._out.print()
        seen = {1: "once", 2: "twice"}[most]
        self.remark(f"No worker made that call more than {seen}; the window they share has all {verdict.count}.")

    def progress(self, verdicts: Sequence[Verdict]) -> None:
        """The sum of the scene in which results change."""
        self._out.print()
        blocked = sum(not verdict.allowed for verdict in verdicts)
        self.remark(f"{verdicts[-1].total} equal calls, {blocked} blocked: a new result is progress.")

    def race(self, verdicts: Sequence[Verdict]) -> None:
        """The sum of the scene in which all workers call at once."""
        self._out.print()
        ran = sum(verdict.allowed for verdict in verdicts)
        self.remark(f"{ran} ran, {len(verdicts) - ran} did not, whoever came first: each call is one atomic step.")

    def closing(self, team: Team) -> None:
        """How to look at the session by hand, or how to get one that can be looked at."""
        if not team.processes:
            self._title("Over a Redis the workers are processes, on any number of machines")
            self._recipe(Recipe("any Redis from 6.2 on, or Valkey", f"loopfence demo --url {_EXAMPLE_URL}"))
            self._title("and the session is a few keys, which redis-cli shows")
            self._recipes(session_recipes(_EXAMPLE_URL, self._session))
            return
        self._title(f"Look at it yourself: the session stays for {duration(TTL)}")
        secret = holds_password(self._url)
        if secret:
            self._out.print(Text(f"{_INDENT}# once: export REDISCLI_AUTH=<the password>", "dim"))
        where = "" if secret else f" --url {shlex.quote(self._url)}"
        table = Recipe(
            "all of it as a table" + (", with LOOPFENCE_URL set" if secret else ""),
            f"loopfence show {self._session}{where}",
        )
        self._recipes([*session_recipes(self._url, self._session), table])

    def _recipes(self, recipes: Sequence[Recipe]) -> None:
        for recipe in recipes:
            self._recipe(recipe)

    def _recipe(self, recipe: Recipe) -> None:
        self.remark(f"# {recipe.purpose}", "dim")
        # Never wrapped, also on a narrow terminal: the line is there to be pasted.
        self.remark(recipe.command, "cyan")

    def _title(self, text: str) -> None:
        self._out.print()
        self._out.print(Text(text, "bold"))

    def remark(self, text: str, style: str = "") -> None:
        """A sentence under a heading or under the calls of a scene."""
        self._out.print(Text(_INDENT + text, style), soft_wrap=True)

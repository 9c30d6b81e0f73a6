"""`loopfence doctor`: is the server behind a URL fit for a guard, and what to do where it is not."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loopfence.cli import options, printable
from loopfence.cli.diagnosis import Finding, diagnose
from loopfence.cli.opening import print_json, server_url

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(url: options.Url = None, as_json: options.AsJson = False) -> int:
    """Examine the server that holds the sessions: exit code 1 where it has a problem.

    Server and version, memory, role, round trip, clock, permissions, sessions. Writes to one session of its own.
    """
    findings = diagnose(server_url(url))
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        _print(findings)
    return int(any(finding.level == "problem" for finding in findings))


def _print(findings: list[Finding]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for level, subject, text, advice in findings:
        table.add_row(Text(level, _STYLES[level]), subject, Text(printable(text)))
        if advice:
            table.add_row("", "", Text(f"-> {printable(advice)}", _STYLES[level]))
    Console(highlight=False).print(table)

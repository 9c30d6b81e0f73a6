"""`loopfence halt`, `resume` and `reset`: an operator's hand on one session."""

from typing import Annotated

import typer

from loopfence.cli import options, printable
from loopfence.cli.opening import open_guard


def halt(
    session: options.Session,
    reason: Annotated[str, typer.Option(metavar="TEXT", show_default=False, help="Why; the model is told.")],
    url: options.Url = None,
    policy: options.PolicyFile = None,
) -> None:
    """Refuse every call of a session until `resume` or `reset`.

    Whichever worker asks, for whatever tool. The halt ends by itself after 24 hours without a call.
    """
    with open_guard(url, policy) as guard:
        guard.session(session).halt(reason)
    print(f"{printable(session)} is halted: {printable(reason)}")


def resume(session: options.Session, url: options.Url = None, policy: options.PolicyFile = None) -> None:
    """Let a halted session go on; its window stays."""
    with open_guard(url, policy) as guard:
        guard.session(session).resume()
    print(f"{printable(session)} may go on")


def reset(session: options.Session, url: options.Url = None, policy: options.PolicyFile = None) -> None:
    """Forget a session: its window, its counts and its halt."""
    with open_guard(url, policy) as guard:
        guard.session(session).reset()
    print(f"{printable(session)} is forgotten")

"""`loopfence show` and `loopfence sessions`: what the guard knows, as a table or as JSON."""

from typing import Any

from loopfence import SessionSnapshot
from loopfence.cli import options, tables
from loopfence.cli.opening import open_guard, print_json


def show(
    session: options.Session,
    url: options.Url = None,
    policy: options.PolicyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a session: the calls in its window, and what is halted."""
    with open_guard(url, policy) as guard:
        snapshot = guard.session(session).snapshot()
    if as_json:
        print_json(_window(snapshot))
    else:
        tables.print_window(snapshot, guard.policy)


def sessions(url: options.Url = None, policy: options.PolicyFile = None, as_json: options.AsJson = False) -> None:
    """List the sessions: calls, top repeat, halted, idle time, TTL."""
    with open_guard(url, policy) as guard:
        # SCAN finds them in no order.
        snapshots = [guard.session(name).snapshot() for name in sorted(guard.sessions())]
    if as_json:
        print_json([_summary(snapshot) for snapshot in snapshots])
    else:
        tables.print_summaries(snapshots, guard.policy)


def _summary(snapshot: SessionSnapshot) -> dict[str, Any]:
    """The JSON form of a session; `idle` and `ttl` are seconds."""
    return {
        "session": snapshot.session,
        "calls": len(snapshot.calls),
        "top_repeat": tables.top_repeat(snapshot),
        "halted": snapshot.halted,
        "idle": snapshot.idle,
        "ttl": snapshot.ttl,
    }


def _window(snapshot: SessionSnapshot) -> dict[str, Any]:
    """The summary and the window, oldest call first; `at` is seconds since the epoch by the server.

    `repeats` are without progress since; `total` counts the equal calls in the window.
    """
    window = [
        {
            "at": call.at,
            "tool": call.tool,
            "digest": call.digest,
            "call_id": call.call_id,
            "repeats": snapshot.repeats.get(call.signature, 0),
            "total": snapshot.counts.get(call.signature, 0),
            "args": call.text,
        }
        for call in snapshot.calls
    ]
    return {**_summary(snapshot), "window": window}

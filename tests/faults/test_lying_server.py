"""What answers on the port may be anything: a web server, a broken proxy, a script of another release."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from ledger import TIMEOUT, Ledger

from loopfence import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flavour import Flavour

LIES = {
    "another type": b":1\r\n",
    "another text": b"+OK\r\n",
    "an empty text": b"$0\r\n\r\n",
    "nothing": b"$-1\r\n",
    "an empty list": b"*0\r\n",
    "a list of nothing": b"*7\r\n" + 7 * b"$-1\r\n",
    "numbers that are none": b"$11\r\na b c d e f\r\n",
    "bytes that are no text": b"$13\r\n\xff \xfe 1 1 1 1 \r\n",
    "too few numbers": b"$3\r\n1 1\r\n",
    "an error of its own": b"-NONSENSE and more\r\n",
    "an error without a word": b"-\r\n",
    "a web page": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "no protocol": b"\x00\xff\x00\xff\r\n",
    "a huge promise": b"$99999999999\r\nx",
    "a huge list": b"*999999999\r\n",
    "a deep list": b"*1\r\n" * 20_000,
    "a negative length": b"$-7\r\n",
    "no number for a length": b"$x\r\n",
}


@contextlib.contextmanager
def liar(answer: bytes) -> Iterator[str]:
    """The URL of a server that answers every request with the same bytes."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while connection.recv(65536):
                connection.sendall(answer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(listener.accept()[0])
                threading.Thread(target=serve, args=(connections[-1],), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        accepting.join(5)


@pytest.mark.parametrize("lie", list(LIES))
def test_any_answer_is_an_outage_and_nothing_else(lie: str, flavour: Flavour, ledger: Ledger) -> None:
    with liar(LIES[lie]) as url:
        ledger.injected("nonsense answered")
        session = flavour.guard(url, timeout=TIMEOUT).session("s")
        with ledger.bounded("nonsense answered"):
            verdict = session.check("search", {"q": 1})
        assert (verdict.degraded, verdict.source, verdict.count) == (True, "local", 1)
        session.report(verdict, result="x")


@pytest.mark.parametrize("lie", list(LIES))
@pytest.mark.parametrize("ask", ["check", "peek", "many", "snapshot", "sessions", "report", "halt"])
def test_raise_raises_store_errors_only(lie: str, ask: str, flavour: Flavour) -> None:
    with liar(LIES[lie]) as url:
        guard = flavour.guard(url, timeout=0.1, on_outage="raise")
        session = guard.session("s")
        asks = {
            "check": lambda: session.check("search"),
            "peek": lambda: session.peek("search"),
            "many": lambda: guard.record_many([("s", "search", None), ("s", "search", None)]),
            "snapshot": session.snapshot,
            "sessions": lambda: list(guard.sessions()),
            "report": lambda: session.report_call("search", None, call_id="1", result=1),
            "halt": lambda: session.halt("operator"),
        }
        if ask in ("report", "halt"):  # their reply says nothing that is used
            with contextlib.suppress(StoreError):
                asks[ask]()
        else:
            with pytest.raises(StoreError):
                asks[ask]()


def test_an_answer_too_many_is_an_error_and_no_answer_to_the_next_call(flavour: Flavour) -> None:
    with liar(b"$12\r\n7 7 7 0 0 0 \r\n" * 2) as url:
        session = flavour.guard(url, timeout=TIMEOUT, on_outage="raise").session("s")
        with pytest.raises(StoreError, match="it says more than it was asked"):
            session.check("search")


def test_many_calls_answered_with_nonsense_follow_on_outage(flavour: Flavour) -> None:
    with liar(b"+OK\r\n" * 2) as url:
        verdicts = flavour.guard(url, timeout=TIMEOUT).record_many([("s", "search", None), ("s", "search", None)])
    assert [(verdict.degraded, verdict.count) for verdict in verdicts] == [(True, 1), (True, 2)]

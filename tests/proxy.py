"""A loopback TCP proxy that loses, delays, cuts and counts what passes between a client and a real server."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Self

CHUNK = 65536
SCRIPT_CALL = b"EVAL"  # in both EVALSHA and EVAL: the guard's own calls, not the handshake


@dataclass
class Fault:
    """What happens to a request that holds `on`, for the next `times` such requests (None: always).

    kinds: "drop" the server runs it, the reply is lost and the connection closed; "swallow" the same, but
    the connection stays open; "cut" after `size` bytes of the reply; "delay" the reply by `seconds`; "drip"
    the reply byte by byte, `seconds` apart; "refuse" close before the server sees it; "blackhole" neither
    runs nor answers.
    """

    kind: str
    times: int | None = 1
    on: bytes = SCRIPT_CALL
    seconds: float = 0.0
    size: int = 1


@dataclass
class Proxy:
    """Listens on 127.0.0.1:`port`, forwards to `upstream`, takes faults in the order they were injected."""

    upstream: tuple[str, int]
    faults: deque[Fault] = field(default_factory=deque)
    injected: Counter[str] = field(default_factory=Counter)
    requests: int = 0  # script calls seen, re-sent ones included
    connections: int = 0

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(5)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def inject(self, kind: str, times: int | None = 1, **details: object) -> None:
        with self._lock:
            self.faults.append(Fault(kind, times, **details))

    def heal(self) -> None:
        """No more faults; connections that a fault left hanging are closed."""
        with self._lock:
            self.faults.clear()
        self.cut_all()

    def cut_all(self) -> None:
        """Close every connection that is open now, in whatever state."""
        with self._lock:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self.upstream, 5) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.update((client, server))
            try:
                self._pump(client, server)
            finally:
                with self._lock:
                    self._open.difference_update((client, server))

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        while not self._closing.is_set():
            readable, _, _ = select.select([client, server], [], [], 1.0)
            if server in readable:
                reply = server.recv(CHUNK)
                if not reply:
                    return
                client.sendall(reply)
            if client in readable:
                request = client.recv(CHUNK)
                if not request:
                    return
                fault = self._fault_for(request)
                if fault is None:
                    server.sendall(request)
                elif not self._spoil(fault, request, client, server):
                    return

    def _fault_for(self, request: bytes) -> Fault | None:
        with self._lock:
            self.requests += request.count(SCRIPT_CALL)
            for fault in self.faults:
                if fault.on in request:
                    break
            else:
                return None
            self.injected[fault.kind] += 1
            if fault.times is not None:
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
            return fault

    def _spoil(self, fault: Fault, request: bytes, client: socket.socket, server: socket.socket) -> bool:
        """Do what the fault says; whether the connection lives on."""
        if fault.kind == "refuse":
            return False
        if fault.kind == "blackhole":
            return True
        server.sendall(request)
        reply = server.recv(CHUNK)
        if fault.kind == "drop":
            return False
        if fault.kind == "cut":
            client.sendall(reply[: fault.size])
            return False
        if fault.kind == "delay":
            self._closing.wait(fault.seconds)
            client.sendall(reply)
        elif fault.kind == "drip":
            for byte in reply:
                client.sendall(bytes((byte,)))
                time.sleep(fault.seconds)
        elif fault.kind != "swallow":
            raise ValueError(f"no such fault: {fault.kind}")
        return True

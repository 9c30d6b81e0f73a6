"""Fixtures over every store: one parameter list, real servers, and a leak check after each test."""

from __future__ import annotations

import contextlib
import functools
import uuid
from typing import TYPE_CHECKING, Any

import fakeredis
import pytest
from hypothesis import HealthCheck, settings

from servers import LEAKS, Binary, RedisServer, find_binaries, running, stop_all
from servers.binaries import NO_SERVER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import redis

    from loopfence import AsyncLoopGuard, LoopGuard

settings.register_profile(
    "loopfence",
    deadline=None,  # a shared machine is slow at times; hangs are the business of pytest-timeout
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("loopfence")

BINARIES = {binary.name: binary for binary in find_binaries()}
# where there is no server, its tests still run, and fail with one sentence
REAL_SERVERS = list(BINARIES) or ["redis"]
# an outage would be answered from this process' own memory: tests of the rules must see it
PATIENT = {"timeout": 10.0, "on_outage": "raise"}
STORES = ["memory", "fakeredis", *REAL_SERVERS]


def pytest_report_header() -> str:
    return f"servers: {', '.join(BINARIES) or NO_SERVER}"


def pytest_sessionfinish() -> None:
    stop_all()


@functools.cache
def shared_server(name: str) -> RedisServer:
    """The one server of a version that all tests of this run share; emptied after each of them."""
    return RedisServer(_binary(name)).start()


def _binary(name: str) -> Binary:
    if name not in BINARIES:
        pytest.fail(NO_SERVER, pytrace=False)
    return BINARIES[name]


class StoreUnderTest:
    """One store: guards on it share its data, as the workers of one fleet do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_redis = name != "memory"
        self.server = shared_server(name) if name in REAL_SERVERS else None
        self._memory = f"memory://{uuid.uuid4().hex}"
        self._fake = fakeredis.FakeServer() if name == "fakeredis" else None
        self._to_close: list[Any] = []

    def __repr__(self) -> str:
        return self.name

    @property
    def url(self) -> str:
        """A URL of this store, for guards on the same data; fakeredis has none."""
        if self.server is not None:
            return self.server.url
        if self._fake is not None:
            raise LookupError("fakeredis is reached by client=, not by a URL")
        return self._memory

    def guard(self, **options: Any) -> LoopGuard:
        """A guard on this store, closed after the test; patient, as a shared machine is slow at times."""
        from loopfence import LoopGuard

        options = {**PATIENT, **options}
        guard = LoopGuard(client=self.client(), **options) if self._fake is not None else LoopGuard(self.url, **options)
        self._to_close.append(guard)
        return guard

    def async_guard(self, **options: Any) -> AsyncLoopGuard:
        """The same for asyncio; `aclose` in the same loop."""
        from loopfence import AsyncLoopGuard

        options = {**PATIENT, **options}
        if self._fake is None:
            return AsyncLoopGuard(self.url, **options)
        return AsyncLoopGuard(client=fakeredis.FakeAsyncRedis(server=self._fake), **options)

    def client(self) -> redis.Redis:
        """A raw client with bytes replies, to look at keys and to damage them; memory has none."""
        if self._fake is not None:
            client = fakeredis.FakeRedis(server=self._fake)
        elif self.server is not None:
            client = self.server.connect()
        else:
            raise LookupError("memory:// has no keys to look at")
        self._to_close.append(client)
        return client

    def close(self) -> None:
        while self._to_close:
            self._to_close.pop().close()

    def untimed_keys(self) -> list[str]:
        """Session keys of the fakeredis store without a TTL; real servers are scanned for every test."""
        if self._fake is None:
            return []
        return [repr(key) for key in self.client().scan_iter() if self.client().ttl(key) == -1]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[StoreUnderTest]:
    """Every store there is: the one parameter list that all store tests run over."""
    under_test = StoreUnderTest(request.param)
    yield under_test
    leaked = under_test.untimed_keys()
    under_test.close()
    assert not leaked, f"session keys without a TTL: {leaked}"


@pytest.fixture(params=[name for name in STORES if name != "memory"])
def redis_store(request: pytest.FixtureRequest) -> Iterator[StoreUnderTest]:
    """Every store with keys that can be looked at: fakeredis and the real servers."""
    under_test = StoreUnderTest(request.param)
    yield under_test
    leaked = under_test.untimed_keys()
    under_test.close()
    assert not leaked, f"session keys without a TTL: {leaked}"


@pytest.fixture
def make_guard(store: StoreUnderTest) -> Callable[..., LoopGuard]:
    """`make_guard(window=…)`: a guard on the store; several share one set of sessions."""
    return store.guard


@pytest.fixture
async def make_async_guard(store: StoreUnderTest) -> AsyncIterator[Callable[..., AsyncLoopGuard]]:
    """The asyncio twin of make_guard."""
    made = []

    def make(**options: Any) -> AsyncLoopGuard:
        made.append(store.async_guard(**options))
        return made[-1]

    yield make
    for guard in made:
        await guard.close()


@pytest.fixture(params=REAL_SERVERS)
def redis_server(request: pytest.FixtureRequest) -> RedisServer:
    """Each real server version, empty; shared by all tests: break your own (start_server)."""
    return shared_server(request.param)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The URL of each real server version, empty."""
    return redis_server.url


@pytest.fixture
def newest_server() -> RedisServer:
    """One real server, the newest, empty: for tests that need not run on every version."""
    return shared_server(REAL_SERVERS[-1])


@pytest.fixture
def start_server() -> Iterator[Callable[..., RedisServer]]:
    """`start_server("maxmemory 2mb")`: the newest server with more lines of redis.conf, to be broken."""
    with contextlib.ExitStack() as stack:

        def start(*config: str, **options: Any) -> RedisServer:
            server = RedisServer(_binary(REAL_SERVERS[-1]), config=config, **options)
            return stack.enter_context(server)

        yield start


@pytest.fixture(autouse=True)
def no_key_without_ttl() -> Iterator[None]:
    """Fails any test that leaves a session key without TTL on any server that runs, then empties them."""
    yield
    leaked = [f"{name}: {key}" for name, key in LEAKS]
    LEAKS.clear()
    for server in running():
        if server.alive and not server.frozen:
            leaked.extend(f"{server.binary.name}: {key}" for key in server.untimed_keys())
            server.flush()
    assert not leaked, f"session keys without a TTL: {leaked}"

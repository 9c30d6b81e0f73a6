"""The Celery recipe: one agent run on a real pool of prefork workers, over the test's Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

import loopfence
from loopfence import LoopGuard

celery = pytest.importorskip("celery", reason="the Celery recipe needs celery: pip install celery")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import RedisServer

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
NOT_RUN = "This call was not run."
PAGE = {"page": 1}

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(sys.platform == "win32", reason="a prefork pool forks")]


class Pool:
    """Workers, and the agent's side of the queue."""

    def __init__(self, url: str) -> None:
        self.guard = LoopGuard(url)
        self._redis = redis.Redis.from_url(url)
        self._app = celery.Celery("agent", broker=url, backend=url)

    def send(self, task: str, *args: Any) -> Any:
        return self._app.send_task(task, args)

    def call(self, run_id: str, tool: str) -> Any:
        return self.send("celery_workers.call_tool", run_id, tool, PAGE).get(timeout=90)

    def ran(self, tool: str) -> list[int]:
        """The process ids of the workers that ran this tool."""
        return [int(pid) for pid in self._redis.lrange(f"ran:{tool}", 0, -1)]

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while not self._app.control.inspect(timeout=1).ping():
            assert time.monotonic() < deadline, "the workers did not start"

    def close(self) -> None:
        self._app.close()
        self._redis.close()
        self.guard.close()


@pytest.fixture
def pool(newest_server: RedisServer, tmp_path: Path) -> Iterator[Pool]:
    path = os.pathsep.join([str(HERE), str(EXAMPLES)])
    env = {**os.environ, "LOOPFENCE_URL": newest_server.url, "PYTHONPATH": path}
    command = [sys.executable, "-m", "celery", "-q", "-A", "celery_app", "worker", "-c", "2", "-l", "warning"]
    log = tmp_path / "worker.log"
    with log.open("w") as out, subprocess.Popen(command, env=env, cwd=tmp_path, stdout=out, stderr=out) as workers:
        pool = Pool(newest_server.url)
        try:
            pool.wait()
            yield pool
        finally:
            pool.close()
            workers.terminate()
            workers.wait(60)


def test_the_third_equal_call_is_not_run_though_no_worker_made_three(pool: Pool) -> None:
    both = [pool.send("celery_workers.call_tool", "run-1", "slow", PAGE) for _ in range(2)]
    assert [job.get(timeout=90) for job in both] == ["the same text"] * 2
    assert len(set(pool.ran("slow"))) == 2, "two processes of the pool"
    assert pool.call("run-1", "slow").startswith(f"{NOT_RUN} 'slow' was called 3 times")
    assert len(pool.ran("slow")) == 2
    assert pool.call("run-2", "slow") == "the same text"


def test_a_task_that_is_delivered_again_after_its_worker_died_counts_once(pool: Pool) -> None:
    assert pool.call("run-1", "crash") == "survived"
    first, second = pool.ran("crash")
    assert first != second
    session = pool.guard.session("run-1")
    assert [(call.tool, call.reported) for call in session.snapshot().calls] == [("crash", True)]
    assert session.peek("crash", PAGE).count == 2


def test_a_task_that_is_retried_counts_once_and_its_success_is_what_is_known(pool: Pool) -> None:
    job = pool.send("celery_app.call_until_it_works", "run-1", "flaky", PAGE)
    assert job.get(timeout=90) == "at last"
    assert len(pool.ran("flaky")) == 2
    snapshot = pool.guard.session("run-1").snapshot()
    assert len(snapshot.calls) == 1
    assert snapshot.failing == {}


def test_a_context_variable_does_not_travel_but_an_id_does(pool: Pool) -> None:
    with loopfence.session("run-1"):
        assert pool.send("celery_app.look_up", None).get(timeout=90) == [None, None]
        assert pool.send("celery_app.look_up", "run-1").get(timeout=90) == [None, "run-1"]
    assert [call.tool for call in pool.guard.session("run-1").snapshot().calls] == ["lookup"]


def test_the_example_shows_a_loop_being_cut(newest_server: RedisServer) -> None:
    env = {**os.environ, "LOOPFENCE_URL": newest_server.url}
    command = [sys.executable, EXAMPLES / "celery_workers.py"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.count("tool -> model: No results.") == 2
    assert done.stdout.count(f"tool -> model: {NOT_RUN}") == 2

"""The workers of the Celery recipe, with tools that crash, fail and tell where they run."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import redis
from celery_workers import TOOLS, URL, app, guard

import loopfence

if TYPE_CHECKING:
    from celery import Task

__all__ = ["app"]


def _note(tool: str) -> int:
    """Write down that a tool runs and where; gives how often it has run."""
    with redis.Redis.from_url(URL) as client:
        return client.rpush(f"ran:{tool}", os.getpid())


def slow(page: int) -> str:
    _note("slow")
    time.sleep(1)  # long enough that the other process of the pool takes the next task
    return "the same text"


def crash(page: int) -> str:
    if _note("crash") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def flaky(page: int) -> str:
    if _note("flaky") == 1:
        raise ConnectionError("not yet")
    return "at last"


TOOLS.update(slow=slow, crash=crash, flaky=flaky)


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=False, default_retry_delay=0)
def call_until_it_works(self: Task[Any, Any], run_id: str, tool: str, args: dict[str, Any]) -> Any:
    with guard.session(run_id).call(tool, args, call_id=self.request.id) as call:
        call.result = TOOLS[tool](**args)
    return call.result


@guard.tool
def lookup(page: int) -> str:
    return "found"


@app.task
def look_up(run_id: str | None) -> tuple[str | None, str | None]:
    """The session that a task finds around it, and the one inside the block that it opens itself."""
    around = loopfence.current_session()
    if run_id is None:
        return around, None
    with loopfence.session(run_id):
        lookup(1)
        return around, loopfence.current_session()

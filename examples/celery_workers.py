"""One agent run whose tool calls are Celery tasks on several workers, and the guard that all of them share.

    pip install loopfence celery
    LOOPFENCE_URL=redis://localhost:6379/0 python examples/celery_workers.py

The agent and its workers are different processes, so the run's id travels as an argument of the task: a context
variable (`with loopfence.session(id)`) does not cross a job queue. The task's id is the call's id: Celery delivers a
task again when its worker dies, and the second delivery is the same call.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from celery import Celery, Task

from loopfence import LoopDetectedError, LoopGuard

URL = os.environ.get("LOOPFENCE_URL", "redis://localhost:6379/0")

app = Celery("celery_workers", broker=URL, backend=URL)
app.conf.task_acks_late = True  # a task whose worker dies ...
app.conf.task_reject_on_worker_lost = True  # ... is delivered again, with the same id
app.conf.broker_connection_retry_on_startup = True

guard = LoopGuard(URL, threshold=3)


def search(query: str) -> str:
    """Search the web."""
    return "No results."


TOOLS = {"search": search}


@app.task(bind=True)
def call_tool(self: Task[Any, Any], run_id: str, tool: str, args: dict[str, Any]) -> Any:
    """Run one tool call of an agent; gives its result, or why it was not run."""
    try:
        with guard.session(run_id).call(tool, args, call_id=self.request.id) as call:
            call.result = TOOLS[tool](**args)
    except LoopDetectedError as error:
        return error.verdict.message
    return call.result


def main() -> None:
    worker = [sys.executable, "-m", "celery", "-q", "-A", "celery_workers", "worker", "-c", "2", "-l", "error"]
    with subprocess.Popen(worker, cwd=Path(__file__).parent) as pool:
        try:
            run_id = str(uuid.uuid4())
            for _ in range(4):
                # A real agent asks its model here what to call next.
                answer = call_tool.delay(run_id, "search", {"query": "flights to Oslo"}).get(timeout=60)
                print(f"tool -> model: {answer}")
        finally:
            pool.terminate()


if __name__ == "__main__":
    main()

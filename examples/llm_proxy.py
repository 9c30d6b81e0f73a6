"""A guarded reverse proxy for any LLM API: point OPENAI_BASE_URL (or ANTHROPIC_BASE_URL) at it, change nothing else.

    pip install loopfence starlette httpx uvicorn
    UPSTREAM=https://api.openai.com LOOPFENCE_URL=redis://localhost:6379/0 LOOPFENCE_SECRET=… \
        uvicorn --app-dir examples llm_proxy:app --port 4000
    OPENAI_BASE_URL=http://localhost:4000/v1 python your_agent.py     # sends the header x-session-id
"""

import os

import httpx
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from loopfence.integrations.asgi import LoopGuardMiddleware

upstream = httpx.AsyncClient(base_url=os.environ.get("UPSTREAM", "https://api.openai.com"), timeout=600)
BETWEEN_TWO_HOPS = {"host", "connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer"}


async def forward(request: Request) -> StreamingResponse:
    url = httpx.URL(path=request.url.path, query=request.url.query.encode())
    headers = [(name, value) for name, value in request.headers.items() if name not in BETWEEN_TWO_HOPS]
    sent = upstream.build_request(request.method, url, headers=headers, content=request.stream())
    answer = await upstream.send(sent, stream=True)
    kept = {name: value for name, value in answer.headers.items() if name not in BETWEEN_TWO_HOPS}
    return StreamingResponse(answer.aiter_raw(), answer.status_code, kept, background=BackgroundTask(answer.aclose))


guard = Middleware(LoopGuardMiddleware, secret=os.environ.get("LOOPFENCE_SECRET"))
app = Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST", "DELETE"])], middleware=[guard])

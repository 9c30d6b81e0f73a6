"""`guard.tool`: a tool function that is checked before it runs and reported after it."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from loopfence.context import current_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from loopfence.aio import AsyncLoopGuard
    from loopfence.guard import LoopGuard


def guarded(
    guard: LoopGuard | AsyncLoopGuard,
    twin: Callable[[], LoopGuard | AsyncLoopGuard],
    fn: Callable[..., Any] | None,
    session: Any,
    name: str | None,
) -> Any:
    """Wrap `fn`, or give a decorator. `twin` makes the guard of the other colour, should `fn` need it."""
    if fn is None:
        return functools.partial(guarded, guard, twin, session=session, name=name)
    tool = name or fn.__name__
    signature = inspect.signature(fn)
    coloured = inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)
    if coloured is not hasattr(guard, "as_sync"):
        guard = twin()

    def start(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
        first = next(iter(named), None)
        if first in ("self", "cls"):
            del named[first]
        chosen = session(*args, **kwargs) if callable(session) else session
        chosen = chosen or current_session()
        return (guard.session(chosen) if chosen else guard).call(tool, named)

    return functools.wraps(fn)(_wrapper(fn, start))


def _wrapper(fn: Callable[..., Any], start: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(fn):

        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async with start(args, kwargs):
                async for item in fn(*args, **kwargs):
                    yield item

        return stream
    if inspect.iscoroutinefunction(fn):

        async def run_async(*args: Any, **kwargs: Any) -> Any:
            async with start(args, kwargs) as call:
                call.result = await fn(*args, **kwargs)
            return call.result

        return run_async
    if inspect.isgeneratorfunction(fn):

        def iterate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with start(args, kwargs):
                return (yield from fn(*args, **kwargs))

        return iterate

    def run(*args: Any, **kwargs: Any) -> Any:
        with start(args, kwargs) as call:
            call.result = fn(*args, **kwargs)
        return call.result

    return run

"""`with guard:` and `async with guard:`, for everything that can be closed."""

from __future__ import annotations

from typing import Self


class Closing:
    """Closes at the end of a `with` block."""

    def close(self) -> None:
        """Close the connections that this object made; may be called twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing:
    """Closes at the end of an `async with` block."""

    async def close(self) -> None:
        """Close the connections that this object made; may be called twice."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """`close`, by the name that redis-py and httpx give it."""
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

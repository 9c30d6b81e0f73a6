"""A store's keys as text, as a reader in redis-cli sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import StoreUnderTest


class Keys:
    """The keys of a store as text, read with a plain client."""

    def __init__(self, store: StoreUnderTest) -> None:
        self.client = store.client()

    def names(self) -> list[str]:
        return sorted(key.decode() for key in self.client.keys("*"))

    def all(self) -> dict[str, Any]:
        """Every key with its content: a list of pairs, or a dict."""
        return {key: self.content(key) for key in self.names()}

    def content(self, key: bytes | str) -> Any:
        if self.client.type(key) == b"zset":
            return [(member.decode(), score) for member, score in self.client.zrange(key, 0, -1, withscores=True)]
        return {field.decode(): value.decode() for field, value in self.client.hgetall(key).items()}

    def ttls(self) -> dict[str, int]:
        """Key -> milliseconds, to the next whole minute: the tests take less."""
        return {key: -(-self.client.pttl(key) // 60_000) * 60_000 for key in self.names()}

    def expire_in_a_minute(self) -> None:
        for key in self.names():
            self.client.pexpire(key, 60_000)

    def dumps(self) -> dict[str, bytes]:
        """Every key with the whole of its content, as the server writes it out."""
        return {key: self.client.dump(key) for key in self.names()}

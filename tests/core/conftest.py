"""What the tests of the core share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from keyspace import Keys

if TYPE_CHECKING:
    from conftest import StoreUnderTest


@pytest.fixture
def keys(redis_store: StoreUnderTest) -> Keys:
    """The keys of the store that the test runs over."""
    return Keys(redis_store)

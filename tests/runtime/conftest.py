"""Ranks that are forked once and serve all tests of a session."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from tests.runtime.pool import Pool

# The rest of the suite runs where torch is not installed.
collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]

Ranks = Callable[[int], Pool]


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Gives the pool of a world size; one that failed or is worn out is replaced."""
    pools: dict[int, Pool] = {}

    def of_size(size: int) -> Pool:
        if size in pools and (pools[size].failed or pools[size].worn_out):
            pools.pop(size).close()
        if size not in pools:
            pools[size] = Pool(size)
        return pools[size]

    yield of_size
    for pool in pools.values():
        pool.close()

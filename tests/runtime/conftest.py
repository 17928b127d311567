"""Ranks that are forked once and serve all tests of a session."""

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # ranks are forked: a thread of the parent would be missing in them

from tests.runtime.pool import Pool  # noqa: E402  torch may be missing

Ranks = Callable[[int], Pool]


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Gives the pool of a world size; a pool that failed is replaced."""
    pools: dict[int, Pool] = {}

    def of_size(size: int) -> Pool:
        if size in pools and pools[size].failed:
            pools.pop(size).close()
        if size not in pools:
            pools[size] = Pool(size)
        return pools[size]

    yield of_size
    for pool in pools.values():
        pool.close()

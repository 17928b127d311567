"""Every plan of a small job that may offload: each recompute set and count under every choice of fractions.

What stages that share a node take of its memory together is counted rank by rank.
"""

from itertools import product
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from planner.request import PlanRequest
from tests.oracles.brute_force import MARGIN, REPLAYED_AT_ONCE, TIMES, BruteForce, Stages, chunk_sizes
from tests.oracles.legal_layouts import Row, head_rank

Array = NDArray[np.float64]
Columns = dict[str, NDArray[np.float64]]

QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
EVERY_SHARE = tuple(product(QUARTERS, repeat=4))
SHARES = ("offload_weights", "offload_gradients", "offload_optimizer", "offload_activations")
USABLE = 0.9  # of a host's memory


class BruteOffload(BruteForce):
    """All plans of a request whose stages offload any of `shares`: weights, gradients, optimizer, activations."""

    def __init__(self, request: PlanRequest, shares: tuple[tuple[float, ...], ...] = EVERY_SHARE) -> None:
        super().__init__(request, offload=True)
        self._shares = np.array(shares)

    def _options(self, index: int, position: int, layers: int) -> Stages:
        """Every option of a stage that fits on the device, the host bytes of each in `rows`."""
        layout = self.layouts[index]
        rows = self._of_stage(index, position, layers)
        columns = {name: np.repeat([row[name] for row in rows], len(self._shares)) for name in rows[0]} if rows else {}
        columns |= dict(zip(SHARES, np.tile(self._shares, (len(rows), 1)).T, strict=True)) if rows else {}
        fits = self._fits(columns) if rows else np.zeros(0, dtype=bool)
        if not fits.any():
            return self._none(layout)
        return _reduced(self._seconds(layout, {name: column[fits] for name, column in columns.items()}, position))

    def _fits(self, columns: Columns) -> NDArray[np.bool_]:
        device = self.model.stages(self.costs, columns, "device")["device_bytes"]
        return np.asarray(device * (1.0 + MARGIN) <= self.request.capacity_bytes)

    def _none(self, layout: Row) -> Stages:
        none = np.empty(0)
        empty = np.empty((0, layout["vpp"]))
        return Stages((empty,) * 3, (empty,) * 2, none, none, none, [])

    def _seconds(self, layout: Row, columns: Columns, position: int) -> Stages:
        sizes = chunk_sizes(int(columns["layers"][0]), layout["vpp"], position == head_rank(layout))
        embedding, head = self._ends(layout, position)
        chunks = []
        for chunk, size in enumerate(sizes):
            held = {
                "layers": np.full(len(columns["layers"]), size),
                "recompute_layers": np.minimum(columns["count"], size),
                "has_embedding": np.full(len(columns["layers"]), embedding if chunk == 0 else 0),
                "has_head": np.full(len(columns["layers"]), head if chunk == layout["vpp"] - 1 else 0),
            }
            chunks.append(self.model.stages(self.costs, columns | held, "chunk"))
        whole = self.model.stages(self.costs, columns, "times")
        host = self.model.stages(self.costs, columns, "device")["host_bytes"]
        first, second, third = (np.stack([seconds[name] for seconds in chunks], axis=1) for name in TIMES)
        none = np.zeros_like(first)
        rows = [{"host_bytes": size} for size in host.tolist()]
        return Stages((first, second, third), (none, none), whole["first_s"], whole["last_s"], whole["global_s"], rows)

    def _fastest(self, index: int, stages: list[Stages]) -> float:
        """Seconds of the fastest choice of one option a stage whose nodes can hold what it offloads."""
        sizes = [len(stage.rows) for stage in stages]
        host = [np.array([row["host_bytes"] for row in stage.rows]) for stage in stages]
        room, best = USABLE * self.request.cluster.host_memory_bytes, inf
        for start in range(0, prod(sizes), REPLAYED_AT_ONCE):
            choice = np.unravel_index(np.arange(start, min(start + REPLAYED_AT_ONCE, prod(sizes))), sizes)
            taken = np.stack([column[picked] for column, picked in zip(host, choice, strict=True)])
            held = np.max([counts @ taken for counts in self._gpus_by_node(index)], axis=0) <= room
            if held.any():
                steps_s = self.steps_s(index, stages, [picked[held] for picked in choice])
                best = min(best, float(steps_s.min()))
        return best

    def _gpus_by_node(self, index: int) -> list[NDArray[np.int64]]:
        """GPUs of each stage on every node."""
        layout, size = self.layouts[index], self.request.cluster.gpus_per_node
        counts = np.zeros((-(-layout["world"] // size), layout["pp"]), dtype=np.int64)
        for rank in range(layout["world"]):
            counts[rank // size, rank // layout["pp_stride"] % layout["pp"]] += 1
        return list(counts)


def _reduced(stages: Stages) -> Stages:
    """Without the options that another one equals or beats in every second and in the host's memory."""
    host = np.array([row["host_bytes"] for row in stages.rows])
    vectors = np.column_stack([stages.vectors(), host])
    order = np.argsort(vectors.sum(axis=1) - host, kind="stable")
    kept: list[int] = []
    while len(order):
        head = order[0]
        kept.append(int(head))
        order = order[~np.all(vectors[head] <= vectors[order], axis=1)]
    return stages.take(sorted(kept))

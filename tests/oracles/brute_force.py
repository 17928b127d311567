"""Every plan of a small job, one by one: what the search must not miss. Plain loops that share no code with it.

Costs come from `CostModel.stages` and steps from the simulator, as they do in the search; what is legal, which options
a stage has, what fits and which assignment is best is worked out here, from the definitions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.communication import hop_seconds
from cost_models.schedules.live import split_history
from cost_models.schedules.simulate import simulate
from cost_models.schedules.table import ActionTable, Kind
from cost_models.schedules.times import StageTimes
from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import RECOMPUTE_SETS
from tests.oracles.legal_layouts import SCHEDULES, Row, head_rank, legal_layouts

Array = NDArray[np.float64]
Vectors = list[list[int]]

# Stages split states in five ways: ZeRO-0, 1, 2, 3, and 3 with parameters gathered again for every pass.
ZERO_WAYS = 5
MARGIN = 0.06
TIMES = ("forward_s", "input_grad_s", "weight_grad_s")
# What a table is made from.
TABLE_FIELDS = ("schedule", "pp", "vpp", "num_microbatches", "group_size", "slices")
ATTENTION = ("forward_attention_s", "backward_attention_s")
REPLAYED_AT_ONCE = 20_000


@dataclass(frozen=True)
class Stages:
    """Options of one position with one number of layers: seconds by chunk [n, vpp] and of the step [n], and rows."""

    chunk_s: tuple[Array, Array, Array]
    attention_s: tuple[Array, Array]
    first_s: Array
    last_s: Array
    global_s: Array
    rows: list[Row]

    def vectors(self) -> Array:
        """All seconds of each option, [n, q]: a step falls with none of them rising; attention must be the same."""
        edges = np.stack([self.first_s, self.last_s, self.global_s], axis=1)
        forward, backward = self.attention_s
        return np.concatenate([*self.chunk_s, edges, forward, -forward, backward, -backward], axis=1)

    def take(self, kept: list[int]) -> "Stages":
        """Some of the options."""
        parts = tuple(part[kept] for part in self.chunk_s)
        attention = tuple(part[kept] for part in self.attention_s)
        edges = (self.first_s[kept], self.last_s[kept], self.global_s[kept])
        return Stages(parts, attention, *edges, [self.rows[index] for index in kept])


class BruteForce:
    """All plans of a request. `reduced`: options slower than another in every one of their seconds are left out."""

    def __init__(
        self,
        request: PlanRequest,
        *,
        reduced: bool = True,
        offload: bool = False,
        shares: dict[str, float] | None = None,
    ) -> None:
        """With `shares`, every stage offloads these."""
        self.request = request
        self._shares_of_all = shares or {}
        self.model = CostModel(request, offload=offload)
        # Sets that a model seems to have no use for are tried all the same.
        self.model.recompute_sets = tuple(range(len(RECOMPUTE_SETS)))
        self.layouts = legal_layouts(request)
        columns = {name: np.array([row[name] for row in self.layouts]) for name in self.layouts[0]}
        self.costs = LayoutCosts.of(self.model, columns)
        self._reduced = reduced

    def best_s(self) -> float:
        """Seconds of the fastest plan that fits; infinity when none does."""
        return min(self.best_of(index) for index in range(len(self.layouts)))

    def best_of(self, index: int) -> float:
        """Seconds of the fastest plan of one layout that fits; infinity when none does."""
        layout = self.layouts[index]
        pp, units = layout["pp"], self.request.model.layer_pattern.repeats
        options = {
            (position, layers): self._options(index, position, layers)
            for position in range(pp)
            for layers in range(units + 1)
        }
        best = inf
        for split in _splits(units, pp):
            stages = [options[position, layers] for position, layers in enumerate(split)]
            if all(len(stage.rows) for stage in stages):
                best = min(best, self._fastest(index, stages))
        return best

    def _fastest(self, index: int, stages: list[Stages]) -> float:
        """Seconds of the fastest choice of one option a stage."""
        sizes = [len(stage.rows) for stage in stages]
        best = inf
        for start in range(0, prod(sizes), REPLAYED_AT_ONCE):
            numbers = np.arange(start, min(start + REPLAYED_AT_ONCE, prod(sizes)))
            best = min(best, float(self.steps_s(index, stages, np.unravel_index(numbers, sizes)).min()))
        return best

    def steps_s(self, index: int, stages: list[Stages], choice: Sequence[NDArray[np.int64]]) -> Array:
        """Seconds of a step for some choices: of each stage the numbers of its options, one for each choice."""
        layout = self.layouts[index]
        boundary = float(self.costs.per_micro_batch("boundary_bytes")[index])
        cluster, profile = self.request.cluster, self.request.profile
        hop_s = hop_seconds(cluster, profile, boundary, layout["pp_stride"], layout["pp"])
        cells = [
            np.stack([stage.chunk_s[kind][taken] for stage, taken in zip(stages, choice, strict=True)], axis=1)
            for kind in range(len(TIMES))
        ]
        first_s, last_s, global_s = (
            np.stack([getattr(stage, name)[taken] for stage, taken in zip(stages, choice, strict=True)], axis=1)
            for name in ("first_s", "last_s", "global_s")
        )
        attention = {
            name: np.stack([stage.attention_s[kind][taken] for stage, taken in zip(stages, choice, strict=True)], 1)
            for kind, name in enumerate(ATTENTION)
        }
        times = StageTimes.of(*cells, first_s=first_s, last_s=last_s, hop_s=hop_s, **attention)
        span_s = simulate(_table(*(layout[name] for name in TABLE_FIELDS)), times).span_s
        return np.asarray(span_s + global_s.max(axis=1))

    def _options(self, index: int, position: int, layers: int) -> Stages:
        """Every option of a stage that fits: ways of splitting states, sets to recompute, layers that do so."""
        layout = self.layouts[index]
        rows = self._of_stage(index, position, layers)
        if not rows:
            return _nothing(layout["vpp"])
        device = self._evaluate(rows, "device")["device_bytes"]
        fits = np.flatnonzero(device * (1.0 + MARGIN) <= self.request.capacity_bytes).tolist()
        if not fits:
            return _nothing(layout["vpp"])
        stages = self._timed(layout, [rows[i] for i in fits], position)
        return stages.take(_not_dominated(stages.vectors())) if self._reduced else stages

    def _of_stage(self, index: int, position: int, layers: int) -> list[Row]:
        """Every sharding, recompute set and count of a stage; nothing where some chunk would be empty."""
        layout = self.layouts[index]
        sizes = chunk_sizes(layers, layout["vpp"], position == head_rank(layout))
        needs_none = {chunk for chunk in range(layout["vpp"]) if not layout["spread"] and _end(layout, position, chunk)}
        holds_none = [size == 0 and chunk not in needs_none for chunk, size in enumerate(sizes)]
        # A stage without chunks of its own needs a layer: the embedding or the head alone is no stage.
        if any(holds_none) or (layout["vpp"] == 1 and layers == 0):
            return []
        return self._rows(layout, index, position, sizes)

    def _rows(self, layout: Row, index: int, position: int, sizes: list[int]) -> list[Row]:
        rows = []
        for zero, recompute in product(range(ZERO_WAYS), range(len(RECOMPUTE_SETS))):
            if layout["dp"] * layout["cp"] == 1 and zero:
                continue  # nothing to split over
            if zero == 0 and layout["dp_shard"] != layout["dp"]:
                continue  # no shard group: the plan of the layout whose group is all of dp
            modules, widest = RECOMPUTE_SETS[recompute], max(sizes)
            counts = [0] if not modules else range(1, widest + 1) if modules == ("full",) else [widest]
            rows += [self._row(layout, index, position, sizes, zero, recompute, count) for count in counts]
        return rows

    def _row(
        self, layout: Row, index: int, position: int, sizes: list[int], zero: int, recompute: int, count: int
    ) -> Row:
        of_ranks = live_vectors(*(layout[name] for name in TABLE_FIELDS), self.request.recipe.splits_first_stage)
        busy, waiting = of_ranks[position]
        alive = [[b + w for b, w in zip(*pair, strict=True)] for pair in zip(busy, waiting, strict=True)]
        recomputed = [min(count, size) for size in sizes]
        base = min(sizes)
        wide, every = [size > base for size in sizes], [True] * len(sizes)
        total, in_wide = _most(alive, every), _most(alive, wide)
        narrow_count = min(count, base)
        wider = min(count, base + 1) - narrow_count
        # What waits for its weight gradient alone was recomputed for the input gradient, and is kept.
        again, again_in_wide = total - _most(waiting, every), in_wide - _most(waiting, wide)
        embedding, head = self._ends(layout, position)
        last_waiting = max(live[-1] for live in waiting)
        at_head = of_ranks[-1][0] if layout["spread"] else busy
        p, v, n = (layout[name] for name in ("pp", "vpp", "slices"))
        kv_gradients = (v - 1) * (n - p) + 2 * (n - 1) if n > 1 else 0
        return {
            "layout": index,
            "zero": zero,
            "recompute": recompute,
            "count": count,
            "layers": sum(sizes),
            "recompute_layers": sum(recomputed),
            "recompute_ends": int(count > 0),
            "has_embedding": embedding,
            "has_head": head,
            "kv_gradient_layers": kv_gradients * max(sizes),
            "live_layers": total * base + in_wide,
            "live_recompute_layers": again * narrow_count + again_in_wide * wider,
            "live_embedding": embedding * max(live[0] for live in alive),
            "live_head": max(live[-1] for live in at_head) + last_waiting if head else 0,
            "waiting_embedding": embedding * max(live[0] for live in waiting),
            "waiting_head": head * last_waiting,
            **_for_the_pipeline(layout, position, dict(enumerate(sizes))),
            **self._shares_of_all,
        }

    def _ends(self, layout: Row, position: int) -> tuple[float, float]:
        """Shares of the embedding and the head that a stage holds."""
        if layout["spread"]:
            return 1 / layout["pp"], 1 / layout["pp"]
        return int(position == 0), int(position == head_rank(layout))

    def _timed(self, layout: Row, rows: list[Row], position: int) -> Stages:
        sizes = chunk_sizes(rows[0]["layers"], layout["vpp"], position == head_rank(layout))
        by_chunk = []
        for chunk, size in enumerate(sizes):
            embedding, head = self._ends(layout, position)
            ends = {
                "has_embedding": embedding if chunk == 0 else 0,
                "has_head": head if chunk == layout["vpp"] - 1 else 0,
            }
            ends |= _for_the_pipeline(layout, position, {chunk: size})
            parts = [{**row, **ends, "layers": size, "recompute_layers": min(row["count"], size)} for row in rows]
            by_chunk.append(self._evaluate(parts, "chunk"))
        whole = self._evaluate(rows, "times")
        first, second, third = (np.stack([seconds[name] for seconds in by_chunk], axis=1) for name in TIMES)
        is_split = SCHEDULES[layout["schedule"]] in schedules.SPLIT
        if position == 0 and is_split and not self.request.recipe.splits_first_stage:
            third[:, 0] += second[:, 0]  # the whole backward of chunk 0 comes with its weight gradients
            second[:, 0] = 0.0
        none = np.zeros_like(first)
        grows = self.model.sliced and layout["vpp"] == 1
        attention = tuple(whole[name][:, None] if grows else none for name in ATTENTION)
        return Stages((first, second, third), attention, whole["first_s"], whole["last_s"], whole["global_s"], rows)

    def _evaluate(self, rows: list[Row], outputs: str) -> dict[str, Array]:
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return self.model.stages(self.costs, columns, outputs)


def chunk_sizes(layers: int, vpp: int, has_head: bool) -> list[int]:
    """Layers of each chunk: even, those with a layer more last, but first on the rank that holds the head."""
    base, extra = divmod(layers, vpp)
    sizes = [base] * (vpp - extra) + [base + 1] * extra
    return sizes[::-1] if has_head else sizes


def _end(layout: Row, position: int, chunk: int) -> bool:
    embedding = position == 0 and chunk == 0
    return embedding or (position == head_rank(layout) and chunk == layout["vpp"] - 1)


def _table(schedule: int, pp: int, vpp: int, m: int, group: int, slices: int) -> ActionTable:
    return schedules.actions(SCHEDULES[schedule], pp, vpp, m, slices=slices, group_size=group or None)


@lru_cache(maxsize=512)
def live_vectors(
    schedule: int, pp: int, vpp: int, m: int, group: int, slices: int, splits_first_stage: bool
) -> list[tuple[Vectors, Vectors]]:
    """For each rank, the micro-batches (or slices) of each chunk alive at any time, from the whole table.

    Those whose input gradient is still to come, and those that wait for their weight gradient alone: on a first stage
    that does not split its backward there are none of these.
    """
    table = _table(schedule, pp, vpp, m, group, slices)
    found = [(busy.tolist(), waiting.tolist()) for busy, waiting in (split_history(table, rank) for rank in range(pp))]
    for busy, waiting in zip(*found[0], strict=True) if not splits_first_stage else ():
        busy[0] += waiting[0]
        waiting[0] = 0
    return found


def _for_the_pipeline(layout: Row, position: int, sizes: dict[int, int]) -> Row:
    """Of chunks of a stage with so many layers: ends of hops in one direction, and layers of split backwards."""
    name, pp, vpp = SCHEDULES[layout["schedule"]], layout["pp"], layout["vpp"]
    place = schedules.placement(name, pp, vpp)
    rank_of = [-1, *place.rank.tolist(), -1]  # nobody is in front of the model or behind it
    stage_of = place.stage_of()[position]
    sides = [rank_of[1 + stage_of[chunk] + side] for chunk in sizes for side in (-1, 1)]
    actions = _table(*(layout[name] for name in TABLE_FIELDS)).rank_actions(position)
    later = Counter(action.chunk for action in actions if action.kind is Kind.WEIGHT_GRAD)
    split = {chunk: size * later[chunk] / layout["num_microbatches"] for chunk, size in sizes.items()}
    first = split.pop(0, 0) if position == 0 else 0
    return {
        "hop_ends": sum(other not in (-1, position) for other in sides),
        "split_layers": sum(split.values()),
        "first_split_layers": first,
    }


def _most(vectors: Vectors, chunks: list[bool]) -> int:
    """Most micro-batches alive at one time in the chunks that are marked."""
    return max(sum(n for n, is_marked in zip(live, chunks, strict=True) if is_marked) for live in vectors)


def _splits(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every way to share out the layers in order."""
    if stages == 1:
        yield (layers,)
        return
    for first in range(layers + 1):
        for rest in _splits(layers - first, stages - 1):
            yield (first, *rest)


def _nothing(vpp: int) -> Stages:
    none = np.empty(0)
    return Stages((np.empty((0, vpp)),) * 3, (np.empty((0, vpp)),) * 2, none, none, none, [])


def _not_dominated(vectors: Array) -> list[int]:
    """Options that no other one equals or beats in every second; of equal ones the first."""
    kept: list[int] = []
    for index, vector in enumerate(vectors):
        others = np.delete(vectors, index, axis=0)
        earlier = np.arange(len(others)) < index
        beaten = np.all(others <= vector, axis=1) & (earlier | np.any(others < vector, axis=1))
        if not beaten.any():
            kept.append(index)
    return kept

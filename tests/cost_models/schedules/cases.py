"""Stage times and a slow, plain simulator that the tests of schedules share."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.schedules.simulate import action_times
from cost_models.schedules.table import ActionTable, Kind, looped_placement
from cost_models.schedules.times import StageTimes

SHAPES = {
    "gpipe": [(1, 1, 3), (2, 1, 1), (2, 1, 5), (3, 1, 4), (4, 1, 8), (8, 1, 3), (8, 1, 16)],
    "1f1b": [(1, 1, 3), (2, 1, 1), (2, 1, 5), (3, 1, 4), (3, 1, 9), (4, 1, 8), (4, 1, 15), (8, 1, 3), (8, 1, 16)],
    "interleaved": [(2, 2, 2), (2, 3, 8), (3, 2, 9), (3, 4, 3), (4, 2, 4), (4, 4, 12), (8, 2, 8), (8, 2, 16)],
    "breadth-first": [(1, 1, 3), (2, 2, 1), (2, 3, 5), (3, 1, 4), (4, 2, 3), (4, 3, 8), (8, 2, 16)],
    "terapipe": [(1, 1, 3), (2, 1, 5), (2, 1, 1), (3, 1, 4), (4, 1, 8), (8, 1, 16)],
    "seq1f1b": [(1, 1, 3), (2, 1, 5), (2, 1, 1), (3, 1, 4), (4, 1, 8), (8, 1, 16)],
    "slimpipe": [(1, 1, 3), (2, 1, 5), (2, 1, 1), (3, 1, 4), (4, 1, 8), (8, 1, 16)],
    "zb-h1": [(1, 1, 3), (2, 1, 1), (2, 1, 5), (3, 1, 4), (4, 1, 8), (8, 1, 3), (8, 1, 16)],
    "zb-h2": [(1, 1, 3), (2, 1, 1), (2, 1, 5), (3, 1, 4), (4, 1, 8), (8, 1, 3), (8, 1, 16)],
    "zb-v": [(2, 2, 1), (2, 2, 5), (3, 2, 3), (3, 2, 8), (4, 2, 8), (8, 2, 16)],
    "v-half": [(2, 2, 1), (2, 2, 5), (3, 2, 3), (3, 2, 8), (4, 2, 8), (8, 2, 16)],
    "v-min": [(2, 2, 1), (2, 2, 5), (3, 2, 3), (4, 2, 8), (5, 2, 8), (8, 2, 16)],
    "dualpipe": [(2, 2, 4), (2, 2, 6), (4, 2, 8), (4, 2, 14), (6, 2, 12), (8, 2, 16)],
    "dualpipe-v": [(2, 2, 4), (2, 2, 5), (3, 2, 6), (3, 2, 9), (4, 2, 8), (8, 2, 16)],
}
"""(p, v, m) to try for each schedule."""

COSTS = [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8)]
"""F, B and W of equal ranks, in seconds."""

ALL = [(name, *shape) for name in schedules.NAMES for shape in SHAPES[name]]


def random_times(rng: np.random.Generator, p: int, v: int, batch: int) -> StageTimes:
    """`batch` random assignments: even and skewed stages, edges and hops from none to several stages long."""

    def draw(*shape: int) -> NDArray[np.float64]:
        skew = rng.choice([0.2, 1.0, 6.0], size=(batch, *(1 for _ in shape)))
        return rng.random((batch, *shape)) ** skew

    def scale(*values: float) -> NDArray[np.float64]:
        return rng.choice(values, size=(batch, 1))

    return StageTimes.of(
        *(draw(p, v) for _ in range(3)),
        first_s=draw(p) * scale(0, 1, 6),
        last_s=draw(p) * scale(0, 1, 6),
        hop_s=draw(p) * scale(0, 0.1, 1, 5),
    )


def with_attention(rng: np.random.Generator, times: StageTimes) -> StageTimes:
    """The same times, some or all of each forward and input gradient of which is causal attention."""
    shares = rng.random((2, *times.forward_s.shape)) * rng.choice([0.0, 0.5, 1.0], size=(len(times.forward_s), 1, 1))
    return replace(
        times,
        forward_attention_s=shares[0] * times.forward_s,
        backward_attention_s=shares[1] * times.input_grad_s,
    )


def equal_times(
    p: int, v: int, f: float, b: float, w: float, *, first: float = 0, last: float = 0, hop: float = 0
) -> StageTimes:
    """Equal stages; f, b and w are seconds of a chunk."""
    whole = [np.full((p, v), seconds) for seconds in (f, b, w)]
    return StageTimes.of(*whole, first_s=first, last_s=last, hop_s=hop)


class Cell(NamedTuple):
    """What an action produces: the output (or its gradient) of a virtual stage."""

    forward: bool
    stage: int
    micro_batch: int
    slice: int


def longest_rank_s(table: ActionTable, times: StageTimes) -> float:
    """The longest time from a rank's own first action to its own last one."""
    start, end = action_times(table, times)
    return float(max(end[table.rank_start[1:] - 1] - start[table.rank_start[:-1]]))


def plain_span_s(table: ActionTable, times: StageTimes) -> float:
    """The span of one assignment, by polling the ranks in turn: no graph, no levels, no arrays."""
    stage_of, place = table.placement.stage_of(), table.placement
    queues = [table.rank_actions(rank)[::-1] for rank in range(table.ranks)]
    clock, n, length = times.first_s.tolist(), table.slices, place.stages // place.routes
    done: dict[Cell, float] = {}
    while any(queues):
        for rank, queue in enumerate(queues):
            if not queue:
                continue
            kind, chunk, micro_batch, part = queue[-1]
            stage, forward = int(stage_of[rank, chunk]), kind == Kind.FORWARD
            route, sender = stage // length, stage + (-1 if forward else 1)
            if kind != Kind.WEIGHT_GRAD and sender >= 0 and sender // length == route < place.routes:
                link = int(place.link[min(stage, sender) - route])
                hop_s = times.hop_s[link] if link < table.ranks else 0.0
                sent = done.get(Cell(forward, sender, micro_batch, part))
                if sent is None:
                    continue
                clock[rank] = max(clock[rank], sent + hop_s)
            queue.pop()
            f, b, w = (x[rank, chunk] / n for x in (times.forward_s, times.input_grad_s, times.weight_grad_s))
            # A slice attends to itself, half a square, and to all before it.
            f += times.forward_attention_s[rank, chunk] * ((part + 0.5) / (n * n / 2) - 1 / n)
            b += times.backward_attention_s[rank, chunk] * ((part + 0.5) / (n * n / 2) - 1 / n)
            clock[rank] += {Kind.FORWARD: f, Kind.BACKWARD: b + w, Kind.INPUT_GRAD: b, Kind.WEIGHT_GRAD: w}[kind]
            if kind != Kind.WEIGHT_GRAD:
                done[Cell(forward, stage, micro_batch, part)] = clock[rank]
    return max(end + last for end, last in zip(clock, times.last_s.tolist(), strict=True))


def one(times: StageTimes, index: int) -> StageTimes:
    """One assignment of a batch."""
    return StageTimes(*(getattr(times, name)[index] for name in times.__dataclass_fields__))


def table_of(*ranks: str, v: int = 1, slices: int = 1) -> ActionTable:
    """A table written by hand: one string a rank of actions like "F0 B0", "I0 W0", "F1.2" (chunk 1), "F0:1" (slice)."""
    kinds = {"F": Kind.FORWARD, "B": Kind.BACKWARD, "I": Kind.INPUT_GRAD, "W": Kind.WEIGHT_GRAD}
    rows = []
    for rank in ranks:
        row = []
        for word in rank.split():
            name, _, part = word[1:].partition(":")
            chunk, _, micro_batch = name.rpartition(".")
            row.append((kinds[word[0]], int(chunk or 0), int(micro_batch), int(part or 0)))
        rows.append(np.array(row))
    micro_batches = 1 + max(int(row[:, 2].max()) for row in rows)
    placement = looped_placement(len(ranks), v)
    return ActionTable.of("hand-made", placement, rows, micro_batches=micro_batches, slices=slices)

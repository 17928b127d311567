"""Micro-batches alive at the peak of each rank of a schedule, read off its action table."""

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.schedules.live import live_histories, split_histories
from cost_models.schedules.table import ActionTable, IntArray

__all__ = ["ALL_ALIVE", "SETTLED", "Live", "cut_of", "live_counts"]

# Live counts settle once the pipeline is full: more micro-batches than this many times pp change nothing.
SETTLED = 3
# All forwards come before all backwards: everything is alive at once.
ALL_ALIVE = ("gpipe", "breadth-first", "terapipe")

Counts = NDArray[np.int64]
Peaks = tuple[Counts, Counts, Counts, Counts]


@dataclass(frozen=True)
class Live:
    """Most micro-batches alive on each rank, each count at its own worst moment.

    `total[p]` counts all chunks together; `wide[p, r]` those of the chunks that are a layer wider when the rank's
    layers leave remainder r over its chunks; `first[p]` and `last[p]` those of the first and the last chunk. Of those
    whose names begin with `waiting` weight gradients alone are due. `last` adds up the most of these in the last chunk
    and the most of the others.
    """

    total: Counts
    wide: Counts
    first: Counts
    last: Counts
    waiting: Counts
    waiting_wide: Counts
    waiting_first: Counts
    waiting_last: Counts

    @classmethod
    def of(cls, table: ActionTable, head: int, *, splits_first_stage: bool = True) -> Self:
        """The counts of a table whose rank number `head` holds the head."""
        if table.schedule not in schedules.SPLIT:
            counts = _peaks(live_histories(table), head)
            return cls(*counts, *(np.zeros_like(count) for count in counts))
        before, after = split_histories(table, splits_first_stage=splits_first_stage)
        total, wide, first, _ = _peaks(before + after, head)
        waiting = _peaks(after, head)
        return cls(total, wide, first, before[..., -1].max(axis=1) + waiting[-1], *waiting)

    @cached_property
    def least(self) -> dict[str, int]:
        """The least of all ranks of each count."""
        return {field.name: int(getattr(self, field.name).min()) for field in fields(self)}

    def times(self, count: int) -> "Live":
        """The counts with each micro-batch taken for so many."""
        return Live(*(count * getattr(self, field.name) for field in fields(self)))


def cut_of(schedule: str, group_size: int, slices: int) -> dict[str, int]:
    """How many micro-batches a schedule groups, or into what it cuts them: the keywords that its table takes."""
    cut = {"slices": slices} if schedule in schedules.SLICED else {}
    return cut | ({"group_size": group_size} if schedule in schedules.GROUPED and group_size else {})


def live_counts(
    schedule: str,
    pp: int,
    vpp: int,
    num_microbatches: int,
    group_size: int = 0,
    slices: int = 1,
    *,
    splits_first_stage: bool = True,
) -> Live:
    """Live counts of a schedule, of groups of its own size or of `group_size`; of slices where there are several.

    GPipe and breadth-first keep every micro-batch; the others stop growing once the pipeline is full. Without
    `splits_first_stage` no micro-batch waits for weight gradients alone on the first stage, see `split_histories`.
    """
    if schedule in ALL_ALIVE:
        return _live_counts(schedule, pp, vpp, 1, 0, slices, True).times(num_microbatches)
    settled = SETTLED * pp if slices == 1 else -(-SETTLED * pp // slices) + 1
    if group_size:
        # Whole groups are left out, so that the last one stays as long as it is.
        whole = max(num_microbatches - settled, 0) // group_size - 1
        settled = num_microbatches - max(whole, 0) * group_size
    splits = splits_first_stage or schedule not in schedules.SPLIT
    return _live_counts(schedule, pp, vpp, min(num_microbatches, settled), group_size, slices, splits)


@lru_cache(maxsize=4096)
def _live_counts(
    schedule: str, pp: int, vpp: int, num_microbatches: int, group_size: int, slices: int, splits_first_stage: bool
) -> Live:
    table = schedules.actions(schedule, pp, vpp, num_microbatches, **cut_of(schedule, group_size, slices))
    return Live.of(table, int(table.placement.rank[-1]), splits_first_stage=splits_first_stage)


def _peaks(histories: IntArray, head: int) -> Peaks:
    """(total, wide, first, last) of live vectors [ranks, moments, chunks], each at its maximum."""
    ranks, _, chunks = histories.shape
    running = np.cumsum(histories, axis=2)
    every = running[..., -1]
    # Chunks that are a layer wider come first beside the head and last on all other ranks: see space.chunk_layers.
    leading = running[..., : chunks - 1].max(axis=1)
    trailing = (every[..., None] - running[..., : chunks - 1][..., ::-1]).max(axis=1)
    wide = np.zeros((ranks, chunks), dtype=np.int64)
    wide[:, 1:] = trailing
    wide[head, 1:] = leading[head]
    return every.max(axis=1), wide, histories[..., 0].max(axis=1), histories[..., -1].max(axis=1)

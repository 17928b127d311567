"""V orders of a chosen memory: one building block for every micro-batch, squeezed at both ends of the step.

The idea is that of Qi et al. 2024, "Pipeline Parallelism with Controllable Memory": the peak of a step whose
micro-batches all follow the same timetable is the lifespan of its activations. The timetable counts in units: forward,
input and weight gradient of a chunk last one each, so a rank is full when a block repeats every `PERIOD` units.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.schedules.equal_stages import Mean, are_equal, mean
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Kind, v_placement
from cost_models.schedules.times import FloatArray, StageTimes

PERIOD = 6
KIND = (Kind.FORWARD, Kind.FORWARD, Kind.INPUT_GRAD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.WEIGHT_GRAD)
CHUNK = (0, 1, 1, 0, 1, 0)
"""What a rank does for a micro-batch, pass by pass: forwards down and up the V, gradients down and up, both weights."""
PASSES = 4
"""Passes that send to the next rank; the weight gradients after them do not."""
FORWARDS, WEIGHTS = (0, 1), (4, 5)

Needs = list[list[list[tuple[int, int]]]]
"""[pass][rank] the (pass, rank) that it waits for."""


@dataclass(frozen=True)
class Block:
    """The way of a micro-batch through the V, in units."""

    hops: tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]
    """From the start on one rank to the start on the next, for each pass, over even and over odd links."""
    turns: tuple[int, int, int]
    """From the start of the last action of a pass to that of the first one of the next, on the same rank."""


def fits_a_v(p: int | IntArray, v: int | IntArray, m: int | IntArray) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches in a V; works on numbers and on arrays."""
    is_legal: BoolArray = (np.asarray(p) >= 2) & (np.asarray(v) == 2) & (np.asarray(m) >= 1)
    return is_legal


def reaches_peak(m: int | IntArray, times: StageTimes, peak: int) -> BoolArray:
    """[...] whether `controlled_bubble_s` at `peak` chunks is exact.

    For equal chunks without edges and hops, F = B = W, and enough micro-batches to reach the peak.
    """
    f, b, w = mean(times)
    enough = 2 * np.asarray(m) >= peak
    exact: BoolArray = are_equal(times) & np.isclose(f, b) & np.isclose(b, w) & enough
    return exact


def squeezed_table(schedule: str, block: Block, p: int, m: int) -> ActionTable:
    """The table of m micro-batches that follow `block` on p ranks, without the gaps at its ends.

    A block leaves gaps where a micro-batch before the first or after the last one would run. They are closed towards
    the middle by list scheduling, in the order of the timetable: first the end is pulled forward, then the beginning
    is pushed back. Both shorten lifespans, so the peak stays that of the block.
    """
    timetable = _timetable(block, p)
    peak = max(_peak(timetable[:, rank]) for rank in range(p))
    plan, needs = timetable[:, :, None] + PERIOD * np.arange(m), _needs(p)
    start = _ListSchedule(plan, needs, timetable[0] + PERIOD * m, peak, FORWARDS).starts()
    end = start.max()
    # Seen from the end, lifespans begin with weight gradients and end with forwards.
    gap = end - (timetable.max(axis=0) - PERIOD)
    until_end = _ListSchedule((end - start)[..., ::-1], _reversed(needs), gap, peak, WEIGHTS).starts()
    rows = [_rows(-until_end[:, rank, ::-1]) for rank in range(p)]
    return ActionTable.of(schedule, v_placement(p), rows, micro_batches=m)


def controlled_bubble_s(p: int, peak: int, rank: Mean, *, excess: int = 0) -> FloatArray:
    """[...] seconds of the bubble of p equal ranks that keep up to `peak` chunks, where F = B = W.

    (6p - 1 - 3 peak) units of a chunk, but no less than the p - 1 of the way to the last rank, and the `excess`.
    """
    unit_s = (rank.forward_s + rank.input_grad_s + rank.weight_grad_s) / 6
    bubble: FloatArray = (max(p - 1, 6 * p - 1 - 3 * peak) + excess) * unit_s
    return bubble


def _timetable(block: Block, p: int) -> IntArray:
    """[passes, ranks] start of each action of micro-batch 0."""
    start = np.zeros((len(KIND), p), dtype=np.int64)
    now = 0
    for number in range(PASSES):
        down = number % 2 == 0
        links = np.arange(p - 1) if down else np.arange(p - 1)[::-1]
        way = now + np.concatenate([[0], np.cumsum(np.array(block.hops[number])[links % 2], dtype=np.int64)])
        start[number] = way if down else way[::-1]
        now = way[-1] + (*block.turns, 0)[number]
    for rank in range(p):
        start[PASSES:, rank] = _weight_slots(start[:PASSES, rank])
    return start


def _weight_slots(start: IntArray) -> list[int]:
    """Starts of the two weight gradients of a rank: of the two slots left, each way round, the one that keeps less."""
    free = sorted(set(range(PERIOD)) - set((start % PERIOD).tolist()))
    choices = []
    for slots in (free, free[::-1]):
        weights = [int(s) + 1 + (slot - int(s) - 1) % PERIOD for s, slot in zip(start[2:], slots, strict=True)]
        choices.append((_peak(np.concatenate([start, weights])), sum(weights), weights))
    return min(choices)[2]


def _peak(start: IntArray) -> int:
    """Most chunks alive on a rank, from the [passes] starts of its timetable."""
    forward, weight = start[list(FORWARDS)], start[list(WEIGHTS)[::-1]]
    units = np.arange(PERIOD)[:, None]
    alive = (weight - units) // PERIOD - (forward - 1 - units) // PERIOD
    return int(alive.sum(axis=1).max())


def _needs(p: int) -> Needs:
    needs: Needs = [[[] for _ in range(p)] for _ in KIND]
    for number in range(PASSES):
        step = 1 if number % 2 == 0 else -1
        for rank in range(p):
            if 0 <= rank - step < p:
                needs[number][rank] = [(number, rank - step)]
            elif number:
                needs[number][rank] = [(number - 1, rank)]
    for number in range(PASSES, len(KIND)):
        needs[number] = [[(number - 2, rank)] for rank in range(p)]
    return needs


def _reversed(needs: Needs) -> Needs:
    after: Needs = [[[] for _ in ranks] for ranks in needs]
    for number, ranks in enumerate(needs):
        for rank, awaited in enumerate(ranks):
            for other, where in awaited:
                after[other][where].append((number, rank))
    return after


class _ListSchedule:
    """List scheduling of all passes on all ranks, in the order of planned starts [passes, ranks, micro-batches].

    Up to time gap[rank] a rank keeps to the plan; from then on it takes what is ready, weight gradients last. What
    begins a lifespan (`opening`) runs ahead of the plan only while fewer than `peak` are alive.
    """

    def __init__(self, plan: IntArray, needs: Needs, gap: IntArray, peak: int, opening: tuple[int, int]) -> None:
        self.passes, self.ranks, self.micro_batches = plan.shape
        self.plan, self.needs, self.gap, self.peak, self.opening = plan.tolist(), needs, gap.tolist(), peak, opening
        self.ran = [[0] * self.ranks for _ in range(self.passes)]
        self.alive = [0] * self.ranks

    def starts(self) -> IntArray:
        """[passes, ranks, micro-batches] when each action starts."""
        start = np.empty((self.passes, self.ranks, self.micro_batches), dtype=np.int64)
        left, now = start.size, 0
        while left:
            chosen = [(self._best(rank, now), rank) for rank in range(self.ranks)]
            # Nothing that starts now ends before the next unit, so all ranks choose before any of them has run.
            for number, rank in chosen:
                if number is not None:
                    start[number, rank, self.ran[number][rank]] = now
                    self._run(number, rank)
                    left -= 1
            now += 1
        return start

    def _best(self, rank: int, now: int) -> int | None:
        """The pass whose next micro-batch the rank takes now."""
        best, free = None, now >= self.gap[rank]
        for number in range(self.passes):
            one = self.ran[number][rank]
            if one == self.micro_batches or not self._has_data(number, rank, one):
                continue
            planned = self.plan[number][rank][one]
            room = number not in self.opening or self.alive[rank] < self.peak
            if now >= planned or (free and room):
                rated = (free and number in WEIGHTS, planned, number)
                best = rated if best is None else min(best, rated)
        return None if best is None else best[2]

    def _has_data(self, number: int, rank: int, micro_batch: int) -> bool:
        return all(self.ran[other][where] > micro_batch for other, where in self.needs[number][rank])

    def _run(self, number: int, rank: int) -> None:
        self.ran[number][rank] += 1
        if number in self.opening:
            self.alive[rank] += 1
        elif number in FORWARDS + WEIGHTS:
            self.alive[rank] -= 1


def _rows(start: IntArray) -> IntArray:
    """Rows (kind, chunk, micro-batch, slice) of one rank, from its [passes, micro-batches] starts."""
    passes, m = start.shape
    number, micro_batch = np.divmod(np.argsort(start, axis=None), m)
    kind, chunk = np.array(KIND)[number], np.array(CHUNK)[number]
    return np.stack([kind, chunk, micro_batch, np.zeros(passes * m, dtype=np.int64)], axis=1)

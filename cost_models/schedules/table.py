"""The action table: what every pipeline rank does, in order. The one form in which a schedule is handed on."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer]
BoolArray = npt.NDArray[np.bool_]


class Kind(IntEnum):
    """What an action does."""

    FORWARD = 0
    BACKWARD = 1
    """Input and weight gradients in one go."""
    INPUT_GRAD = 2
    WEIGHT_GRAD = 3


class Action(NamedTuple):
    """One action of a rank."""

    kind: Kind
    chunk: int
    micro_batch: int
    slice: int

    def __str__(self) -> str:
        return f"{self.kind.name} of chunk {self.chunk}, micro-batch {self.micro_batch}, slice {self.slice}"


@dataclass(frozen=True, eq=False)
class Placement:
    """Which rank and chunk hold each of the ranks * chunks virtual stages, in the order of the model.

    With several routes the ranks hold as many copies of the model, one after the other in these arrays; micro-batch j
    goes through the copy j % routes.
    """

    ranks: int
    chunks: int
    rank: IntArray
    """[stages] rank of each virtual stage."""
    chunk: IntArray
    """[stages] chunk, on that rank, of each virtual stage."""
    link: IntArray
    """[stages - routes] link crossed between a virtual stage and the next of its copy: link i joins ranks i and
    (i + 1) % ranks, the value `ranks` means that both lie on one rank."""
    routes: int = 1
    """Copies of the model."""

    @property
    def stages(self) -> int:
        """Virtual stages of all copies."""
        return len(self.rank)

    def route_of(self) -> IntArray:
        """[ranks, chunks] the copy that the chunk belongs to."""
        route: IntArray = self.stage_of() // (self.stages // self.routes)
        return route

    def stage_of(self) -> IntArray:
        """[ranks, chunks] virtual stage held there."""
        stage = np.empty((self.ranks, self.chunks), dtype=np.int64)
        stage[self.rank, self.chunk] = np.arange(self.stages)
        return stage


@lru_cache(maxsize=256)
def looped_placement(ranks: int, chunks: int) -> Placement:
    """Virtual stage s on rank s % ranks as chunk s // ranks (Narayanan et al. 2021, section 2.2)."""
    stage = np.arange(ranks * chunks)
    link = stage[:-1] % ranks if ranks > 1 else np.full(chunks - 1, ranks)
    return Placement(ranks, chunks, rank=stage % ranks, chunk=stage // ranks, link=link)


@lru_cache(maxsize=256)
def v_placement(ranks: int) -> Placement:
    """Virtual stages down the ranks and back: rank i holds i as chunk 0 and 2 * ranks - 1 - i as chunk 1.

    Rank 0 then holds both ends of the model (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory").
    """
    down = np.arange(ranks)
    rank = np.concatenate([down, down[::-1]])
    chunk = np.repeat([0, 1], ranks)
    link = np.concatenate([down[:-1], [ranks], down[:-1][::-1]])
    return Placement(ranks, 2, rank=rank, chunk=chunk, link=link)


@lru_cache(maxsize=256)
def two_way_placement(ranks: int) -> Placement:
    """Two copies of a model of as many stages as ranks: chunk 0 of rank i is stage i, chunk 1 is stage ranks - 1 - i.

    Micro-batches of even number go down the ranks, those of odd number up (DualPipe, DeepSeek-V3 2024).
    """
    down = np.arange(ranks)
    rank = np.concatenate([down, down[::-1]])
    chunk = np.repeat([0, 1], ranks)
    link = np.concatenate([down[:-1], down[:-1][::-1]])
    return Placement(ranks, 2, rank=rank, chunk=chunk, link=link, routes=2)


@dataclass(frozen=True, eq=False)
class ActionTable:
    """What every rank does, in order. Tables are compared by identity; `validity.check` proves one correct."""

    schedule: str
    placement: Placement
    micro_batches: int
    slices: int
    """Parts of a micro-batch, along the sequence, that are scheduled one by one."""
    rank_start: IntArray
    """[ranks + 1] the actions of rank i are rank_start[i] to rank_start[i + 1]."""
    kind: IntArray
    """[actions] a `Kind`."""
    chunk: IntArray
    """[actions] chunk of the rank."""
    micro_batch: IntArray
    """[actions]"""
    slice: IntArray
    """[actions]"""

    @classmethod
    def of(
        cls, schedule: str, placement: Placement, rows: Sequence[IntArray], *, micro_batches: int, slices: int = 1
    ) -> Self:
        """A table from one array of rows (kind, chunk, micro-batch, slice) a rank, in the order they run."""
        columns = np.concatenate(rows).astype(np.int32).T.copy()
        columns.setflags(write=False)
        rank_start = np.cumsum([0, *(len(r) for r in rows)])
        return cls(schedule, placement, micro_batches, slices, rank_start, *columns)

    @property
    def ranks(self) -> int:
        return self.placement.ranks

    @property
    def chunks(self) -> int:
        return self.placement.chunks

    @property
    def actions(self) -> int:
        """How many actions all ranks run together."""
        return len(self.kind)

    def rank_of(self) -> IntArray:
        """[actions] the rank that runs each action."""
        return np.repeat(np.arange(self.ranks), np.diff(self.rank_start))

    def action(self, index: int) -> Action:
        """Action number `index`, counted over all ranks."""
        values = (int(column[index]) for column in (self.chunk, self.micro_batch, self.slice))
        return Action(Kind(int(self.kind[index])), *values)

    def rank_actions(self, rank: int) -> list[Action]:
        """The actions of one rank, in order.

        >>> from cost_models.schedules import one_f_one_b
        >>> [(a.kind.name[0], a.micro_batch) for a in one_f_one_b.actions(2, 1, 2).rank_actions(0)]
        [('F', 0), ('F', 1), ('B', 0), ('B', 1)]
        """
        return [self.action(index) for index in range(self.rank_start[rank], self.rank_start[rank + 1])]

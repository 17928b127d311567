"""A user's own schedule: a table in the CSV form of torch.distributed.pipelining, one row a rank, one cell an action.

A cell is a stage, a letter and a micro-batch: `0F1` is the forward of micro-batch 1 through virtual stage 0, B its
backward, I and W its input and weight gradients. Empty cells are idle. `(0F1;3B0)OVERLAP_F_B` are both, one after the
other. Cells of communication, such as `0UNSHARD` or `1SEND_F0`, are passed over: sends follow from the order.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cost_models.schedules.bounds import BoundTerms, enter_and_return
from cost_models.schedules.errors import IllegalScheduleError, InvalidTableError
from cost_models.schedules.simulate import simulate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Kind, Placement
from cost_models.schedules.times import FloatArray, StageTimes
from cost_models.schedules.validity import check

NAME = "user"

_KINDS = {"F": Kind.FORWARD, "B": Kind.BACKWARD, "I": Kind.INPUT_GRAD, "W": Kind.WEIGHT_GRAD}
_ACTION = re.compile(r"([0-9]{1,9})([FBIW])([0-9]{1,9})")
_OVERLAPPED = re.compile(r"\((.*)\)OVERLAP_F_B")
_COMMUNICATION = re.compile(r"[0-9]+(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)[0-9]*")


class UserSchedule:
    """A table as a schedule that is legal for its own ranks, chunks and micro-batches only (see `Schedule`)."""

    NAME: str = NAME

    def __init__(self, table: ActionTable) -> None:
        self.table = table
        self.REQUIRES: str = f"ranks {table.ranks}, chunks {table.chunks} and micro-batches {table.micro_batches}"

    def legal(self, p: int | IntArray, v: int | IntArray, m: int | IntArray) -> BoolArray:
        """Whether these are the sizes of the table; works on numbers and on arrays."""
        same = (np.asarray(p) == self.table.ranks) & (np.asarray(v) == self.table.chunks)
        is_legal: BoolArray = same & (np.asarray(m) == self.table.micro_batches)
        return is_legal

    def actions(self, p: int, v: int, m: int) -> ActionTable:
        """The action table. Raises IllegalScheduleError unless `legal`."""
        if not self.legal(p, v, m):
            raise IllegalScheduleError.of(NAME, self.REQUIRES, p, v, m)
        return self.table

    def closed_form_s(self, m: int | IntArray, times: StageTimes) -> FloatArray:
        """[...] seconds of the step, which for a table of any kind is its replay. Raises as `bound_terms`."""
        self._check_micro_batches(m, times)
        return simulate(self.table, times).span_s

    def lower_bound_s(self, m: int | IntArray, times: StageTimes) -> FloatArray:
        """[...] seconds that no step is below: the replay."""
        return self.closed_form_s(m, times)

    def bound_terms(self, m: int | IntArray, times: StageTimes) -> BoundTerms:
        """The terms of `enter_and_return` where stage i is on rank i and no backward is split, else each rank's own
        first, work and last. Raises IllegalScheduleError when m is not the table's.
        """
        self._check_micro_batches(m, times)
        p, place = self.table.ranks, self.table.placement
        terms = enter_and_return(m, times)
        if np.array_equal(place.rank[:p], np.arange(p)) and np.all(self.table.kind <= Kind.BACKWARD):
            return terms
        none = np.zeros_like(terms.edge_s)
        return BoundTerms(edge_s=none, pass_s=none, work_s=terms.edge_s + terms.work_s)

    def _check_micro_batches(self, m: int | IntArray, times: StageTimes) -> None:
        other = np.asarray(m)[np.asarray(m) != self.table.micro_batches]
        if other.size:
            raise IllegalScheduleError.of(NAME, self.REQUIRES, times.ranks, times.chunks, int(other.flat[0]))


def read(path: Path) -> UserSchedule:
    """The schedule of a CSV file. Raises IllegalScheduleError when it cannot be read, else as `parse`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        msg = f"schedule table {path} cannot be read: {exc}"
        raise IllegalScheduleError(msg) from exc
    return UserSchedule(parse(text))


def parse(text: str) -> ActionTable:
    """The action table, checked, of a text in CSV form.

    Raises InvalidTableError; `rule` is "cells" for a cell that is no action, "placement" for stages that are not dealt
    out evenly over neighbouring ranks, or one of `validity.check`. The message names row and cell, both from 1, or rank
    and action.

    >>> parse("0F0,0F1,0B0,0B1\\n1F0,1B0,1F1,1B1").rank_of().tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    rows = _rows(text)
    placement = _placement(rows)
    chunk_of = dict(zip(range(placement.stages), placement.chunk.tolist(), strict=True))
    units = [np.array([(kind, chunk_of[stage], micro_batch, 0) for stage, kind, micro_batch in row]) for row in rows]
    micro_batches = 1 + max(int(unit[:, 2].max()) for unit in units)
    given = sum(map(len, rows))
    if placement.stages * micro_batches > given:
        detail = f"{placement.stages} stages and {micro_batches} micro-batches need more than {given} actions"
        raise InvalidTableError(NAME, "exactly once", detail)
    table = ActionTable.of(NAME, placement, units, micro_batches=micro_batches)
    check(table)
    return table


def _rows(text: str) -> list[list[tuple[int, Kind, int]]]:
    """(stage, kind, micro-batch) of every action, one list a rank."""
    try:
        cells = list(csv.reader(text.splitlines(), strict=True))
    except csv.Error as exc:
        raise InvalidTableError(NAME, "cells", f"the table is not CSV: {exc}") from exc
    while cells and not any(cells[-1]):
        cells.pop()
    # A table has at least two actions for each stage and micro-batch: larger numbers are slips, and would cost memory.
    most = sum(len(row) + sum(cell.count(";") for cell in row) for row in cells) // 2
    rows = []
    for row, words in enumerate(cells, 1):
        actions = [action for cell, word in enumerate(words, 1) for action in _actions(word, row, cell, most)]
        if not actions:
            raise InvalidTableError(NAME, "cells", f"row {row} must have an action, got none")
        rows.append(actions)
    if not rows:
        raise InvalidTableError(NAME, "cells", "the table must have a row for each rank, got none")
    return rows


def _actions(word: str, row: int, cell: int, most: int) -> Iterator[tuple[int, Kind, int]]:
    """The actions of one cell, none for an idle one."""
    word = word.strip()
    overlapped = _OVERLAPPED.fullmatch(word)
    for part in overlapped[1].split(";") if overlapped else [word]:
        match = _ACTION.fullmatch(part.strip())
        if match:
            stage, micro_batch = int(match[1]), int(match[3])
            if stage >= most or micro_batch >= most:
                detail = f"row {row}, cell {cell}: stage and micro-batch must be under {most}, got {part!r}"
                raise InvalidTableError(NAME, "cells", f"{detail}: the table has no more pairs of actions")
            yield stage, _KINDS[match[2]], micro_batch
        elif part and not _COMMUNICATION.fullmatch(part):
            detail = f"row {row}, cell {cell} must be a stage, one of {', '.join(_KINDS)} and a micro-batch, as in 0F1"
            raise InvalidTableError(NAME, "cells", f"{detail}, got {part!r}")


def _placement(rows: list[list[tuple[int, Kind, int]]]) -> Placement:
    """Where the stages are, read off the rows that run them."""
    rank_of: dict[int, int] = {}
    for index, row in enumerate(rows):
        for stage in dict.fromkeys(stage for stage, _, _ in row):
            if rank_of.setdefault(stage, index) != index:
                detail = f"stage {stage} must be in one row, got rows {rank_of[stage] + 1} and {index + 1}"
                raise InvalidTableError(NAME, "placement", detail)
    p, stages = len(rows), len(rank_of)
    missing = set(range(stages)) - set(rank_of)
    if missing:
        detail = f"stages must be 0 to {stages - 1}, got no stage {min(missing)} but {max(rank_of)}"
        raise InvalidTableError(NAME, "placement", detail)
    rank = np.array([rank_of[stage] for stage in range(stages)])
    held = np.bincount(rank, minlength=p)
    if np.any(held != held[0]):
        detail = f"rows must hold equally many stages, got {', '.join(map(str, held))}"
        raise InvalidTableError(NAME, "placement", detail)
    before = [int(np.count_nonzero(rank[:stage] == rank[stage])) for stage in range(stages)]
    link = np.array([_link(stage, rank, p) for stage in range(stages - 1)], dtype=np.int64)
    return Placement(p, int(held[0]), rank=rank, chunk=np.array(before), link=link)


def _link(stage: int, rank: IntArray, p: int) -> int:
    """The link between a stage and the next (`Placement.link`)."""
    here, there = int(rank[stage]), int(rank[stage + 1])
    if here == there:
        return p
    if there == (here + 1) % p:
        return here
    if here == (there + 1) % p:
        return there
    rule = f"stages {stage} and {stage + 1} must be in one row or in neighbouring ones, the last next to the first"
    raise InvalidTableError(NAME, "placement", f"{rule}, got rows {here + 1} and {there + 1}")

"""The validity of an action table: one check for every schedule."""

from collections.abc import Callable

import numpy as np

from cost_models.schedules.dependencies import Dependencies, cell_of, dependencies, position_of
from cost_models.schedules.errors import InvalidTableError
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Kind


def check(table: ActionTable) -> Dependencies:
    """The dependencies of a table, which is thereby proven valid.

    Raises InvalidTableError, whose `rule` is the first of these that is broken:
    "in range": kinds, chunks, micro-batches and slices are those of the table;
    "exactly once": each (rank, chunk, micro-batch, slice) has one FORWARD, and either one BACKWARD or one each of
    INPUT_GRAD and WEIGHT_GRAD, and none where the chunk is not on the route of the micro-batch;
    "forward before backward": on its rank, in this order: FORWARD, then BACKWARD or INPUT_GRAD, then WEIGHT_GRAD;
    "slice order": the slices of a micro-batch go forwards in order and backwards in reverse order (a later slice
    attends to the keys of the earlier ones);
    "message order": all stages of a route take the micro-batches in one order, since neighbours match messages by
    order;
    "no deadlock": every action can run.
    """
    _check_range(table)
    _check_once(table)
    _check_kinds_in_order(table)
    _check_slices_in_order(table)
    _check_messages_in_order(table)
    return dependencies(table)


def _check_range(table: ActionTable) -> None:
    columns = (
        ("kind", table.kind, len(Kind)),
        ("chunk", table.chunk, table.chunks),
        ("micro_batch", table.micro_batch, table.micro_batches),
        ("slice", table.slice, table.slices),
    )
    for name, column, stop in columns:
        wrong = np.flatnonzero((column < 0) | (column >= stop))
        if wrong.size:
            detail = f"{name} of action {wrong[0]} must be in 0..{stop - 1}, got {column[wrong[0]]}"
            raise InvalidTableError(table.schedule, "in range", detail)


def _check_once(table: ActionTable) -> None:
    cells = table.ranks * table.chunks * table.micro_batches * table.slices
    count = np.bincount(table.kind.astype(np.int64) * cells + cell_of(table), minlength=len(Kind) * cells)
    forward, backward, input_grad, weight_grad = count.reshape(len(Kind), cells)
    whole = (backward == 1) & (input_grad == 0) & (weight_grad == 0)
    split = (backward == 0) & (input_grad == 1) & (weight_grad == 1)
    wrong = np.where(_on_route(table), (forward != 1) | ~(whole | split), count.reshape(len(Kind), cells).any(axis=0))
    names = ", ".join(f"{kind.name} {{}}" for kind in Kind)
    _refuse(
        table, "exactly once", wrong, lambda cell: names.format(*count.reshape(len(Kind), cells)[:, cell]) + " times"
    )


def _on_route(table: ActionTable) -> BoolArray:
    """[cells] whether the micro-batch goes through the chunk, in the order of `cell_of`."""
    follows = np.arange(table.micro_batches) % table.placement.routes
    on_route: BoolArray = table.placement.route_of()[..., None] == follows
    return np.repeat(on_route, table.slices, axis=-1).ravel()


def _check_kinds_in_order(table: ActionTable) -> None:
    forward, weight_grad = position_of(table, Kind.FORWARD), position_of(table, Kind.WEIGHT_GRAD)
    gradient = position_of(table, Kind.BACKWARD, Kind.INPUT_GRAD)
    wrong = (forward > gradient) | ((weight_grad >= 0) & (gradient > weight_grad))
    _refuse(table, "forward before backward", wrong, lambda _: "its kinds run in another order")


def _check_slices_in_order(table: ActionTable) -> None:
    shape = (table.ranks, table.chunks, table.micro_batches, table.slices)
    forward = position_of(table, Kind.FORWARD).reshape(shape)
    gradient = position_of(table, Kind.BACKWARD, Kind.INPUT_GRAD).reshape(shape)
    wrong = np.zeros(shape, dtype=np.bool_)
    wrong[..., 1:] = (np.diff(forward) < 0) | (np.diff(gradient) > 0)
    _refuse(table, "slice order", wrong, lambda _: "it does not follow the slice before it")


def _check_messages_in_order(table: ActionTable) -> None:
    place = table.placement
    entry = place.route_of() * (place.stages // place.routes)
    for kinds in ((Kind.FORWARD,), (Kind.BACKWARD, Kind.INPUT_GRAD)):
        order = np.argsort(position_of(table, *kinds), axis=-1, kind="stable")
        wrong = order != order[place.rank[entry], place.chunk[entry]]
        _refuse(table, "message order", wrong, lambda _: "another micro-batch is due in the order of the first stage")


def _refuse(table: ActionTable, rule: str, wrong: BoolArray, reason: Callable[[int], str]) -> None:
    bad: IntArray = np.flatnonzero(wrong)
    if bad.size:
        shape = (table.ranks, table.chunks, table.micro_batches, table.slices)
        rank, chunk, micro_batch, part = np.unravel_index(int(bad[0]), shape)
        where = f"rank {rank}, chunk {chunk}, micro-batch {micro_batch}, slice {part}"
        raise InvalidTableError(table.schedule, rule, f"{where}: {reason(int(bad[0]))}")

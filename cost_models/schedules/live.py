"""Live activations: what the forwards of a rank have stored and its backwards have not yet freed."""

import numpy as np

from cost_models.schedules.table import ActionTable, IntArray, Kind
from cost_models.schedules.whole_backward import first_stages


def live_chunks(table: ActionTable) -> IntArray:
    """[ranks, most, chunks] the Pareto-maximal live vectors of each rank, padded with zeros.

    A live vector counts, per chunk, the micro-batches (slices of them) whose forward has started and whose backward,
    weight gradient included, has not ended. With `saved` [ranks, chunks] the bytes of one, the most a rank ever holds
    is `(live_chunks(table) * saved[:, None]).sum(-1).max(-1)`.
    """
    fronts = [_maximal(live_history(table, rank)) for rank in range(table.ranks)]
    live = np.zeros((table.ranks, max(map(len, fronts)), table.chunks), dtype=np.int64)
    for rank, front in enumerate(fronts):
        live[rank, : len(front)] = front
    return live


def peak_live(table: ActionTable) -> IntArray:
    """[ranks] most micro-batches (slices of them), summed over chunks, that are ever live on a rank.

    >>> from cost_models.schedules import one_f_one_b
    >>> peak_live(one_f_one_b.actions(4, 1, 8)).tolist()
    [4, 3, 2, 1]
    """
    peak: IntArray = live_chunks(table).sum(axis=-1).max(axis=-1)
    return peak


def live_history(table: ActionTable, rank: int) -> IntArray:
    """[forwards, chunks] live vector during each forward of the rank; between forwards it only shrinks."""
    mine = slice(int(table.rank_start[rank]), int(table.rank_start[rank + 1]))
    kind, chunk = table.kind[mine], table.chunk[mine]
    live: IntArray = _live(kind[None], chunk[None], table.chunks)[0, kind == Kind.FORWARD]
    return live


def live_histories(table: ActionTable) -> IntArray:
    """[ranks, forwards, chunks] the live vectors of `live_history` for all ranks.

    Every rank of a valid table has as many forwards; where some have fewer actions, they are taken one by one.
    """
    counts = np.diff(table.rank_start)
    if np.any(counts != counts[0]):
        return np.stack([live_history(table, rank) for rank in range(table.ranks)])
    kind, chunk = (column.reshape(table.ranks, -1) for column in (table.kind, table.chunk))
    live: IntArray = _live(kind, chunk, table.chunks)[kind == Kind.FORWARD].reshape(table.ranks, -1, table.chunks)
    return live


def _live(kind: IntArray, chunk: IntArray, chunks: int) -> IntArray:
    """[..., actions, chunks] live vector after each action of [..., actions]."""
    change = (kind == Kind.FORWARD).astype(np.int64) - (kind == Kind.BACKWARD) - (kind == Kind.WEIGHT_GRAD)
    steps = np.where(chunk[..., None] == np.arange(chunks), change[..., None], 0)
    live: IntArray = np.cumsum(steps, axis=-2)
    return live


def split_history(table: ActionTable, rank: int) -> tuple[IntArray, IntArray]:
    """Two live vectors during each action of the rank, [actions, chunks] each, whose sum `live_history` gives.

    First the micro-batches (slices of them) whose forward has started and whose BACKWARD or INPUT_GRAD has not ended,
    then those whose INPUT_GRAD has ended and whose WEIGHT_GRAD has not: these need less memory.

    >>> from cost_models.schedules import zb_h1
    >>> before, after = split_history(zb_h1.actions(4, 1, 8), 3)
    >>> int(before.max()), int(after.max())
    (1, 4)
    """
    mine = slice(int(table.rank_start[rank]), int(table.rank_start[rank + 1]))
    kind, of_chunk = table.kind[mine], table.chunk[mine][:, None] == np.arange(table.chunks)
    forward, whole, input_grad, weight_grad = ((kind == one)[:, None] & of_chunk for one in Kind)
    begun = np.cumsum(forward, axis=0)
    # An action ends after it was counted: what it frees is gone from the next action on.
    ended, split, freed = (np.cumsum(one, axis=0) - one for one in (whole | input_grad, input_grad, weight_grad))
    return begun - ended, split - freed


def split_histories(table: ActionTable, *, splits_first_stage: bool = True) -> tuple[IntArray, IntArray]:
    """The two live vectors of `split_history` for all ranks, [ranks, most actions, chunks] each, padded with zeros.

    Where the backward of the model's first stage is not split, what waits there lacks all of it.
    """
    most = int(np.diff(table.rank_start).max())
    before, after = np.zeros((2, table.ranks, most, table.chunks), dtype=np.int64)
    for rank in range(table.ranks):
        own = split_history(table, rank)
        before[rank, : len(own[0])], after[rank, : len(own[1])] = own
    if not splits_first_stage:
        whole = first_stages(table.placement)[:, None]
        before, after = before + after * whole, after * ~whole
    return before, after


def _maximal(vectors: IntArray) -> IntArray:
    """The different vectors that no other one reaches in every chunk."""
    left = np.unique(vectors, axis=0)
    left = left[np.argsort(-left.sum(axis=1), kind="stable")]
    # A vector can only be dominated by one of a larger sum, that is by one already kept.
    kept: list[IntArray] = []
    while len(left):
        kept.append(left[0])
        left = left[np.any(left > left[0], axis=1)]
    return np.stack(kept)

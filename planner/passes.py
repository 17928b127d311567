"""What of a stage's passes is for the pipeline's sake: ends of hops, and layers whose backward is split.

Columns of rows that name a layout and a position, and a `chunk` where they are one chunk of a stage.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.schedules import actions, placement
from cost_models.schedules.table import BoolArray, IntArray, Kind
from cost_models.schedules.times import FloatArray
from planner.space import SCHEDULES, SPLIT, chunk_layers

__all__ = ["PASSES", "of_passes"]

PASSES = ("hop_ends", "split_layers", "first_split_layers")

Columns = Mapping[str, NDArray[Any]]


def of_passes(name: str, layouts: Columns, rows: Columns) -> NDArray[Any]:
    """One of PASSES for each row, [rows]: whole hops, or layers, of which a part where some backwards split."""
    if name == "hop_ends":
        return _hop_ends(layouts, rows)
    return _split_layers(layouts, rows, of_first=name == "first_split_layers")


def _split_layers(layouts: Columns, rows: Columns, *, of_first: bool) -> NDArray[np.float64]:
    """Layers whose backward is split, of the model's first chunk or all others, in the mean over micro-batches."""
    ends_model = rows["head_rank"] > 0
    found = np.zeros(len(rows["layout"]))
    names = ("schedule", "pp", "vpp", "num_microbatches")
    for mine, (schedule, pp, vpp, m) in _alike(layouts, rows["layout"], names):
        if not SPLIT[schedule]:
            continue
        share, position = split_share(SCHEDULES[schedule], pp, vpp, m), rows["position"][mine]
        for chunk in [rows["chunk"][mine]] if "chunk" in rows else range(vpp):
            of_chunk = rows["layers"][mine]
            if "chunk" not in rows:
                of_chunk = chunk_layers(of_chunk, vpp, chunk, ends_model[mine])
            is_first = (position == 0) & (np.asarray(chunk) == 0)
            found[mine] += np.where(is_first == of_first, of_chunk * share[position, chunk], 0.0)
    return found


def _hop_ends(layouts: Columns, rows: Columns) -> NDArray[np.int64]:
    """What each row sends to other ranks and receives from them in one direction."""
    ends = np.zeros(len(rows["layout"]), dtype=np.int64)
    for mine, (schedule, pp, vpp) in _alike(layouts, rows["layout"], ("schedule", "pp", "vpp")):
        of_chunks = ends_of_hops(SCHEDULES[schedule], pp, vpp)
        chunk: Any = rows["chunk"][mine] if "chunk" in rows else slice(None)
        found = of_chunks[rows["position"][mine], chunk]
        ends[mine] = found if "chunk" in rows else found.sum(axis=-1)
    return ends


def _alike(layouts: Columns, layout: IntArray, names: Sequence[str]) -> Iterator[tuple[BoolArray, list[int]]]:
    """The rows whose layouts agree in some columns, and what they have there."""
    kinds, which = np.unique([layouts[name][layout] for name in names], axis=1, return_inverse=True)
    for number, kind in enumerate(kinds.T.tolist()):
        yield which.reshape(-1) == number, kind


@lru_cache(maxsize=1024)
def ends_of_hops(schedule: str, pp: int, vpp: int) -> IntArray:
    """[pp, vpp] the neighbours of each chunk, in front and behind, that are on other ranks.

    >>> ends_of_hops("zb-v", 2, 2).tolist()
    [[1, 1], [1, 1]]
    """
    place = placement(schedule, pp, vpp)
    crosses = (place.link < place.ranks).astype(np.int64)
    ends = np.zeros((pp, vpp), dtype=np.int64)
    ends[place.rank, place.chunk] = np.append(crosses, 0) + np.append(0, crosses)
    ends.setflags(write=False)
    return ends


@lru_cache(maxsize=4096)
def split_share(schedule: str, pp: int, vpp: int, num_microbatches: int) -> FloatArray:
    """[pp, vpp] of the micro-batches of each chunk, those whose backward is split: of DualPipe some, of others all.

    >>> split_share("dualpipe-v", 2, 2, 4).tolist()
    [[0.5, 0.25], [0.25, 0.25]]
    """
    table = actions(schedule, pp, vpp, num_microbatches)
    later = table.kind == Kind.WEIGHT_GRAD
    share = np.zeros((pp, vpp))
    np.add.at(share, (table.rank_of()[later], table.chunk[later]), 1.0 / num_microbatches)
    share.setflags(write=False)
    return share

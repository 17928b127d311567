"""What of a stage's passes is for the pipeline's sake: ends of hops, and layers whose backward is split.

Columns of rows that name a layout and a position, and a `chunk` where they are one chunk of a stage.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.schedules import placement
from cost_models.schedules.table import IntArray
from planner.space import SCHEDULES, SPLIT, chunk_layers

__all__ = ["PASSES", "of_passes"]

PASSES = ("hop_ends", "split_layers", "first_split_layers")

Columns = Mapping[str, NDArray[Any]]


def of_passes(name: str, layouts: Columns, rows: Columns) -> NDArray[np.int64]:
    """One of PASSES for each row, int[rows]."""
    if name == "hop_ends":
        return _hop_ends(layouts, rows)
    layout, position = rows["layout"], rows["position"]
    split = SPLIT[layouts["schedule"][layout]]
    ends_model = rows["head_rank"] > 0
    if "chunk" in rows:  # one chunk, with its own layers
        first = np.where((position == 0) & (rows["chunk"] == 0), rows["layers"], 0)
    else:
        first = np.where(position == 0, chunk_layers(rows["layers"], layouts["vpp"][layout], 0, ends_model), 0)
    return np.asarray(split * (first if name == "first_split_layers" else rows["layers"] - first))


def _hop_ends(layouts: Columns, rows: Columns) -> NDArray[np.int64]:
    """What each row sends to other ranks and receives from them in one direction."""
    layout, position = rows["layout"], rows["position"]
    kinds, which = np.unique([layouts[name][layout] for name in ("schedule", "pp", "vpp")], axis=1, return_inverse=True)
    which = which.reshape(-1)
    ends = np.zeros(len(layout), dtype=np.int64)
    for kind, (schedule, pp, vpp) in enumerate(kinds.T.tolist()):
        mine = which == kind
        of_chunks = ends_of_hops(SCHEDULES[schedule], pp, vpp)
        chunk: Any = rows["chunk"][mine] if "chunk" in rows else slice(None)
        found = of_chunks[position[mine], chunk]
        ends[mine] = found if "chunk" in rows else found.sum(axis=-1)
    return ends


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

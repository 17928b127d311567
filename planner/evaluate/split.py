"""How a model's layers are dealt to pipeline chunks."""

import re

import numpy as np
from numpy.typing import NDArray

from cost_models.schedules.table import Placement
from planner.evaluate.errors import InvalidRunError

__all__ = ["chunk_sizes", "read_sizes"]

PART = re.compile(r"(?:(\d+)\s*[x*]\s*)?(\d+)")


def read_sizes(text: str) -> tuple[int, ...]:
    """The sizes in "9,10,10,9" or "9 2*10 9", none in an empty text. Raises InvalidRunError."""
    sizes: list[int] = []
    if not text:
        return ()
    for part in re.split(r"[,;|\s]+", text.strip("[]() ")):
        match = PART.fullmatch(part)
        if match is None:
            message = f"stage_layers must be whole numbers with commas (9,10,10,9 or 9,2*10,9), got {text}"
            raise InvalidRunError(message)
        sizes += [int(match[2])] * int(match[1] or 1)
    return tuple(sizes)


def chunk_sizes(
    layers: int, placement: Placement, stage_layers: tuple[int, ...] = (), *, fills: bool = False
) -> NDArray[np.int64]:
    """Layers of every chunk, int[pp, vpp]: those of `stage_layers` (one a rank or one a chunk, in the model's order).

    Else evenly; where that leaves a rest, the embedding and the head count as a layer each, and what is then left over
    goes to the first of the chunks between. With `fills` all chunks but the last are filled, unless the ends make
    up for the rest. Raises InvalidRunError.
    """
    pp, vpp, chunks = placement.ranks, placement.chunks, placement.stages
    if stage_layers:
        return _given(layers, placement, stage_layers)
    if layers < chunks - 2 or layers < pp:
        message = f"pp*vpp must leave a layer for every chunk ({layers} layers), got pp {pp}, vpp {vpp}"
        raise InvalidRunError(message)
    sizes = np.full(chunks, layers // chunks)
    most = -(-layers // chunks)
    if fills and layers % chunks and (layers + 2) % chunks and most * (chunks - 1) < layers:
        sizes = np.diff(np.minimum(most * np.arange(chunks + 1), layers))
    elif layers % chunks:
        base, rest = divmod(layers + 2, chunks)
        sizes = np.full(chunks, base)
        sizes[0] -= 1
        sizes[-1] -= 1
        sizes[1 : rest + 1] += 1
        if sizes.min() < 0 or rest > chunks - 2:  # no room between the ends
            sizes = np.full(chunks, layers // chunks)
            sizes[: layers % chunks] += 1
    return np.asarray(sizes[placement.stage_of()])


def _given(layers: int, placement: Placement, sizes: tuple[int, ...]) -> NDArray[np.int64]:
    pp, vpp = placement.ranks, placement.chunks
    if sum(sizes) != layers or len(sizes) not in (pp, pp * vpp):
        message = f"stage_layers must be {pp} or {pp * vpp} numbers that add up to {layers} layers, got {sizes}"
        raise InvalidRunError(message)
    if len(sizes) == pp * vpp:
        return np.asarray(np.array(sizes)[placement.stage_of()])
    base, rest = np.divmod(np.array(sizes), vpp)
    return np.asarray(base[:, None] + (np.arange(vpp) < rest[:, None]))

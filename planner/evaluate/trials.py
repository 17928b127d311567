"""What a row leaves open and whoever ran it chose for speed: values worth trying, of which the fastest that fits holds.

Published runs are tuned runs. A micro-batch or a number of chunks that is not printed is taken to be the one that
would have been found by trying.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from planner.evaluate.cells import Cells
from planner.evaluate.runs import Run
from planner.space import ZERO_MODES

__all__ = ["TRIED", "values_to_try"]

# Columns in the order in which they are settled.
TRIED = ("tp", "pp", "ep", "micro_batch", "vpp")
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
DEGREES = (1, 2, 4, 8, 16, 32, 64)
MOST_CHUNKS = 16
# Share of a step's work that a rank idles, beyond which recipes that interleave do.
IDLE_WITHOUT_CHUNKS = 0.25


def values_to_try(row: Mapping[str, Any], run: Run, column: str, *, misfit: bool) -> list[int]:
    """Values of a column that the row leaves open, none where it says or where there is nothing to choose.

    Tensor and pipeline degrees are 1 where the row is silent, unless that is a `misfit`: it needs more memory than
    there is.
    """
    if column == "micro_batch":
        return list(_micro_batches(run))
    if column == "vpp":
        return list(_chunks(Cells(row), run))
    weights_sharded = bool(ZERO_MODES["zero_stage"][run.zero] == 3)
    if not _open(run, column) or (column != "ep" and (weights_sharded or not misfit)):
        return []
    most = {
        "tp": run.cluster.gpus_per_node,
        "pp": run.model.layers,
        "ep": run.model.moe.experts if run.model.moe else 1,
    }
    return [degree for degree in DEGREES if degree <= min(most[column], run.cluster.gpus)]


def _micro_batches(run: Run) -> Iterable[int]:
    """Sequences of a micro-batch that divide what a replica has of the batch."""
    if not _open(run, "micro_batch"):
        return ()
    if _open(run, "global_batch_seqs"):
        return MICRO_BATCHES
    local_batch = run.layout["micro_batch_size"] * run.layout["num_microbatches"]
    return (size for size in MICRO_BATCHES if local_batch % size == 0)


def _chunks(cells: Cells, run: Run) -> Iterable[int]:
    """Chunks of a rank, where a rank would idle for long without.

    A row that prints its micro-batch would print its chunks as well, unless its framework's recipes interleave.
    """
    pp, micro_batches = run.layout["pp"], run.layout["num_microbatches"]
    if pp == 1 or micro_batches % pp or cells.text("vpp") or cells.text("schedule") or cells.note("schedule"):
        return ()
    unsaid = _open(run, "micro_batch") and run.recipe.zero_stage < 3
    if not unsaid and not (run.recipe.interleaves and (pp - 1) / micro_batches > IDLE_WITHOUT_CHUNKS):
        return ()
    return range(1, min(MOST_CHUNKS, (run.model.layers + 2) // pp) + 1)


def _open(run: Run, column: str) -> bool:
    return any(text.startswith(f"{column}=") and "(assumed" in text for text in run.assumed)

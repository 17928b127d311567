"""Tables of grouped products: what groups of some rows each reach of one product's rate."""

from pathlib import Path
from typing import Any

import numpy as np

from cost_models import surface
from cost_models.kernels import GROUP_TILE_TOKENS
from profiles import sources
from profiles.sources import Array, Row, System

# Rows of a group. Below the first measured node a tile is part-filled, whatever it holds; far above, one product.
NODES = 2.0 ** np.arange(0, 15)
STAGES = {"forward": "fwd", "input_grad": "bwd_grad_act", "weight_grad": "bwd_grad_w"}
FACTOR_NODES = 5
HALF_TILE = GROUP_TILE_TOKENS / 2.0


def group_tables(folder: Path, system: System, plain: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Return the fields of a GroupTable for every layout; `plain` is one product's share, by layout."""
    curves = {}
    for layout, stage in STAGES.items():
        rows = sources.read(folder, sources.TRAINING_GROUPS, lambda row, stage=stage: _is_of(row, system, stage))
        curves[layout] = curve(sources.column(rows, "M"), sources.column(rows, "efficiency") / plain[layout])
    if not system.same_generation:
        slower = curves["weight_grad"] / curves["forward"]
        curves = {"weight_grad": monotone(slower * NODES / (NODES + HALF_TILE))}
    return {
        layout: {"axes": {"rows": NODES.tolist()}, "shares": surface.rounded(shares), "measured": system.trained}
        for layout, shares in curves.items()
    }


def _is_of(row: Row, system: System, stage: str) -> bool:
    return row["system"] == system.nearest and row["stage"] == stage and row["dtype"] == "bf16"


def curve(rows: Array, shares: Array) -> Array:
    """Return shares at NODES: those of a half-filled last tile, times a smooth factor of the rows through the measured.

    The factor is level beyond the measured rows.
    """
    places = np.geomspace(rows.min(), rows.max(), FACTOR_NODES)
    factors = shares * (rows + HALF_TILE) / rows
    fitted = surface.fitted((places,), (rows,), factors, np.ones(len(rows)))
    factor = np.exp(np.interp(np.log(NODES), np.log(places), np.log(fitted)))
    return monotone(factor * NODES / (NODES + HALF_TILE))


def monotone(shares: Array) -> Array:
    """Return shares at NODES made to rise with the rows, and no faster than they do."""
    rising = np.maximum.accumulate(np.minimum(1.0, shares))
    return np.maximum.accumulate(np.minimum(1.0, surface.monotone((NODES,), rising)))

"""What the rules read of stage options, and which options a target can express."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import rules
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import OFFLOADS, RECOMPUTE_SETS, ZERO_MODES, context_type, take

__all__ = ["can_express", "is_restricted", "offload_shares", "without_the_inexpressible"]

Rows = dict[str, NDArray[Any]]

# Whatever a target asks of one stage, it allows where nothing is recomputed and all is on the device, if at all.
PLAIN = {f"recompute_{module}": 0 for module in rules.RECOMPUTE_MODULES} | {"recompute_layers": 0}


def is_restricted(request: PlanRequest) -> bool:
    """Whether the target has rules of its own. All that have want their stages to choose alike."""
    return any(launcher.name == request.target for launcher in rules.LAUNCHERS)


def can_express(
    model: CostModel, layouts: Mapping[str, NDArray[Any]], rows: Rows, *scopes: rules.Scope
) -> NDArray[np.bool_]:
    """Boolean column: which option rows (without a recompute set: taken as none) the target's rules allow."""
    request, count = model.request, len(rows["layout"])
    if not is_restricted(request):
        return np.ones(count, dtype=bool)
    of_layout = take({**layouts, "cp_type": context_type(layouts)}, rows["layout"])
    values: dict[str, Any] = {**model.known, **of_layout, **dict.fromkeys(OFFLOADS, 0.0), **PLAIN}
    values["stage_layers"] = _layers(request, rows, rows["layers"], 1)
    if "zero" in rows:
        values["zero_stage"], values["reshard"] = (ZERO_MODES[name][rows["zero"]] for name in ("zero_stage", "reshard"))
    if "recompute" in rows:
        values |= _recompute(model, rows)
    values |= {name: rows[name] for name in OFFLOADS if name in rows}
    return np.broadcast_to(rules.expressible(values, request.target, *scopes), count)


def without_the_inexpressible(
    model: CostModel, layouts: Mapping[str, NDArray[Any]], rows: Rows, *scopes: rules.Scope
) -> Rows:
    """The rows that `can_express` allows."""
    return take(rows, can_express(model, layouts, rows, *scopes)) if is_restricted(model.request) else rows


def offload_shares(model: CostModel, shares: NDArray[np.float64], recompute_full: int) -> NDArray[np.float64]:
    """Those of the shares, float[n, 4] in the order of OFFLOADS, that some stage under the target may have."""
    if not is_restricted(model.request):
        return shares
    # The most that any stage can be allowed: one rank, any ZeRO stage, layers that every share divides.
    values: dict[str, Any] = {**model.known, **PLAIN, "recompute_full": recompute_full, "stage_layers": 12}
    values |= {"pp": 1, "dp": 1, "cp": 1, "reshard": 1}
    values |= {name: column[:, None] for name, column in zip(OFFLOADS, shares.T, strict=True)}
    values["zero_stage"] = np.arange(4)
    allowed = rules.expressible(values, model.request.target, "stage", fields=("offload",))
    return shares[np.broadcast_to(allowed, (len(shares), 4)).any(axis=1)]


def _layers(request: PlanRequest, rows: Rows, groups: NDArray[np.int64], ends: Any) -> NDArray[np.int64]:
    """Layers that some repeating groups of a stage are, with those at the ends of the model where `ends`."""
    pattern = request.model.layer_pattern
    leading, trailing = len(pattern.leading) * rows["has_embedding"], len(pattern.trailing) * rows["has_head"]
    return np.asarray(groups * len(pattern.period) + ends * (leading + trailing))


def _recompute(model: CostModel, rows: Rows) -> Rows:
    """The modules that are recomputed, and on how many layers."""
    some = rows["recompute_per_chunk"] > 0
    values: Rows = {"recompute_layers": _layers(model.request, rows, rows["recompute_layers"], rows["recompute_ends"])}
    for module in rules.RECOMPUTE_MODULES:
        has = np.array([module in names and module in model.recompute_modules for names in RECOMPUTE_SETS])
        values[f"recompute_{module}"] = (has[rows["recompute"]] & some).astype(np.int64)
    return values

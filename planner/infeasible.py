"""Why nothing fits: the layout that comes nearest, what fills its GPU, and by how much it is over."""

import numpy as np

from cost_models.specs.units import format_bytes
from planner import bounds, space
from planner.document import MEMORY_CAUSES
from planner.errors import InfeasibleError
from planner.incumbent import Search
from planner.options import MARGIN
from planner.predict import LayoutCosts

__all__ = ["explain_infeasible"]

LARGEST_CAUSES = 4


def explain_infeasible(search: Search) -> InfeasibleError:
    """The error that tells why the search found no plan: the tightest constraint first."""
    request = search.request
    layouts = space.layouts(request, space.meshes(request))
    if not len(layouts["pp"]):
        scope = f"the {request.schedule} schedule" if request.schedule else "this batch and model"
        return InfeasibleError(f"no layout of {request.cluster.gpus} GPUs is legal for {scope}")
    costs = LayoutCosts.of(search.model, layouts)
    nearest = int(np.argmin(bounds.least_memory(search.model, costs)["device_bytes"]))
    least = {name: float(v[0]) for name, v in bounds.least_memory(search.model, costs.take([nearest]), "all").items()}
    layout = {name: int(column[nearest]) for name, column in layouts.items()}
    needed, capacity = least["device_bytes"] * (1.0 + MARGIN), request.capacity_bytes
    degrees = ", ".join(f"{name} {layout[name]}" for name in ("tp", "pp", "vpp", "dp", "micro_batch_size"))
    causes = sorted(((least[cause], cause) for cause in MEMORY_CAUSES), reverse=True)
    filled = ", ".join(f"{cause.replace('_', ' ')} {format_bytes(size)}" for size, cause in causes[:LARGEST_CAUSES])
    return InfeasibleError(
        f"nothing fits: a GPU has {format_bytes(capacity)} usable and the smallest layout needs at least "
        f"{format_bytes(needed)} ({MARGIN:.0%} margin included), {format_bytes(needed - capacity)} too much",
        f"that layout: {degrees}, states sharded as far as they go, every layer recomputed; on its fullest GPU: {filled}",
        f"considered {len(layouts['pp']):,} layouts of {request.model.name} on {request.cluster.gpus} GPUs; "
        f"not searched: {'; '.join(space.NOT_SEARCHED)}",
    )

"""The sizes that a request's operators have in all layouts: read off the expressions that the search evaluates."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import layouts, meshes

__all__ = ["bytes_of_a_token", "operator_sizes"]

Sizes = dict[str, set[tuple[float, ...]]]
# What chooses and rounds, and what combines seconds: no sizes of tensors.
NOT_MEASURED = (
    "at_least",
    "beyond_backward_s",
    "beyond_forward_s",
    "beyond_split_s",
    "ceiling",
    "exposed_beside_copies_s",
    "exposed_s",
    "hop_end_s",
    "launch_s",
    "maximum",
    "minimum",
)


class _Recording(CostModel):
    """A cost model whose operators take no time and remember their sizes."""

    def __init__(self, request: PlanRequest) -> None:
        super().__init__(request)
        self.recorded: Sizes = {}

    @cached_property
    def functions(self) -> Mapping[str, Any]:
        """Bodies that note what they are asked for."""
        return {name: self._recorder(name) for name in super().functions}

    def _recorder(self, name: str) -> Callable[..., Any]:
        def body(*sizes: Any) -> Any:
            columns = np.broadcast_arrays(*(np.asarray(size, dtype=np.float64) for size in sizes))
            if name not in NOT_MEASURED:
                rows = np.unique(np.stack([column.ravel() for column in columns], axis=1), axis=0)
                self.recorded.setdefault(name.removesuffix("_s").removeprefix("elementwise_"), set()).update(
                    map(tuple, rows.tolist())
                )
            return np.zeros(columns[0].shape)

        return body


def operator_sizes(request: PlanRequest) -> Sizes:
    """The distinct sizes of every operator, by its name, over all layouts of a request; sizes of zero are left out.

    Those of one micro-batch in a layer and the ends of the model, and of the exchange of their states.
    """
    model = _Recording(request)
    columns = layouts(request, meshes(request))
    LayoutCosts.of(model, columns)
    found = {name: {each for each in sizes if min(each) > 0} for name, sizes in model.recorded.items()}
    return {name: sizes for name, sizes in found.items() if sizes}


def bytes_of_a_token(request: PlanRequest) -> dict[str, float]:
    """Bytes that each memory-bound operator is counted with for one token on a device that shares nothing."""
    one = request.replaced(
        workload=request.workload.replaced(seq_len=1, global_batch=1), cluster=request.cluster.with_gpus(1)
    )
    return {name: max(size[0] for size in sizes) for name, sizes in operator_sizes(one).items() if len(min(sizes)) == 1}

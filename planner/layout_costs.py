"""The dear costs of a table of layouts, kept once for each distinct row and read through an index."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from planner.passes import PASSES, of_passes
from planner.predict import MICRO_BATCH_OUTPUTS, CostModel, unit_seconds
from planner.space import OFFLOADS, ZERO_MODES, head_position, take
from solver.pareto import front

__all__ = ["WAITING", "LayoutCosts"]

Array = NDArray[np.float64]
# What else the costs of a micro-batch depend on.
BESIDE_CONTEXT_FORM = ("tp", "sequence_parallel", "cp", "ep", "etp", "micro_batch_size", "slices")
WAITING = ("waiting_layers", "waiting_embedding", "waiting_head")
GROUPS = ("tp", "cp", "ep", "pp", "dp_shard", "dp_replicate", "world")


@dataclass(frozen=True, eq=False)
class LayoutCosts:
    """Layouts and their costs: of one micro-batch by recompute set, and of exchanging states."""

    layouts: Mapping[str, NDArray[Any]]
    micro_batch: Mapping[str, Array]
    """float[distinct, recompute sets] by name."""
    micro_batch_row: NDArray[np.int64]
    """int[layouts]: the row of `micro_batch` that a layout is."""
    exchange: Mapping[str, Array]
    """float[distinct] by name."""
    exchange_row: NDArray[np.int64]
    """int[layouts]: the row of `exchange` that a layout is."""
    pipeline_exchange: Mapping[str, Array]
    """float[distinct] by name; empty where the cost model knows no slices."""
    pipeline_exchange_row: NDArray[np.int64]
    """int[layouts]: the row of `pipeline_exchange` that a layout is."""
    relief: Array
    """float[layouts]: what the seconds of `micro_batch` shrink to where nodes are left idle, see `CostModel.relief`."""

    @classmethod
    def of(cls, model: CostModel, layouts: Mapping[str, NDArray[Any]]) -> Self:
        """The costs of some layouts."""
        exchanges = (*model.exchange_table(layouts), *model.pipeline_exchange_table(layouts))
        return cls(layouts, *model.micro_batch_table(layouts), *exchanges, model.relief(layouts["world"]))

    def __len__(self) -> int:
        return len(self.layouts["pp"])

    def take(self, rows: Any) -> "LayoutCosts":
        """The costs of some of the layouts."""
        return replace(
            self,
            layouts=take(self.layouts, rows),
            micro_batch_row=self.micro_batch_row[rows],
            exchange_row=self.exchange_row[rows],
            pipeline_exchange_row=self.pipeline_exchange_row[rows],
            relief=self.relief[rows],
        )

    def compact(self) -> "LayoutCosts":
        """The costs of the same layouts without the distinct rows that none of them is."""
        tables: dict[str, Any] = {}
        for name in ("micro_batch", "exchange", "pipeline_exchange"):
            used, row = np.unique(getattr(self, f"{name}_row"), return_inverse=True)
            tables |= {name: take(getattr(self, name), used), f"{name}_row": row}
        return replace(self, **tables)

    def parts(self, size: int) -> list["LayoutCosts"]:
        """The layouts by `size` at a time."""
        return [self.take(slice(start, start + size)) for start in range(0, len(self), size)]

    def __getstate__(self) -> dict[str, Any]:
        """What goes from one process to another: no more of the tables than the layouts are."""
        compact = self.compact()
        return {field.name: getattr(compact, field.name) for field in fields(self)}

    def with_columns(self, **columns: NDArray[Any]) -> "LayoutCosts":
        """The costs of the same layouts, which get more columns."""
        return replace(self, layouts={**self.layouts, **columns})

    def best_context_forms(self) -> "LayoutCosts":
        """The layouts that no other way to split the context makes needless: at most as dear in everything.

        Ways to split differ in the costs of a micro-batch alone, and less is better of all of them. Of equals the first
        stays.
        """
        if not np.any(self.layouts["cp"] > 1):
            return self
        distinct, first = np.unique(self.micro_batch_row, return_index=True)
        same = np.column_stack([self.layouts[name][first] for name in BESIDE_CONTEXT_FORM])
        _, rival = np.unique(same, axis=0, return_inverse=True)
        costs = []
        for name, column in self.micro_batch.items():
            if not name.endswith("_attention_s"):
                costs.append(column[distinct])
                continue
            # Where attention is less of a pass, late slices are shorter but early ones longer: only equals are rivals.
            of_slices = column[distinct] * (self.layouts["slices"][first] > 1)[:, None]
            costs += [of_slices, -of_slices]
        kept = front(np.concatenate(costs, axis=1), rival.reshape(-1))
        return self.take(np.isin(self.micro_batch_row, distinct[kept]))

    def per_micro_batch(self, name: str, recompute: Any = 0) -> Array:
        """A cost of one micro-batch for each layout, float[layouts] (or float[layouts, sets] for several sets)."""
        return np.asarray(self.micro_batch[name][:, recompute][self.micro_batch_row])

    @cached_property
    def unit_s(self) -> dict[str, Array]:
        """Least seconds of one micro-batch in a layer, the embedding and the head: forward, backward, no recompute."""
        distinct = unit_seconds({name: column[:, 0] for name, column in self.micro_batch.items()})
        return {unit: seconds[self.micro_batch_row] * self.relief for unit, seconds in distinct.items()}

    def own_s(self, options: Mapping[str, NDArray[Any]]) -> Array:
        """Seconds of a step that the stage of each option works by itself, its global part left out, float[options]."""
        work = self.layouts["num_microbatches"][options["layout"]] * sum(options[name] for name in MICRO_BATCH_OUTPUTS)
        return np.asarray(work + options["first_s"] + options["last_s"])

    @cached_property
    def communicators(self) -> NDArray[Any]:
        """Process groups of more than one rank that a rank is in."""
        return np.asarray(np.sum([self.layouts[name] > 1 for name in GROUPS], axis=0))

    def gather(self, inputs: tuple[str, ...], rows: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The columns that a stage expression reads, for rows that name a layout, a ZeRO mode and a recompute set."""
        layout, recompute = rows["layout"], rows["recompute"]
        micro_batch, exchange = self.micro_batch_row[layout], self.exchange_row[layout]
        relieved = bool(np.any(self.relief < 1.0))
        columns: dict[str, NDArray[Any]] = {}
        for name in inputs:
            if name in rows:
                columns[name] = rows[name]
            elif name in self.micro_batch:
                columns[name] = self.micro_batch[name][micro_batch, recompute]
                if relieved and name.endswith("_s"):
                    columns[name] = columns[name] * self.relief[layout]
            elif name in self.exchange:
                columns[name] = self.exchange[name][exchange]
            elif name in self.pipeline_exchange:
                columns[name] = self.pipeline_exchange[name][self.pipeline_exchange_row[layout]]
            elif name in (*OFFLOADS, *WAITING):  # rows that say nothing of these have none
                columns[name] = np.zeros(())
            elif name in PASSES:
                columns[name] = of_passes(name, self.layouts, rows)
            elif name in ZERO_MODES:
                columns[name] = ZERO_MODES[name][rows["zero"]]
            else:
                columns[name] = self._layout_column(name)[layout]
        return columns

    def _layout_column(self, name: str) -> NDArray[Any]:
        if name == "communicators":
            return self.communicators
        if name == "pipelined":
            return np.asarray(self.layouts["pp"] > 1)
        if name == "ends_apart":
            return np.asarray(head_position(self.layouts) > 0)
        if name == "dp_shard":
            return np.asarray(self.layouts["dp_shard"] * self.layouts["cp"])
        return np.asarray(self.layouts[name])

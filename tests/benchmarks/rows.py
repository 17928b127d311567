"""Rows a second that the cost expressions evaluate: one row is a layout, an option of a stage and a pipeline rank."""

import time
from dataclasses import dataclass

import numpy as np

from planner import options, space, windows
from planner.fitting import Rows, searched_sets, with_recompute
from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.request import build_request

LAYOUTS = 128
REPEATS = 20


@dataclass(frozen=True)
class Rate:
    """What was evaluated, and how fast."""

    rows: int
    seconds: float
    operations: int
    """Size of the expressions, after common parts are shared."""


def measured() -> Rate:
    """The best of a few passes over the options of llama3-405b on 16,384 GPUs, on one core.

    Every row gets its seconds, the terms of its bound and its bytes; the gathers from the tables of layouts count.
    """
    model, costs = _layouts()
    parts = _every_option(model, costs)
    seconds = min(_seconds(model, costs, parts) for _ in range(REPEATS))
    return Rate(sum(len(part["layout"]) for part in parts), seconds, model.operations("option"))


def _layouts() -> tuple[CostModel, LayoutCosts]:
    """Layouts of 16 or more pipeline ranks."""
    model = CostModel(build_request("llama3-405b", 16_384, cluster="llama3-roce"))
    meshes = space.meshes(model.request)
    deep = space.take(
        meshes, (meshes["pp"] >= 16) & (meshes["dp"] > 1) & (np.prod(list(meshes.values()), axis=0) == 16_384)
    )
    costs = LayoutCosts.of(model, space.layouts(model.request, deep)).best_context_forms()
    costs = costs.take(np.linspace(0, len(costs) - 1, LAYOUTS).astype(np.int64)).compact()
    return model, costs


def _every_option(model: CostModel, costs: LayoutCosts) -> list[Rows]:
    """The rows of every number of layers about an even share, ZeRO mode and recompute set; a table a set."""
    lower, upper, _ = windows.window(model, costs, windows.even_budget_s(model, costs))
    rows = options.with_stage_numbers(
        options.stage_rows(costs.layouts, options.positions(lower, upper), model.request.recipe)
    )
    rows = options.with_zero_modes(model, costs.layouts, rows)
    whole = rows["chunk_layers"] + (rows["wide_chunks"] > 0)
    return [with_recompute(rows, index, whole * (index > 0)) for index in searched_sets(model)]


def _seconds(model: CostModel, costs: LayoutCosts, parts: list[Rows]) -> float:
    """Seconds of one pass over the rows."""
    started_s = time.perf_counter()
    for rows in parts:
        costs.own_s({**rows, **model.stages(costs, rows, "option")})
    return time.perf_counter() - started_s


def report() -> str:
    """The rate as a line of text."""
    rate = measured()
    million, size = rate.rows / rate.seconds / 1e6, f"an expression of {rate.operations} operations"
    return f"{rate.rows:,} rows in {rate.seconds:.3f} s on one core: {million:.2f} million rows/s, {size}"


if __name__ == "__main__":
    print(report())

"""The fastest plan that a launcher can express, among all plans of a small job: what a restricted search must find."""

from collections.abc import Iterator, Mapping
from math import inf

import numpy as np

from planner.request import PlanRequest
from planner.rules import RECOMPUTE_MODULES, expressible
from planner.space import RECOMPUTE_SETS, ZERO_MODES, known_values
from tests.oracles.brute_force import ZERO_WAYS, BruteForce, Stages, _splits
from tests.oracles.legal_layouts import Row

FULL = RECOMPUTE_SETS.index(("full",))
WITHOUT_SEQUENCE_PARALLEL = ("deepspeed", "accelerate", "trainer", "axolotl")
NO_OFFLOAD = dict.fromkeys(("offload_weights", "offload_gradients", "offload_optimizer", "offload_activations"), 0.0)


class BestExpressible:
    """All plans of a request whose stages choose alike and that its target's rules allow, replayed one by one."""

    def __init__(self, request: PlanRequest, shares: Mapping[str, float] = NO_OFFLOAD) -> None:
        """With `shares` for the plans that offload these on every stage."""
        if request.target in WITHOUT_SEQUENCE_PARALLEL:
            request = request.replaced(recipe=request.recipe.replaced(sequence_parallel=False))
        self.request = request
        away = any(shares.values())
        self.brute = BruteForce(request, reduced=False, offload=away, shares=dict(shares) if away else None)
        self.shares = shares
        self.known = known_values(request)

    def best_s(self) -> float:
        """Seconds of the fastest of them, infinity when none fits."""
        return min(map(self._best_of, range(len(self.brute.layouts))), default=inf)

    def _best_of(self, index: int) -> float:
        layout = self.brute.layouts[index]
        values = {**self.known, **layout, "cp_type": _context_type(layout)}
        if not expressible(values, self.request.target, "mesh", "layout"):
            return inf
        units, best = self.request.model.layer_pattern.repeats, inf
        for split in _splits(units, layout["pp"]):
            stages = [self.brute._options(index, position, layers) for position, layers in enumerate(split)]
            if all(len(stage.rows) for stage in stages):
                chosen = list(self._alike(values, stages))
                if chosen:
                    choice = [np.array(column) for column in zip(*chosen, strict=True)]
                    best = min(best, float(self.brute.steps_s(index, stages, choice).min()))
        return best

    def _alike(self, values: Row, stages: list[Stages]) -> Iterator[list[int]]:
        """Numbers of one option of each stage: the same ZeRO mode, recompute set and count of layers a chunk."""
        by_choice = [{self._key(row): number for number, row in enumerate(stage.rows)} for stage in stages]
        widest = [max(row["count"] for row in stage.rows) for stage in stages]
        most = -(-max(stage.rows[0]["layers"] for stage in stages) // values["vpp"])
        pattern = self.request.model.layer_pattern
        parts = range(most if pattern.leading or pattern.trailing else 1, most + 1)
        for zero in range(ZERO_WAYS):
            for recompute in range(len(RECOMPUTE_SETS)):
                for count in parts if recompute == FULL else (most if recompute else 0,):
                    keys = [(zero, recompute, min(count, self._chunk(stage, values))) for stage in stages]
                    if all(key in known for key, known in zip(keys, by_choice, strict=True)) and widest:
                        numbers = [known[key] for key, known in zip(keys, by_choice, strict=True)]
                        rows = [stage.rows[number] for stage, number in zip(stages, numbers, strict=True)]
                        if all(self._allowed(values, row) for row in rows):
                            yield numbers

    def _chunk(self, stage: Stages, values: Row) -> int:
        """Layers of the widest chunk of a stage."""
        return -(-stage.rows[0]["layers"] // values["vpp"])

    def _key(self, row: Row) -> tuple[int, int, int]:
        return row["zero"], row["recompute"], row["count"]

    def _allowed(self, values: Row, row: Row) -> bool:
        pattern = self.request.model.layer_pattern
        ends = len(pattern.leading) * row["has_embedding"] + len(pattern.trailing) * row["has_head"]
        modules = RECOMPUTE_SETS[row["recompute"]] if row["count"] else ()
        of_stage = {
            "stage_layers": row["layers"] * len(pattern.period) + ends,
            "recompute_layers": row["recompute_layers"] * len(pattern.period) + row["recompute_ends"] * ends,
            "zero_stage": int(ZERO_MODES["zero_stage"][row["zero"]]),
            "reshard": int(ZERO_MODES["reshard"][row["zero"]]),
            **{f"recompute_{name}": int(name in modules) for name in RECOMPUTE_MODULES},
        }
        return bool(expressible({**values, **of_stage, **self.shares}, self.request.target, "split", "stage"))


def _context_type(layout: Row) -> int:
    if layout["cp_heads"] == 1:
        return layout["cp_ring"]
    return 3 if layout["cp_heads"] < layout["cp"] else 2

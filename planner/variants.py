"""Variants of the recipe that a request asks to search: each is a request of its own."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from planner import rules
from planner.recipe_parts import PARTS, loss_of, with_loss, with_optimizer
from planner.request import PlanRequest, precisions_of
from planner.space import known_values

__all__ = ["Variant", "searched_parts", "variants"]

ALONE = {"tp": 1, "cp": 1, "pp": 1, "dp": 1, "sequence_parallel": 0}


@dataclass(frozen=True)
class Variant:
    """One choice of the parts of a recipe, by part, and the request that it makes."""

    parts: Mapping[str, str]
    request: PlanRequest


def searched_parts(request: PlanRequest) -> tuple[str, ...]:
    """The parts of the recipe that the request asks to search."""
    return tuple(part for part in PARTS if part in request.search)


def variants(request: PlanRequest) -> tuple[Variant, ...]:
    """Every variant that the GPU and the target have, the request's own recipe first."""
    own = {
        "precision": request.workload.precision,
        "optimizer": request.workload.optimizer,
        "loss": loss_of(request.recipe),
    }
    choices = [
        tuple(dict.fromkeys((own[part], *(PARTS[part] if part in searched_parts(request) else ())))) for part in PARTS
    ]
    found = []
    for values in itertools.product(*choices):
        parts = dict(zip(PARTS, values, strict=True))
        if parts["precision"] in precisions_of(request.cluster.gpu, request.profile):
            variant = Variant(parts, _varied(request, parts))
            if parts == own or _can_run(variant.request):
                found.append(variant)
    return tuple(found)


def _varied(request: PlanRequest, parts: Mapping[str, str]) -> PlanRequest:
    workload, recipe = with_optimizer(request.workload, with_loss(request.recipe, parts["loss"]), parts["optimizer"])
    return request.replaced(workload=workload.replaced(precision=parts["precision"]), recipe=recipe)


def _can_run(request: PlanRequest) -> bool:
    """Whether the target, or with `any` some open launcher, has the precision and the optimizer.

    Our own runtime has bf16 and AdamW. Which loss there is, is a matter of the model's code.
    """
    values = {**known_values(request), **ALONE}
    if request.target == "runtime":
        return values["precision"] == values["optimizer"] == 0
    targets = [launcher.name for launcher in rules.LAUNCHERS if request.target in ("any", launcher.name)]
    return any(bool(rules.expressible(values, name, "mesh", fields=("precision", "optimizer"))) for name in targets)

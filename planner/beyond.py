"""What layers take beyond operators: layers as they were timed, less what a profile says."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.specs.beyond import BeyondOperators
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import layouts, meshes

__all__ = ["InPlace", "beyond_operators", "line_of_shares"]


@dataclass(frozen=True)
class InPlace:
    """One layer of a run that was timed with others in front of it and behind it."""

    micro_batch_size: int
    tokens: int
    """Of a rank: where several share the layer, its part of them."""
    forward_s: float
    both_ways_s: float
    """Forward and backward, the gradients added to those of the micro-batches before."""
    split_s: float | None = None
    """The same, the backward split in two; None where it was not timed."""


def beyond_operators(timed: Iterable[tuple[PlanRequest, Sequence[InPlace]]]) -> BeyondOperators | None:
    """A constant and a slope over tokens that fit all layers best, each by its share; None where none was timed.

    Each request is for one rank, or for those that share layers, with the profile of the operators; its layers are
    those of its model. Small and large micro-batches count alike: plans are compared by what parts of a step differ.
    """
    tokens, forward, backward = [], [], []
    split: list[tuple[float, float, float]] = []
    operators_s: list[tuple[float, float]] = []
    for request, layers in timed:
        operators = _of_operators(request)
        for each in layers:
            if each.split_s is not None:
                split.append((each.tokens, each.split_s - each.both_ways_s, each.both_ways_s))
            if each.micro_batch_size in operators:
                forward_s, backward_s = operators[each.micro_batch_size]
                operators_s.append((forward_s, backward_s))
                tokens.append(float(each.tokens))
                forward.append(each.forward_s - forward_s)
                backward.append(each.both_ways_s - each.forward_s - backward_s)
    if not tokens:
        return None
    of_forward, of_backward = zip(*operators_s, strict=True)
    forward_s, forward_token_s = line_of_shares(tokens, forward, of_forward)
    backward_s, backward_token_s = line_of_shares(tokens, backward, of_backward)
    split_s, split_token_s = line_of_shares(*zip(*split, strict=True)) if split else (0.0, 0.0)
    return BeyondOperators(
        forward_s=forward_s,
        forward_token_s=forward_token_s,
        backward_s=backward_s,
        backward_token_s=backward_token_s,
        split_s=split_s,
        split_token_s=split_token_s,
    )


def _of_operators(request: PlanRequest) -> dict[int, tuple[float, float]]:
    """Seconds of a layer's operators, forward and backward with the adding up of gradients, by micro-batch size."""
    model = CostModel(request)
    columns = layouts(request, meshes(request))
    parts = model.micro_batch(columns)
    exchange, which = model.exchange_table(columns)
    backward = parts["layer_input_grad_s"] + parts["layer_weight_grad_s"] + exchange["layer_accumulation_s"][which]
    sizes = columns["micro_batch_size"].tolist()
    return dict(zip(sizes, zip(parts["layer_forward_s"].tolist(), backward.tolist(), strict=True), strict=True))


def line_of_shares(tokens: Sequence[float], seconds: Sequence[float], whole_s: Sequence[float]) -> tuple[float, float]:
    """Constant and slope, neither below 0, of the line that is nearest to some seconds, as parts of whole ones."""
    x, y, weight = (np.asarray(each) for each in (tokens, seconds, np.reciprocal(whole_s)))
    if len(set(tokens)) > 1:
        slope, constant = np.polyfit(x, y, 1, w=weight)
        if slope >= 0 and constant >= 0:
            return float(constant), float(slope)
        if slope >= 0:
            return 0.0, max(0.0, float(weight**2 @ (x * y) / (weight**2 @ x**2)))
    return max(0.0, float(np.average(y, weights=weight**2))), 0.0

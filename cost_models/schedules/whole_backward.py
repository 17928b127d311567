"""Split backwards of which some are not split: the whole of them runs where the weight gradients do."""

from collections.abc import Mapping

import numpy as np

from cost_models.schedules.table import BoolArray, Placement
from cost_models.schedules.times import FloatArray

__all__ = ["first_stages", "with_whole_backwards"]


def first_stages(place: Placement) -> BoolArray:
    """[ranks, chunks] whether a chunk begins a copy of the model: nothing in front of it waits for its input gradient.

    >>> from cost_models.schedules.table import v_placement
    >>> first_stages(v_placement(2)).tolist()
    [[True, False], [False, False]]
    """
    first: BoolArray = place.stage_of() % (place.stages // place.routes) == 0
    return first


def with_whole_backwards(seconds: Mapping[str, FloatArray], where: BoolArray) -> dict[str, FloatArray]:
    """The seconds of chunks, of which those marked do nothing for their INPUT_GRAD and all in their WEIGHT_GRAD.

    `seconds` has input_grad_s and weight_grad_s, [..., chunks] as the fields of `StageTimes`; whatever else it has
    stays. A BACKWARD takes as long as it did.
    """
    moved = np.where(where, seconds["input_grad_s"], 0.0)
    return {
        **seconds,
        "input_grad_s": seconds["input_grad_s"] - moved,
        "weight_grad_s": seconds["weight_grad_s"] + moved,
    }

"""How far predictions may lie off: the bands of step times and peak bytes, and what of two plans counts as a tie.

Calibrated on the published runs of docs/accuracy.md, predicted with constants that never saw their source: four of five
measured figures lie inside.
"""

from cost_models.specs.model import ModelSpec

__all__ = ["MEMORY_BANDS", "TIE_BAND", "time_band"]

# A measured step lies within a factor 1 + band of its prediction: where it is known how the run was made, and where its
# framework, degrees or sizes had to be assumed.
DENSE_BANDS, EXPERT_BANDS = (0.14, 0.25), (0.24, 0.40)
# Two configurations of one job share most of what a prediction misses: in four of five groups of published runs of one
# model, batch, GPU and release, the ratio of two steps is predicted to within 8 % for four of five pairs.
TIE_BAND = 0.10
# Peak bytes, by whether activations are kept as Transformer Engine keeps them (its recipes were checked to a percent),
# or by eager modules, compilers and allocators of many kinds.
MEMORY_BANDS = (0.06, 0.16)


def time_band(model: ModelSpec, *, unsure: bool = False) -> float:
    """The band of a model's step time: from 1 / (1 + band) to 1 + band of the prediction."""
    return (EXPERT_BANDS if model.moe else DENSE_BANDS)[unsure]

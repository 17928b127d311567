"""What layers and hops take in a run beyond operators one by one, where a run has shown it."""

from typing import ClassVar

from pydantic import Field

from cost_models.specs.base import NonNegativeFloat, Spec

__all__ = ["BeyondOperators"]


class BeyondOperators(Spec):
    """Seconds of a layer, forward and backward: a constant, and one for each token of a rank.

    Hooks of the sharding, calls between operators, tensors laid out anew, and what finds its operands in no cache since
    the rest of a layer has gone through it meanwhile; of a layer that ranks share, waiting for the slower of them, too.
    """

    label: ClassVar[str] = "beyond"

    forward_s: NonNegativeFloat = Field(description="of a layer's forward, s")
    forward_token_s: NonNegativeFloat = Field(description="for each token of it, s")
    backward_s: NonNegativeFloat = Field(description="of a layer's backward, s")
    backward_token_s: NonNegativeFloat = Field(description="for each token of it, s")
    split_s: NonNegativeFloat = Field(0.0, description="more of a backward whose weight gradients come later, s")
    split_token_s: NonNegativeFloat = Field(0.0, description="for each token of it, s")

"""Weights to start from, the same whatever the sharding: drawn block by block from the name of the full tensor."""

import math

import torch
from torch import Tensor

from cost_models.specs.model import ModelSpec
from runtime.chance import generator_of
from runtime.parameters import Part

__all__ = ["Drawn"]

# Rows that are drawn together: a rank draws the blocks that its rows lie in, never the whole matrix.
BLOCK_ROWS = 64
DEVIATION = 0.02


class Drawn:
    """Normal weights of deviation 0.02, those of products into the residual stream over sqrt(2 * layers) (GPT-2)."""

    def __init__(self, model: ModelSpec, seed: int, *, scatter: bool = False) -> None:
        self.seed = seed
        self.scatter = scatter
        """Whether norms and biases are drawn too, around one and zero, so that a test sees where they are."""
        self.residual_deviation = DEVIATION / math.sqrt(2 * model.layers)

    def values(self, name: str, rows: Part, columns: Part | None) -> Tensor:
        """[rows, columns] of the full tensor, in fp32; norms are one, biases zero."""
        if columns is None:
            usual = 1.0 if name.endswith("norm.weight") else 0.0
            drawn = self.values(name, rows, Part(0, 1)).squeeze(1) if self.scatter else torch.zeros(rows.size)
            return usual + drawn
        deviation = self.residual_deviation if name.endswith(("output.weight", "down.weight")) else DEVIATION
        # A row is as wide as the widest that any rank asks for: columns are cut out of blocks drawn up to their end.
        blocks = range(rows.start // BLOCK_ROWS, -(-rows.stop // BLOCK_ROWS))
        drawn = torch.cat([self._block(name, block, columns) for block in blocks])
        first = rows.start - blocks.start * BLOCK_ROWS
        return drawn[first : first + rows.size] * deviation

    def _block(self, name: str, block: int, columns: Part) -> Tensor:
        """[BLOCK_ROWS, columns] drawn transposed, so that the first columns do not depend on how many there are."""
        generator = generator_of(self.seed, name, block)
        return torch.randn(columns.stop, BLOCK_ROWS, generator=generator)[columns.start :].T

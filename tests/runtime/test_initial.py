"""Drawn weights do not depend on how they are cut."""

import torch

from runtime.initial import Drawn
from runtime.parameters import Part
from tests.runtime.jobs import small_model

NAME, ROWS, COLUMNS = "layers.0.mlp.up.weight", 200, 90


def test_any_part_of_a_matrix_is_that_part_of_the_whole() -> None:
    """Rows and columns that start anywhere, also inside a block."""
    source = Drawn(small_model(), seed=4)
    whole = source.values(NAME, Part(0, ROWS), Part(0, COLUMNS))
    for rows, columns in ((Part(0, 1), Part(0, 1)), (Part(63, 65), Part(7, 8)), (Part(100, 200), Part(45, 90))):
        part = source.values(NAME, rows, columns)
        assert torch.equal(part, whole[rows.start : rows.stop, columns.start : columns.stop])


def test_matrices_are_different_and_of_the_deviation_that_is_said() -> None:
    """0.02, less for products into the residual stream; seeds and names tell them apart."""
    source, model = Drawn(small_model(), seed=4), small_model()
    whole = source.values(NAME, Part(0, ROWS), Part(0, COLUMNS))
    into_residual = source.values("layers.0.mlp.down.weight", Part(0, ROWS), Part(0, COLUMNS))
    assert abs(float(whole.std()) / 0.02 - 1) < 0.05
    assert abs(float(into_residual.std()) / (0.02 / (2 * model.layers) ** 0.5) - 1) < 0.05
    assert not torch.equal(whole, Drawn(model, seed=5).values(NAME, Part(0, ROWS), Part(0, COLUMNS)))
    assert torch.unique(whole).numel() > 0.99 * whole.numel()


def test_norms_start_as_one_and_biases_as_zero() -> None:
    """Unless a test wants to see where they are."""
    source, scattered = Drawn(small_model(), 4), Drawn(small_model(), 4, scatter=True)
    assert torch.equal(source.values("final_norm.weight", Part(2, 5), None), torch.ones(3))
    assert torch.equal(source.values("final_norm.bias", Part(2, 5), None), torch.zeros(3))
    assert torch.unique(scattered.values("final_norm.bias", Part(0, 50), None)).numel() == 50

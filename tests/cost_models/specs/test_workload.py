"""The workload assumed when none is given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.specs.catalog import load_model
from cost_models.specs.model import ModelSpec
from cost_models.specs.workload import default_workload
from tests.strategies import model_specs


@pytest.mark.parametrize(
    ("model", "gpus", "seq_len", "global_batch"),
    [
        ("llama3-70b", 256, 8192, 512),
        ("llama3.1-405b", 16384, 8192, 2048),
        ("llama2-7b", 8, 4096, 1024),
        ("gpt3-175b", 1, 2048, 2048),
    ],
)
def test_defaults_match_values_worked_out_by_hand(model: str, gpus: int, seq_len: int, global_batch: int) -> None:
    """Context up to 8192; 4 Mi tokens, or 1 Ki tokens a GPU when that is more."""
    workload = default_workload(load_model(model), gpus)
    assert (workload.seq_len, workload.global_batch) == (seq_len, global_batch)
    assert (workload.precision, workload.optimizer) == ("bf16", "adamw")


@given(model_specs(), st.integers(1, 10_000_000))
def test_the_default_batch_is_within_half_a_sequence_of_its_tokens(model: ModelSpec, gpus: int) -> None:
    """Rounding to sequences moves the batch by at most half a sequence."""
    workload = default_workload(model, gpus)
    wanted = max(4 * 2**20, 1024 * gpus)
    assert workload.seq_len == min(model.max_seq_len, 8192)
    assert abs(workload.tokens - wanted) <= workload.seq_len / 2

"""Rows of kinds that nobody tuned to: each has an answer, and a sane one."""

import pytest

from cost_models.flops import model_flops
from cost_models.specs.parameters import parameters
from planner.evaluate.answers import answers
from tests.planner.evaluate.published import PUBLISHED
from tests.planner.evaluate.rows import GPT, LLAMA, MIXTRAL

pytestmark = pytest.mark.slow

# Model FLOPs over the peak: less than any run that somebody published, more than any machine reaches.
LEAST_MFU, MOST_MFU = 0.02, 0.75
# A full row's answer over that of the row without one column.
NEAR = 2.5
# Without these the row is another run, or none.
NEEDED = {"id", "model", "gpu", "n_gpus", "hidden", "n_layers", "heads", "kv_heads", "ffn", "seq_len", "params_b"}
NEEDED |= {"n_experts"}


@pytest.fixture(scope="module")
def found():
    """The answers of all rows, by their names."""
    return {answer.id: answer for answer in answers(PUBLISHED)}


@pytest.mark.parametrize("name", [row["id"] for row in PUBLISHED])
def test_every_kind_of_run_has_a_sane_answer(found, name):
    """Utilisation is that of a real machine; memory holds the shared-out states and is no multiple of a card's."""
    answer = found[name]
    assert answer.status == "ok", answer.message
    run, costs = answer.run, answer.costs
    gpu = run.cluster.gpu
    mfu = model_flops(run.model, run.workload) / costs.step_time_s / run.cluster.gpus
    mfu /= gpu.peak_flops[run.workload.precision]
    assert LEAST_MFU < mfu < MOST_MFU
    states = sum(getattr(run.recipe, f"{kind}_bytes") for kind in ("weight", "gradient", "master", "moment"))
    assert states * parameters(run.model) / run.cluster.gpus < costs.allocated_bytes < 3 * gpu.usable_memory_bytes


@pytest.mark.parametrize("row", [LLAMA, GPT, MIXTRAL, *PUBLISHED[::6]], ids=lambda row: row["id"])
def test_a_missing_column_costs_accuracy_not_the_answer(row):
    """Whatever column a source leaves out, tokens a second stay within a factor and what was assumed is named."""
    columns = [name for name in row if name not in NEEDED]
    whole, *without = answers([row, *({**row, name: ""} for name in columns)])
    for name, answer in zip(columns, without, strict=True):
        assert answer.status == "ok", (name, answer.message)
        ratio = float(answer.cells()["predicted_tokens_per_s_per_gpu"])
        ratio /= float(whole.cells()["predicted_tokens_per_s_per_gpu"])
        assert 1 / NEAR < ratio < NEAR, name
        if name in ("tp", "precision", "micro_batch", "global_batch_seqs", "framework", "recompute"):
            assert "assumed" in answer.message

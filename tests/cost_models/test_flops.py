"""Model FLOPs against the field's closed forms, and the parameter counts they rest on."""

import pytest

from cost_models.flops import model_flops
from cost_models.specs.catalog import load_model
from cost_models.specs.parameters import parameters
from cost_models.specs.workload import WorkloadSpec

TOTALS = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "qwen2.5-72b": 72_706_203_648,
    # 96 (12 h^2 + 13 h) + (50257 + 2048) h + 2 h, h = 12288: tied, learned positions
    "gpt3-175b": 96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048) * 12288 + 2 * 12288,
}


@pytest.mark.parametrize("name", TOTALS)
def test_parameters_of_known_models(name):
    """Published totals, to the parameter."""
    assert parameters(load_model(name)) == TOTALS[name]


@pytest.mark.parametrize("name", TOTALS)
def test_flops_are_six_a_parameter_and_attention(name):
    """6 N a token, N without look-ups, norms and biases, and 12 L h s a token for attention, half of it when causal."""
    model = load_model(name)
    workload = WorkloadSpec(seq_len=4096, global_batch=512)
    looked_up = model.hidden * model.vocab * (0 if model.tie_embeddings else 1)
    looked_up += model.hidden * model.max_seq_len if model.positions == "learned" else 0
    vectors = (2 * model.layers + 1) * model.hidden * (2 if model.norm == "layernorm" else 1)
    vectors += model.layers * (model.heads + 2 * model.kv_heads) * model.head_dim * model.qkv_bias
    vectors += model.layers * model.hidden * model.attention_output_bias
    vectors += model.layers * (model.ffn * (2 if model.gated_mlp else 1) + model.hidden) * model.mlp_bias
    matrices = parameters(model) - looked_up - vectors
    attention = 12 * model.layers * model.heads * model.head_dim * workload.seq_len
    full = workload.tokens * (6 * matrices + attention)
    causal = workload.tokens * (6 * matrices + attention / 2)
    assert model_flops(model, workload, causal=False) == pytest.approx(full, rel=1e-12)
    assert model_flops(model, workload) == pytest.approx(causal, rel=1e-12)


def test_flops_of_gpt3():
    """Narayanan et al. 2021, equation 3: 72 B s L h^2 (1 + s/6h + V/12hL), which is without recompute."""
    model, workload = load_model("gpt3-175b"), WorkloadSpec(seq_len=2048, global_batch=1536)
    h, s, layers = model.hidden, workload.seq_len, model.layers
    wanted = 72 * workload.global_batch * s * layers * h**2
    wanted *= 1 + s / (6 * h) + model.vocab / (12 * h * layers)
    assert model_flops(model, workload, causal=False) == pytest.approx(wanted, rel=1e-12)


def test_flops_are_proportional_to_the_batch():
    """Twice the sequences are twice the FLOPs."""
    model = load_model("llama3-8b")
    once, twice = (model_flops(model, WorkloadSpec(seq_len=8192, global_batch=batch)) for batch in (64, 128))
    assert twice == 2 * once

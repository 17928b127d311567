"""Model FLOPs against the field's closed forms, and the parameter counts they rest on."""

import pytest

from cost_models.blocks import ZERO
from cost_models.flops import model_flops
from cost_models.layers import chain
from cost_models.specs.catalog import load_model, names
from cost_models.specs.parameters import parameters
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from tests.cost_models.setting import counting_functions, lower_whole, model_columns

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


def counted_flops(model, seq_len):
    """FLOPs of the forward of one sequence on one rank, product by product, attention causal."""
    bound = {name: lambda *sizes: 0.0 * sizes[0] for name in counting_functions()}
    bound["gemm_forward_s"] = lambda rows, columns, inner: 2 * rows * columns * inner
    bound["grouped_gemm_forward_s"] = lambda rows, columns, inner, groups: 2 * rows * columns * inner
    bound["attention_forward_s"] = lambda *sizes: 2 * sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]
    units = chain(model, FrameworkRecipe(name="any", sequence_parallel=False)).units()
    outputs = {name: sum((o.forward_s for o in unit.operators), ZERO) for name, unit in units.items()}
    alone = dict.fromkeys(("tp", "cp", "cp_heads", "ep", "etp", "micro_batch_size", "expert_imbalance"), 1)
    alone |= {"document_mask_imbalance": 1, "cp_ring": 0, "sequence_parallel": 0}
    columns = model_columns(model) | alone | {"seq_len": seq_len, "padded_vocab": model.vocab}
    flops = lower_whole(outputs, bound)(columns)
    return model.layer_pattern.repeats * flops["layer"] + flops["embedding"] + flops["head"]


@pytest.mark.parametrize("name", names("models"))
def test_flops_are_those_of_the_operators(name):
    """A third of the model FLOPs, the forward, are the products of the chain: experts, latents and windows included."""
    model = load_model(name)
    for seq_len in (4096, 20_000):
        workload = WorkloadSpec(seq_len=seq_len, global_batch=1)
        assert counted_flops(model, seq_len) == pytest.approx(model_flops(model, workload) / 3, rel=1e-12)


def causal_pairs(seq_len, window, kind):
    """Queries and keys that meet, counted one query at a time."""
    if kind == "chunked":
        return sum(query % window + 1 for query in range(seq_len))
    return sum(min(query + 1, window) for query in range(seq_len))


@pytest.mark.parametrize("kind", ["sliding", "chunked"])
@pytest.mark.parametrize(("seq_len", "window"), [(1024, 4096), (4096, 4096), (4096, 512), (5000, 768)])
def test_windows_count_their_pairs(kind, seq_len, window):
    """What a window leaves of the attention is its causal pairs, half of the diagonal apart."""
    plain = load_model("llama3-8b")
    model = plain.replaced(sliding_window=window, window_kind=kind)
    workload = WorkloadSpec(seq_len=seq_len, global_batch=1)
    without = model_flops(plain, workload) - 6 * plain.layers * seq_len**2 * plain.heads * plain.head_dim
    pairs = (model_flops(model, workload) - without) / (12 * plain.layers * plain.heads * plain.head_dim)
    assert pairs == pytest.approx(causal_pairs(seq_len, window, kind), abs=seq_len / 2 + 1)


def test_flops_of_deepseek_v3():
    """Latent attention and experts written out: 61 layers, three of them dense, heads of 192 and 128."""
    model, workload = load_model("deepseek-v3").replaced(mtp_layers=0), WorkloadSpec(seq_len=4096, global_batch=1)
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    experts = 3 * 7168 * 2048 * 9 + 7168 * 256
    matrices = 61 * attention + 3 * 3 * 7168 * 18432 + 58 * experts + 7168 * 129280
    scores = 61 * 128 * (192 + 128) * 4096
    assert model_flops(model, workload) == pytest.approx(4096 * (6 * matrices + 3 * scores), rel=1e-12)


def test_flops_are_proportional_to_the_batch():
    """Twice the sequences are twice the FLOPs."""
    model = load_model("llama3-8b")
    once, twice = (model_flops(model, WorkloadSpec(seq_len=8192, global_batch=batch)) for batch in (64, 128))
    assert twice == 2 * once

"""Rooflines: monotone in every size, their two regimes, and the attention's fall with few heads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.kernels import bind
from cost_models.specs.catalog import load_gpu, load_profile, names
from tests.cost_models.setting import CLUSTER, PROFILE, RECIPES

GPU = CLUSTER.gpu
BOUND = bind(GPU, PROFILE, RECIPES["megatron"], "bf16")
SIZES = {
    "gemm_forward_s": 3,
    "gemm_input_grad_s": 3,
    "gemm_weight_grad_s": 3,
    "attention_forward_s": 5,
    "attention_backward_s": 5,
    "grouped_gemm_forward_s": 4,
    "grouped_gemm_input_grad_s": 4,
    "grouped_gemm_weight_grad_s": 4,
    "elementwise_s": 1,
    "launch_s": 1,
}


@pytest.mark.parametrize("name", SIZES)
@given(data=st.data())
def test_monotone_in_every_size(name, data):
    """No size makes an operator faster by growing."""
    sizes = [float(data.draw(st.integers(1, 200_000))) for _ in range(SIZES[name])]
    index, more = data.draw(st.integers(0, len(sizes) - 1)), data.draw(st.integers(1, 1000))
    larger = [size + more * (position == index) for position, size in enumerate(sizes)]
    assert BOUND[name](*larger) >= BOUND[name](*sizes) * (1 - 1e-12)


def test_large_products_reach_the_sustained_rate():
    """A large GEMM runs at peak * fraction * sustained; a thin one is bound by memory."""
    n = 16384.0
    rate = GPU.peak_flops["bf16"] * PROFILE.gemm["bf16"].peak_fraction * PROFILE.sustained_fraction
    assert BOUND["gemm_forward_s"](n, n, n) == pytest.approx(2 * n**3 / rate + PROFILE.gemm["bf16"].launch_s)
    bandwidth = GPU.memory_bandwidth_bytes_per_s * PROFILE.gemm["bf16"].bandwidth_fraction
    thin = 2 * (n + n * n + n) / bandwidth + PROFILE.gemm["bf16"].launch_s
    assert BOUND["gemm_forward_s"](1.0, n, n) == pytest.approx(thin)


def test_fp8_products_write_bf16_and_leave_attention_alone():
    """fp8 halves operands and not outputs; attention stays in bf16."""
    fp8 = bind(GPU, PROFILE, RECIPES["megatron"], "fp8")
    constants, n = PROFILE.gemm["fp8"], 4096.0
    bandwidth = GPU.memory_bandwidth_bytes_per_s * constants.bandwidth_fraction
    assert fp8["gemm_forward_s"](n, n, 1.0) == pytest.approx((2 * n + 2 * n * n) / bandwidth + constants.launch_s)
    sizes = (1.0, 32.0, n, n, 128.0)
    assert fp8["attention_forward_s"](*sizes) == BOUND["attention_forward_s"](*sizes)


def test_the_weight_gradient_accumulates():
    """The weight gradient reads and writes the accumulator, in the recipe's width."""
    n, constants = 8192.0, PROFILE.gemm["bf16"]
    bandwidth = GPU.memory_bandwidth_bytes_per_s * constants.bandwidth_fraction
    for recipe, accumulator in (("megatron", 8), ("before flash", 4)):
        body = bind(GPU, PROFILE, RECIPES[recipe], "bf16")["gemm_weight_grad_s"]
        wanted = (2 * 2 * n + accumulator * n * n) / bandwidth + constants.launch_s
        assert body(n, n, 1.0) == pytest.approx(wanted)


@pytest.mark.parametrize("name", names("profiles"))
def test_attention_efficiency_falls_for_few_heads(name):
    """With TP 8 of 32 heads at 4k the rate falls by more than a quarter on every GPU, and never rises."""
    profile = load_profile(name)
    gpu = load_gpu(profile.gpu)
    body = bind(gpu, profile, RECIPES["megatron"], "bf16")["attention_forward_s"]
    heads = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    launch = profile.gemm["bf16"].launch_s
    rate = heads / (body(1.0, heads, 4096.0, 4096.0, 128.0) - launch)
    assert np.all(np.diff(rate) >= -1e-9 * rate[1:])
    tiles_when_full = profile.attention.tiles_per_multiprocessor * gpu.streaming_multiprocessors
    assert rate[2] / rate[-1] == pytest.approx(min(1, 4 * 32 / tiles_when_full))


def test_attention_follows_the_published_h100_points():
    """Causal forward efficiency on H100 (batch 1, head size 128, isolated) within 20 % of aiconfigurator's table."""
    body = bind(GPU, PROFILE.replaced(sustained_fraction=1.0), RECIPES["megatron"], "bf16")["attention_forward_s"]
    measured = {
        (16, 4096): 0.54,
        (32, 4096): 0.55,
        (64, 4096): 0.57,
        (32, 8192): 0.64,
        (64, 8192): 0.65,
        (4, 4096): 0.28,
    }
    for (heads, length), share in measured.items():
        flops = 2 * heads * length**2 * 128
        seconds = body(1.0, float(heads), float(length), float(length), 128.0)
        assert flops / seconds / GPU.peak_flops["bf16"] == pytest.approx(share, rel=0.2), (heads, length)


@pytest.mark.parametrize(
    ("hidden", "inner", "experts", "top_k", "shares"),
    [
        (7168.0, 2048.0, 256.0, 8, (0.097, 0.33, 0.69)),  # DeepSeek-V3: 32, 128, 512 tokens an expert
        (4096.0, 14336.0, 8.0, 2, (0.58, 0.83, 0.82)),  # Mixtral 8x7B
        (2048.0, 768.0, 128.0, 8, (0.15, 0.40, 0.50)),  # Qwen3-30B-A3B
    ],
)
def test_experts_follow_the_published_h100_points(hidden, inner, experts, top_k, shares):
    """Experts of 1k, 4k and 16k tokens on H100 (products and activation, isolated) within 30 % of aiconfigurator."""
    bound = bind(GPU, PROFILE.replaced(sustained_fraction=1.0), RECIPES["megatron"], "bf16")
    for tokens, share in zip((1024, 4096, 16384), shares, strict=True):
        rows = tokens * top_k
        seconds = bound["grouped_gemm_forward_s"](rows, 2 * inner, hidden, experts)
        seconds += bound["elementwise_s"](2 * rows * 3 * inner)
        seconds += bound["grouped_gemm_forward_s"](rows, hidden, inner, experts)
        flops = 6 * rows * hidden * inner
        assert flops / seconds / GPU.peak_flops["bf16"] == pytest.approx(share, rel=0.3), tokens


def test_one_group_of_many_tokens_is_a_plain_product():
    """With one group and many tokens a grouped product costs what a plain one does; few tokens pay for whole tiles."""
    for name in ("forward", "input_grad", "weight_grad"):
        grouped, plain = BOUND[f"grouped_gemm_{name}_s"], BOUND[f"gemm_{name}_s"]
        assert grouped(262144.0, 262144.0, 262144.0, 1.0) == pytest.approx(plain(262144.0, 262144.0, 262144.0), 1e-3)
        assert grouped(4096.0, 4096.0, 4096.0, 64.0) > plain(4096.0, 4096.0, 4096.0)


def test_nothing_to_move_takes_no_time():
    """An elementwise operator without bytes, and graphs' launches, are free."""
    assert BOUND["elementwise_s"](0.0) == 0.0
    assert BOUND["launch_s"](10.0) == pytest.approx(10 * PROFILE.host_launch_s)
    assert bind(GPU, PROFILE, RECIPES["megatron"].replaced(cuda_graphs=True), "bf16")["launch_s"](10.0) == 0.0

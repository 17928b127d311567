"""Rooflines and tables: monotone in every size, continuous, true to what was measured, honest about what was not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.kernels import bind, coverage
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
    """The weight gradient reads and writes the accumulator where it is fused, else it writes a product in two bytes."""
    n, constants = 8192.0, PROFILE.gemm["bf16"]
    bandwidth = GPU.memory_bandwidth_bytes_per_s * constants.bandwidth_fraction
    for recipe, accumulator in (("megatron", 8), ("before flash", 2)):
        body = bind(GPU, PROFILE, RECIPES[recipe], "bf16")["gemm_weight_grad_s"]
        wanted = (2 * 2 * n + accumulator * n * n) / bandwidth + constants.launch_s
        assert body(n, n, 1.0) == pytest.approx(wanted)


@pytest.mark.parametrize("name", names("profiles"))
def test_attention_efficiency_falls_for_few_heads(name):
    """With TP 8 of 32 heads at 4k the rate falls by more than a quarter on every GPU, and never rises."""
    profile = load_profile(name).replaced(tables=None)
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


TABLED = [name for name in names("profiles") if load_profile(name).tables]
MEASURED = ["a100-40-sxm", "a100-80-sxm", "b200", "b300", "gb200", "h100-sxm", "h200", "l4", "l40s"]


def on(name, dtype="bf16", **changes):
    """The bodies of a catalog profile, in bf16 where the GPU has no such data type."""
    profile = load_profile(name).replaced(**changes)
    return bind(load_gpu(profile.gpu), profile, RECIPES["megatron"], dtype if dtype in profile.gemm else "bf16")


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("name", TABLED)
def test_tables_are_monotone_in_every_size(name, dtype):
    """No size makes an operator faster by growing, within a table, across its border and beyond."""
    rng, bound = np.random.default_rng(7), on(name, dtype)
    for operator, count in SIZES.items():
        sizes = [np.floor(2 ** rng.uniform(0, 19, 4000)) for _ in range(count)]
        for index in range(count):
            larger = list(sizes)
            larger[index] = np.floor(sizes[index] * rng.choice([1.01, 1.3, 2, 5], 4000)) + 1
            shorter = bound[operator](*larger) < bound[operator](*sizes) * (1 - 1e-9)
            assert not np.any(shorter), (operator, index)


def test_tables_have_no_jumps():
    """Along each size the time goes up by no more than the size to the power of two (keys, and little else)."""
    bound = on("h100-sxm")
    for operator, sizes in {
        "gemm_forward_s": (4096.0, 4096.0, 4096.0),
        "grouped_gemm_forward_s": (16384.0, 4096.0, 4096.0, 16.0),
        "attention_forward_s": (1.0, 16.0, 4096.0, 4096.0, 128.0),
        "attention_backward_s": (1.0, 16.0, 4096.0, 4096.0, 128.0),
    }.items():
        for index in range(len(sizes)):
            factors = np.geomspace(1 / 1024, 1024, 20001)
            steps = [size * factors if place == index else size for place, size in enumerate(sizes)]
            ratios = np.diff(np.log(bound[operator](*steps))) / np.diff(np.log(factors))
            assert np.all(ratios < 2.01), (operator, index)


def test_beyond_a_table_its_border_holds():
    """Far beyond the measured sizes a product takes the rate of the border: twice the columns, twice the time."""
    bound, launch = on("h100-sxm"), load_profile("h100-sxm").gemm["bf16"].launch_s
    once, twice = (bound["gemm_forward_s"](8192.0, columns, 8192.0) - launch for columns in (1e6, 2e6))
    assert twice == pytest.approx(2 * once)


def test_a_table_keeps_the_level_of_the_constants():
    """Over usual training shapes the three passes of a step take what the constants say, within 4 %."""
    rng = np.random.default_rng(3)
    tokens = 2.0 ** rng.integers(11, 15, 3000)
    sides = [1024.0 * rng.integers(1, 17, 3000) for _ in range(2)]
    for name in MEASURED:
        tabled, constant = on(name), on(name, tables=None)
        passes = {"forward": (tokens, *sides), "input_grad": (tokens, *sides), "weight_grad": (*sides, tokens)}
        ratios = [np.median(tabled[f"gemm_{p}_s"](*s) / constant[f"gemm_{p}_s"](*s)) for p, s in passes.items()]
        assert np.mean(ratios) == pytest.approx(1, abs=0.04), name


def test_a_level_that_is_calibrated_moves_tables_too():
    """Half the sustained rate doubles what arithmetic takes, from a table as from constants."""
    sizes, launch = (8192.0, 8192.0, 8192.0), load_profile("h100-sxm").gemm["bf16"].launch_s
    whole, half = (on("h100-sxm", sustained_fraction=share)["gemm_forward_s"](*sizes) - launch for share in (0.8, 0.4))
    assert half == pytest.approx(2 * whole)


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("h100-sxm", {(4, 4096): 0.28, (8, 4096): 0.51, (64, 2048): 0.47, (32, 8192): 0.64, (64, 8192): 0.65}),
        ("a100-80-sxm", {(4, 2048): 0.18, (8, 4096): 0.40, (16, 8192): 0.60, (64, 4096): 0.63, (64, 8192): 0.65}),
        ("b200", {(4, 2048): 0.06, (4, 4096): 0.13, (16, 4096): 0.33, (32, 8192): 0.58, (64, 4096): 0.47}),
    ],
)
def test_attention_tables_follow_the_published_points(name, points):
    """Causal forward efficiency (batch 1, head size 128, isolated) within 15 % of aiconfigurator's published ones."""
    body, peak = on(name, sustained_fraction=1.0)["attention_forward_s"], load_gpu(name).peak_flops["bf16"]
    for (heads, length), share in points.items():
        seconds = body(1.0, float(heads), float(length), float(length), 128.0)
        assert 2 * heads * length**2 * 128 / seconds / peak == pytest.approx(share, rel=0.15), (heads, length)


def test_backward_attention_follows_the_b200_points():
    """SimuMax's causal backward on B200 at length 4096, 64 to 4 heads, within 12 %: it loses less to few heads."""
    body = on("b200", sustained_fraction=1.0)["attention_backward_s"]
    for heads, share in {64: 0.365, 32: 0.395, 16: 0.374, 8: 0.323, 4: 0.172}.items():
        seconds = body(1.0, float(heads), 4096.0, 4096.0, 128.0)
        reached = 5 * heads * 4096**2 * 128 / seconds / 2250e12
        assert reached == pytest.approx(share, rel=0.12), heads


@pytest.mark.parametrize("name", names("profiles"))
def test_coverage_tells_measured_shapes_from_others(name):
    """A usual product is covered on the measured GPUs only, one beyond the table on none; constants never are."""
    profile = load_profile(name)
    share = coverage(load_gpu(name), profile, "bf16")
    assert set(share) == set(bind(load_gpu(name), profile, RECIPES["megatron"], "bf16"))
    tokens = np.array([4096.0, 4096.0])
    usual, beyond = share["gemm_forward_s"](tokens, 4096.0, 4096.0), share["gemm_forward_s"](tokens, 1e9, 4096.0)
    assert usual.tolist() == [float(name in MEASURED)] * 2
    assert beyond.tolist() == [0.0, 0.0]
    assert share["elementwise_s"](tokens).tolist() == [0.0, 0.0]
    attention = share["attention_forward_s"](1.0, 32.0, np.array([4096.0, 1e6]), np.array([4096.0, 1e6]), 128.0)
    assert attention.tolist() == [float(name in MEASURED and name != "l4"), 0.0]


def test_coverage_counts_no_pass_that_was_carried_over():
    """H100's weight gradient and backward attention take another GPU's shape; B200's were measured."""
    for name, measured in (("h100-sxm", 0.0), ("b200", 1.0)):
        share = coverage(load_gpu(name), load_profile(name), "bf16")
        assert share["gemm_weight_grad_s"](4096.0, 4096.0, 8192.0) == measured
        assert share["attention_backward_s"](1.0, 32.0, 4096.0, 4096.0, 128.0) == measured
        assert share["grouped_gemm_forward_s"](65536.0, 4096.0, 4096.0, 64.0) == measured
        assert share["grouped_gemm_weight_grad_s"](4096.0, 4096.0, 65536.0, 64.0) == measured
    assert coverage(GPU, PROFILE, "bf16")["gemm_forward_s"](4096.0, 4096.0, 4096.0) == 0.0

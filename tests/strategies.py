"""Hypothesis strategies for specs: models, GPUs, clusters and workloads of plausible shape, small enough to search."""

from hypothesis import strategies as st

from cost_models.specs.cluster import ClusterSpec, NetworkTier
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.mla import MlaSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.moe import MoeSpec
from cost_models.specs.workload import WorkloadSpec


@st.composite
def model_specs(draw: st.DrawFn, max_layers: int = 96) -> ModelSpec:
    """Draw a dense transformer; heads, widths and depth vary freely, odd ones included."""
    kv_heads = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16]))
    return ModelSpec(
        name="drawn",
        layers=draw(st.integers(1, max_layers)),
        hidden=draw(st.integers(1, 128)) * 64,
        ffn=draw(st.integers(1, 512)) * 64,
        heads=kv_heads * draw(st.sampled_from([1, 2, 3, 4, 8])),
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([32, 64, 80, 128, 256])),
        vocab=draw(st.integers(100, 260_000)),
        max_seq_len=draw(st.sampled_from([1000, 2048, 8192, 131_072])),
        gated_mlp=draw(st.booleans()),
        norm=draw(st.sampled_from(["rmsnorm", "layernorm"])),
        qkv_bias=draw(st.booleans()),
        attention_output_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
        positions=draw(st.sampled_from(["rope", "learned"])),
        tie_embeddings=draw(st.booleans()),
    )


@st.composite
def moe_specs(draw: st.DrawFn, layers: int) -> MoeSpec:
    """Draw experts for a model of some layers, at least one of which has them."""
    experts, shared = draw(st.sampled_from([2, 8, 16, 60, 256])), draw(st.integers(0, 2))
    leading = draw(st.integers(0, min(3, layers - 1)))
    return MoeSpec(
        experts=experts,
        top_k=draw(st.integers(1, min(8, experts))),
        expert_ffn=draw(st.integers(1, 64)) * 64,
        shared_experts=shared,
        shared_ffn=shared * 64 * draw(st.integers(1, 64)),
        shared_expert_gate=draw(st.booleans()) and shared > 0,
        leading_dense_layers=leading,
        layer_step=draw(st.integers(1, min(4, layers - leading))),
        router_bias=draw(st.booleans()),
        expert_bias=draw(st.booleans()),
    )


@st.composite
def mla_specs(draw: st.DrawFn) -> MlaSpec:
    """Draw latent attention, with and without a query latent."""
    return MlaSpec(
        query_rank=draw(st.sampled_from([0, 96, 1536])),
        kv_rank=draw(st.sampled_from([64, 512])),
        nope_head_dim=draw(st.sampled_from([32, 128])),
        rope_head_dim=draw(st.sampled_from([16, 64])),
        value_head_dim=draw(st.sampled_from([32, 128])),
    )


@st.composite
def any_model_specs(draw: st.DrawFn, max_layers: int = 96) -> ModelSpec:
    """Draw a model of any kind: dense or with experts, heads or latents, windows, parallel blocks, odd norms."""
    dense = draw(model_specs(max_layers=max_layers))
    changes: dict[str, object] = {"mtp_layers": draw(st.integers(0, 2)), "embedding_norm": draw(st.booleans())}
    if draw(st.booleans()):
        changes["moe"] = draw(moe_specs(dense.layers))
    if draw(st.booleans()):
        mla = draw(mla_specs())
        changes |= {"mla": mla, "kv_heads": dense.heads, "head_dim": mla.query_head_dim, "qkv_bias": False}
    else:
        changes["qk_norm"] = draw(st.sampled_from(["none", "head", "projection"]))
    if draw(st.booleans()):
        changes |= {
            "sliding_window": draw(st.sampled_from([128, 1024, 4096])),
            "window_kind": draw(st.sampled_from(["sliding", "chunked"])),
            "full_attention_step": draw(st.sampled_from([0, 2, 4, 6])),
        }
    if draw(st.booleans()):
        changes |= {"parallel_block": True, "shared_norm": draw(st.booleans())}
    else:
        changes["norm_placement"] = draw(st.sampled_from(["before", "after", "both"]))
    return dense.replaced(**changes)


@st.composite
def gpu_specs(draw: st.DrawFn) -> GpuSpec:
    """Draw a GPU between an L4 and a B200."""
    memory_bytes = draw(st.integers(16, 192)) * 10**9
    bf16_flops = draw(st.floats(100e12, 2500e12))
    return GpuSpec(
        name="drawn",
        nominal_memory_bytes=memory_bytes,
        usable_memory_bytes=memory_bytes,
        memory_bandwidth_bytes_per_s=draw(st.floats(300e9, 8e12)),
        peak_flops={"bf16": bf16_flops, "fp8": 2 * bf16_flops},
        streaming_multiprocessors=draw(st.integers(50, 160)),
        nvlink_bandwidth_bytes_per_s=draw(st.sampled_from([0.0, 300e9, 450e9, 900e9])),
        pcie_bandwidth_bytes_per_s=draw(st.sampled_from([32e9, 64e9])),
        power_w=draw(st.floats(50, 1200)),
    )


@st.composite
def cluster_specs(draw: st.DrawFn, max_nodes: int = 16) -> ClusterSpec:
    """Draw a cluster of up to `max_nodes` nodes of 1 to 8 GPUs, the last node possibly part-filled."""
    gpu, gpus_per_node = draw(gpu_specs()), draw(st.sampled_from([1, 2, 4, 8]))
    inner = NetworkTier(
        name="inner",
        kind="nvlink" if gpu.nvlink_bandwidth_bytes_per_s else "pcie",
        domain_gpus=gpus_per_node,
        link_bandwidth_bytes_per_s=gpu.nvlink_bandwidth_bytes_per_s or gpu.pcie_bandwidth_bytes_per_s,
        links_per_gpu=1.0,
        latency_s=3e-6,
    )
    outer = NetworkTier(
        name="outer",
        kind="network",
        link_bandwidth_bytes_per_s=draw(st.sampled_from([12.5e9, 25e9, 50e9])),
        links_per_gpu=draw(st.sampled_from([0.125, 0.5, 1.0])),
        latency_s=14e-6,
        oversubscription=draw(st.sampled_from([1.0, 2.0, 7.0])),
    )
    return ClusterSpec(
        name="drawn",
        gpu=gpu,
        gpus=draw(st.integers(1, max_nodes * gpus_per_node)),
        gpus_per_node=gpus_per_node,
        tiers=(inner, outer),
        host_memory_bytes=draw(st.integers(1, 4096)) * 2**30,
        host_to_device_bandwidth_bytes_per_s=draw(st.floats(4e9, 60e9)),
    )


@st.composite
def workload_specs(draw: st.DrawFn, max_seq_len: int = 131_072) -> WorkloadSpec:
    """Draw a workload; batches need not divide by anything."""
    return WorkloadSpec(
        seq_len=draw(st.integers(1, max_seq_len // 128)) * 128,
        global_batch=draw(st.integers(1, 4096)),
        precision=draw(st.sampled_from(["bf16", "fp8"])),
    )

"""A hand-written plan document: Llama-3-70B on 256 H100, close to what the search answers, made without it."""

from typing import Any

from cost_models.specs.cluster import ClusterSpec, NetworkTier
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.document import (
    Alternative,
    Certificate,
    Chunk,
    Digests,
    LauncherAnswer,
    MemoryByCause,
    Parallelism,
    PeakMemory,
    PlanDocument,
    Prediction,
    Recompute,
    Stage,
    StagePrediction,
)

GIB = 2.0**30
PP, VPP, CHUNK_LAYERS = 4, 5, 4
CAPACITY_BYTES = 79.1 * GIB

MODEL = ModelSpec(
    name="llama3-70b",
    layers=80,
    hidden=8192,
    ffn=28672,
    heads=64,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    max_seq_len=8192,
)
GPU = GpuSpec(
    name="h100-sxm",
    nominal_memory_bytes=80_000_000_000,
    usable_memory_bytes=84_930_000_000,
    memory_bandwidth_bytes_per_s=3.35e12,
    peak_flops={"bf16": 989.4e12, "fp8": 1978.9e12},
    streaming_multiprocessors=132,
    nvlink_bandwidth_bytes_per_s=450e9,
    pcie_bandwidth_bytes_per_s=64e9,
    power_w=700,
)
CLUSTER = ClusterSpec(
    name="dgx-h100",
    gpu=GPU,
    gpus=256,
    gpus_per_node=8,
    tiers=(
        NetworkTier(
            name="nvlink",
            kind="nvlink",
            domain_gpus=8,
            link_bandwidth_bytes_per_s=25e9,
            links_per_gpu=18,
            latency_s=1e-6,
        ),
        NetworkTier(
            name="infiniband",
            kind="network",
            domain_gpus=None,
            link_bandwidth_bytes_per_s=50e9,
            links_per_gpu=1,
            latency_s=5e-6,
        ),
    ),
    host_memory_bytes=2_000_000_000_000,
    host_to_device_bandwidth_bytes_per_s=50e9,
)
WORKLOAD = WorkloadSpec(seq_len=8192, global_batch=512)

PARALLELISM = Parallelism(
    tp=4,
    sequence_parallel=True,
    pp=PP,
    vpp=VPP,
    dp=16,
    dp_shard=16,
    micro_batch_size=1,
    num_microbatches=32,
    schedule="interleaved",
    group_size=4,
    gpus_used=256,
)


def sample_document(**changes: Any) -> PlanDocument:
    """The sample, with some of its top-level parts changed; changed parts are checked like all others."""
    stages = tuple(_stage(rank) for rank in range(PP))
    fullest = max((stage.predicted for stage in stages), key=lambda predicted: predicted.device_bytes)
    parts: dict[str, Any] = {
        "tool_version": "0.1.0",
        "digests": Digests(profile="5f0c1d2e", catalog="9a7b3c4d"),
        "model": MODEL,
        "cluster": CLUSTER,
        "workload": WORKLOAD,
        "recipe": FrameworkRecipe(name="megatron"),
        "parallelism": PARALLELISM,
        "stages": stages,
        "predicted": _prediction(fullest),
        "certificate": Certificate(
            status="OPTIMAL",
            objective_s=15.6217,
            bound_s=15.5738,
            gap=1 - 15.5738 / 15.6217,
            method="best first, dynamic program, simulated",
            layouts=1184,
            rows=286_512,
        ),
        "assumptions": (
            "80GB of h100-sxm is read as its usable 79.1 GiB.",
            "256 GPUs without --cluster are 32 dgx-h100 nodes of 8.",
            "The sequence length is the model's context, 8,192 tokens.",
            "The global batch is 4 Mi tokens: 512 sequences.",
        ),
        "alternatives": _alternatives(),
        "launchers": {
            "megatron": LauncherAnswer(expressible=True, best_step_time_s=15.6217),
            "torchtitan": LauncherAnswer(
                expressible=False, why_not=("interleaving needs chunks of equal depth",), best_step_time_s=16.2
            ),
        },
        "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    }
    return PlanDocument(**{**parts, **changes})


def sample_v_document() -> PlanDocument:
    """The sample with layers that go down the ranks in one chunk and come back up in another."""
    layers = 10
    stages = tuple(
        _stage(rank).replaced(
            chunks=tuple(Chunk(first_layer=stage * layers, layers=layers) for stage in (rank, 2 * PP - 1 - rank)),
            has_head=rank == 0,
        )
        for rank in range(PP)
    )
    return sample_document(
        stages=stages, parallelism=PARALLELISM.replaced(vpp=2, schedule="zb-v", group_size=0), alternatives=()
    )


def _stage(rank: int) -> Stage:
    chunks = tuple(Chunk(first_layer=(chunk * PP + rank) * CHUNK_LAYERS, layers=CHUNK_LAYERS) for chunk in range(VPP))
    last = rank == PP - 1
    memory = MemoryByCause(
        weights=(8.6 + 0.5 * (rank in (0, PP - 1))) * GIB,
        gradients=17.2 * GIB,
        master_weights=1.1 * GIB,
        moments=2.2 * GIB,
        activations=(27.4 - 1.9 * rank) * GIB,
        logits_and_loss=2.5 * GIB * last,
        workspace=1.2 * GIB,
        pipeline_buffers=0.2 * GIB,
        communicators=2.1 * GIB,
        context=0.6 * GIB,
        fragmentation=3.4 * GIB,
    )
    device = memory.total_bytes
    reserved = device - memory.context - memory.communicators
    return Stage(
        chunks=chunks,
        layers=VPP * CHUNK_LAYERS,
        has_embedding=rank == 0,
        has_head=last,
        zero_stage=1,
        recompute=Recompute(set=("core_attention",), layers=10) if rank < 2 else Recompute(),
        predicted=StagePrediction(
            forward_s=0.128 + 0.009 * last,
            input_grad_s=0.139 + 0.012 * (rank < 2),
            weight_grad_s=0.131 + 0.009 * last,
            first_s=0.021,
            last_s=0.043,
            memory_bytes=memory,
            allocated_bytes=reserved - memory.fragmentation,
            reserved_bytes=reserved,
            device_bytes=device,
        ),
    )


def _prediction(fullest: StagePrediction) -> Prediction:
    return Prediction(
        step_time_s=15.6217,
        step_time_low_s=14.8406,
        step_time_high_s=16.4028,
        tokens_per_s_per_gpu=4_194_304 / 15.6217 / 256,
        mfu=0.4572,
        mfu_full_attention=0.4861,
        time_breakdown_s={
            "compute": 11.9137,
            "tensor_parallel": 1.6021,
            "pipeline_bubble": 1.2482,
            "pipeline_hops": 0.1871,
            "recompute": 0.3841,
            "data_parallel": 0.2014,
            "optimizer": 0.0851,
        },
        peak_memory_bytes=PeakMemory(
            allocated=fullest.allocated_bytes,
            reserved=fullest.reserved_bytes,
            device=fullest.device_bytes,
            capacity=CAPACITY_BYTES,
            low=fullest.device_bytes * 0.94,
            high=fullest.device_bytes * 1.06,
            breakdown=fullest.memory_bytes,
        ),
        verdict="yes",
        measured_share=0.82,
    )


def _alternatives() -> tuple[Alternative, ...]:
    def other(step_time_s: float, device_gib: float, recompute: str = "none", **degrees: Any) -> Alternative:
        return Alternative(
            parallelism=PARALLELISM.replaced(**degrees),
            step_time_s=step_time_s,
            slower_by=step_time_s / 15.6217 - 1,
            device_bytes=device_gib * GIB,
            zero_stage="1",
            recompute=recompute,
            tie=step_time_s < 16.4,
        )

    return (
        other(15.81, 61.7, tp=8, dp=8, dp_shard=8, num_microbatches=64),
        other(16.02, 72.9, "core_attention 80/80", vpp=1, schedule="1f1b", group_size=0),
        other(17.44, 73.8, "full 12/80", pp=2, dp=32, dp_shard=32, num_microbatches=16),
    )

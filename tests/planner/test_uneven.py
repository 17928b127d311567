"""Counts that do not divide: layers, GPUs, nodes, micro-batches; and NVLink domains wider than a node."""

from itertools import product

import numpy as np
import pytest

from planner.document import PlanDocument
from planner.fitting import MARGIN
from planner.fixed import FixedStage, fixed_candidate, stages_of
from planner.incumbent import Search
from planner.predict import CostModel
from planner.request import PlanRequest, build_request
from planner.search import plan, searched
from planner.space import layouts, meshes

ODD_SHAPE = ["model.hidden=896", "model.heads=7", "model.kv_heads=7", "model.ffn=2048", "model.vocab=32000"]


def pipeline_of(layers: int, pp: int, **fixed: int) -> PlanRequest:
    """A model of so many small layers on as many GPUs as ranks, none of which can share a layer."""
    overrides = [*ODD_SHAPE, f"model.layers={layers}"]
    request = build_request("llama3-8b", pp, "80GB", global_batch=3 * pp, seq_len="1k", overrides=overrides)
    return request.replaced(fixed={"pp": pp, **fixed}, gap=0.0)


@pytest.mark.parametrize(("layers", "pp"), [(61, 4), (126, 8), (46, 4), (27, 4), (61, 8), (27, 8)])
def test_layers_that_do_not_divide_are_dealt_at_their_best(layers: int, pp: int) -> None:
    """All are dealt; no split that moves a layer between two stages, all else the same, takes less."""
    request = pipeline_of(layers, pp, vpp=1, num_microbatches=3 * pp)
    best = searched(Search(CostModel(request))).best
    assert best is not None
    stages = stages_of(best)
    counts = [stage.layers for stage in stages]
    assert sum(counts) == layers
    assert max(counts) > min(counts)
    for one, other in product(range(pp), repeat=2):
        if one != other and counts[one] > 1:
            moved = [
                FixedStage(count + (at == other) - (at == one), stage.zero)
                for at, (count, stage) in enumerate(zip(counts, stages, strict=True))
            ]
            assert fixed_candidate(CostModel(request), best.pipeline.layout, moved).objective_s >= best.objective_s * (
                1 - 1e-9
            )


@pytest.mark.parametrize("layers", [61, 46])
def test_chunks_of_layers_that_do_not_divide(layers: int) -> None:
    """Interleaved, chunks differ by one layer at most on a rank, and the whole model is there."""
    document = plan(pipeline_of(layers, 4, vpp=3).replaced(gap=0.02))
    assert sum(stage.layers for stage in document.stages) == layers
    for stage in document.stages:
        sizes = [chunk.layers for chunk in stage.chunks]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("model", "layers"), [("deepseek-v3", 61), ("gemma2-27b", 46), ("deepseek-v2-lite", 27)])
def test_published_models_of_odd_depth_have_layouts_of_many_depths(model: str, layers: int) -> None:
    """Pipelines of ranks that do not divide the depth are legal, and are among the layouts."""
    request = build_request(model, 64, gpu="h100", global_batch=64)
    assert request.model.layers == layers
    depths = set(meshes(request)["pp"].tolist())
    assert {2, 4, 8} <= depths
    assert any(layers % depth for depth in depths)


def check(document: PlanDocument, request: PlanRequest) -> None:
    """All GPUs are used or idle, the batch is whole, and it fits."""
    layout = document.parallelism
    assert layout.gpus_used + layout.gpus_idle == request.cluster.gpus
    assert layout.dp * layout.micro_batch_size * layout.num_microbatches == request.workload.global_batch
    assert document.predicted.peak_memory_bytes.device * (1 + MARGIN) <= request.capacity_bytes


@pytest.mark.parametrize(
    ("gpus", "gpus_per_node", "batch"), [(7, 7, 21), (9, 3, 36), (15, 5, 45), (12, 6, 18), (14, 8, 28), (11, 4, 22)]
)
def test_odd_nodes_and_numbers_of_gpus_plan(gpus: int, gpus_per_node: int, batch: int) -> None:
    """With micro-batches of every divisor of what a rank is dealt, powers of two or not."""
    request = build_request(
        "llama3.2-1b", gpus, "80GB", gpus_per_node=gpus_per_node, global_batch=batch, seq_len="2k", gap=0.02
    )
    check(plan(request), request)
    columns = layouts(request, meshes(request))
    for dp in np.unique(columns["dp"]).tolist():
        sizes = set(columns["micro_batch_size"][columns["dp"] == dp].tolist())
        assert sizes == {size for size in range(1, batch // dp + 1) if batch // dp % size == 0}
    assert np.any(np.bitwise_count(columns["micro_batch_size"]) > 1)


def test_a_domain_wider_than_a_node_is_one_for_tensor_parallelism() -> None:
    """NVL72: TP of 8 and more spans nodes of 4 GPUs over NVLink, and is no dearer there than nodes would make it."""
    request = build_request("llama3-70b", 72, gpu="gb200", global_batch=72, gap=0.02)
    assert (request.cluster.gpus_per_node, request.cluster.tiers[0].domain_gpus) == (4, 72)
    columns = layouts(request, meshes(request))
    assert columns["tp"].max() > request.cluster.gpus_per_node
    assert {8} <= set(columns["tp"].tolist())
    document = plan(request)
    check(document, request)
    narrow = request.cluster.tiers[0].replaced(domain_gpus=4)
    apart = request.replaced(cluster=request.cluster.replaced(tiers=(narrow, *request.cluster.tiers[1:])))
    assert set(layouts(apart, meshes(apart))["tp"].tolist()) <= {1, 2, 4}
    assert plan(apart).predicted.step_time_s >= document.predicted.step_time_s * (1 - request.gap)


def test_several_wide_domains_have_shard_groups_inside_them() -> None:
    """Two NVL72: HSDP groups that stay inside one are among the layouts, rank orders too."""
    request = build_request("llama3-8b", 144, gpu="gb200", global_batch=144)
    columns = layouts(request, meshes(request))
    assert np.any((columns["dp"] == 144) & (columns["dp_shard"] == 72))
    assert np.any(columns["rank_order"] == 1)
    assert np.all(72 % columns["tp"] == 0)

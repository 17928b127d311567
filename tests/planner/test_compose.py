"""The document of a search agrees with itself and with the request."""

import random
from functools import lru_cache

import pytest

from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from planner import search
from planner.document import MEMORY_CAUSES, Parallelism, PlanDocument, dumps, loads
from planner.errors import InfeasibleError
from planner.fitting import MARGIN
from tests.oracles.spaces import (
    EVERY_SECOND_HAS_EXPERTS,
    EXPERTS,
    LATENT,
    LEADING_DENSE,
    ODD_HEADS,
    SLOW_NETWORK,
    UNFUSED,
    WIDE_EXPERTS,
    WINDOWS,
    Space,
)

SPACES = [
    Space(4, 6, 2, 0.2, changes=ODD_HEADS + SLOW_NETWORK),
    Space(4, 7, 4, 0.3, schedule="interleaved"),
    Space(5, 4, 4, 0.5, gpus_per_node=4),
    Space(6, 5, 6, 0.1),
    Space(3, 4, 6, 0.4, schedule="gpipe", changes=("tie_embeddings=true",)),
    Space(3, 6, 6, 0.4, schedule="zb-h1", changes=ODD_HEADS),
    Space(3, 7, 6, 0.4, schedule="v-half", changes=ODD_HEADS + LEADING_DENSE),
    Space(4, 7, 3, 0.3, schedule="flexible", changes=ODD_HEADS + SLOW_NETWORK),
]
EACH = pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)


@lru_cache
def planned(space: Space) -> PlanDocument:
    """The plan of a space within the usual gap."""
    return search.plan(space.request(0.005))


def modules_of(model: ModelSpec, recipe: FrameworkRecipe) -> set[str]:
    """What a model has that can be recomputed to free memory."""
    modules = {"norm", "activation", "full"} | ({"core_attention"} if not recipe.flash_attention else set())
    modules |= {"mla_up_proj"} if model.mla else set()
    modules |= {"mlp"} if model.moe_layers < model.layers else set()
    modules |= {"moe"} if model.moe else set()
    return modules | ({"shared_experts"} if model.moe and model.moe.shared_experts else set())


def agrees_with_its_kind(document: PlanDocument) -> None:
    """Experts, context, groups of layers and recompute sets are those of the model, as is what the host holds."""
    parallelism, model = document.parallelism, document.model
    stage_ranks = parallelism.tp * parallelism.cp * parallelism.dp
    experts = model.moe.experts if model.moe else 1
    assert experts % parallelism.ep == 0
    assert parallelism.etp == 1 or (model.moe and parallelism.etp == parallelism.tp)
    assert stage_ranks % (parallelism.ep * parallelism.etp) == 0
    assert parallelism.cp > 1 or parallelism.cp_type == "all_gather"
    pattern = model.layer_pattern
    assert pattern.kinds == model.layer_kinds
    for stage in document.stages:
        ends = len(pattern.leading) * stage.has_embedding + len(pattern.trailing) * stage.has_head
        assert stage.layers >= ends
        assert (stage.layers - ends) % len(pattern.period) == 0
        assert set(stage.recompute.set) <= modules_of(model, document.recipe)
        assert bool(stage.recompute.set) == bool(stage.recompute.layers)
        assert (stage.predicted.host_bytes > 0) == any(fraction for _, fraction in stage.offload)
    on_host = max(stage.predicted.host_bytes for stage in document.stages)
    most_ranks = min(document.cluster.gpus_per_node, parallelism.gpus_used)
    assert document.predicted.host_memory_bytes == pytest.approx(on_host * most_ranks)
    parts = set(document.predicted.time_breakdown_s)
    assert ("expert_parallel" in parts) <= (parallelism.ep * parallelism.etp > 1)
    assert ("context_parallel" in parts) == (parallelism.cp > 1)


def agrees(document: PlanDocument) -> None:
    """Degrees, layers, chunks, memory and certificate of a document fit together."""
    agrees_with_its_kind(document)
    parallelism, stages = document.parallelism, document.stages
    degrees = parallelism.tp * parallelism.pp * parallelism.cp * parallelism.dp
    assert degrees == parallelism.gpus_used
    assert parallelism.gpus_used + parallelism.gpus_idle == document.cluster.gpus
    assert parallelism.dp_shard * parallelism.dp_replicate == parallelism.dp
    batch = parallelism.dp * parallelism.micro_batch_size * parallelism.num_microbatches
    assert batch == document.workload.global_batch
    assert len(stages) == parallelism.pp
    assert sum(stage.layers for stage in stages) == document.model.layers
    down = range(parallelism.pp)
    comes_back = parallelism.schedule in ("zb-v", "v-half", "v-min", "dualpipe-v")
    ways = [reversed(down) if chunk % 2 and comes_back else down for chunk in range(parallelism.vpp)]
    chunks = [stages[rank].chunks[chunk] for chunk, ranks in enumerate(ways) for rank in ranks]
    assert [stage.has_embedding for stage in stages] == [rank == 0 for rank in down]
    assert [stage.has_head for stage in stages] == [rank == (0 if comes_back else down[-1]) for rank in down]
    layer = 0
    for chunk in chunks:
        assert chunk.first_layer == layer
        layer += chunk.layers
    assert layer == document.model.layers
    peak = document.predicted.peak_memory_bytes
    assert peak.device == max(stage.predicted.device_bytes for stage in stages)
    for stage in stages:
        predicted = stage.predicted
        assert predicted.device_bytes * (1 + MARGIN) <= peak.capacity * (1 + 1e-9)
        assert predicted.allocated_bytes <= predicted.reserved_bytes <= predicted.device_bytes
        causes = sum(getattr(predicted.memory_bytes, cause) for cause in MEMORY_CAUSES)
        assert causes == pytest.approx(predicted.device_bytes, rel=1e-6)
    assert document.predicted.verdict == "yes"
    certificate = document.certificate
    assert certificate.status == "OPTIMAL"
    assert certificate.gap <= 0.005 + 1e-8
    assert certificate.bound_s <= certificate.objective_s == document.predicted.step_time_s
    assert sum(document.predicted.time_breakdown_s.values()) == pytest.approx(certificate.objective_s, rel=1e-6)


@EACH
def test_the_document_agrees_with_itself(space: Space) -> None:
    """Everything that is told twice is told alike, and the text of it reads back as the same document."""
    document = planned(space)
    agrees(document)
    assert loads(dumps(document)) == loads(dumps(loads(dumps(document))))


def drawn(seed: int) -> Space:
    """A small job of a model with experts, latent attention or windows; a few are of long sequences."""
    rng = random.Random(seed)
    changes = [rng.choice([(), EXPERTS, WIDE_EXPERTS, LEADING_DENSE, EVERY_SECOND_HAS_EXPERTS])]
    changes += [rng.choice([(), WINDOWS])]
    changes += [rng.choice([(), LATENT, ODD_HEADS])]
    changes += [rng.choice([(), ("tie_embeddings=true",), UNFUSED, SLOW_NETWORK])]
    gpus, layers = rng.randint(1, 4), rng.randint(3, 7)
    seq_len = rng.choice(["1k", "1k", "2k", "16k"])
    batch = rng.choice([1, 2, 4])
    return Space(gpus, layers, batch, rng.choice([0.1, 0.3, 0.7]), seq_len=seq_len, changes=sum(changes, ()))


def planned_with_what_it_takes(space: Space) -> PlanDocument:
    """The plan of a space, with plenty of memory where its own does not do."""
    try:
        return planned(space)
    except InfeasibleError:
        return planned(space.with_memory(1.0)[0])


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))])
def test_documents_of_all_kinds_of_models_agree_with_themselves(seed: int) -> None:
    """Experts, latent attention, windows and long sequences in any mixture."""
    document = planned_with_what_it_takes(drawn(seed))
    agrees(document)
    assert loads(dumps(document)) == loads(dumps(loads(dumps(document))))


@EACH
def test_the_same_request_gives_the_same_bytes(space: Space) -> None:
    """A second search writes the same document, byte for byte."""
    assert dumps(search.plan(space.request(0.005))) == dumps(planned(space))


@EACH
def test_alternatives_are_other_meshes_and_never_faster(space: Space) -> None:
    """Fastest first, each mesh once, none that of the plan, no more than asked for."""
    document = planned(space)
    best, others = document.parallelism, document.alternatives
    meshes = [_mesh(other.parallelism) for other in others]
    assert len(set(meshes)) == len(meshes) < space.request().top_k
    assert _mesh(best) not in meshes
    steps = [other.step_time_s for other in others]
    assert steps == sorted(steps)
    assert all(step_s >= document.certificate.bound_s for step_s in steps)
    for other in others:
        assert other.slower_by == pytest.approx(other.step_time_s / document.certificate.objective_s - 1, abs=1e-6)


def _mesh(parallelism: Parallelism) -> tuple[int, ...]:
    return parallelism.tp, parallelism.cp, parallelism.pp, parallelism.dp


def test_what_was_left_out_is_told() -> None:
    """The assumptions say what was dropped, why, and what was not searched at all."""
    told = " ".join(planned(SPACES[0]).assumptions)
    assert "layouts on promising meshes" in told
    assert "cannot beat the plan by the gap" in told
    assert "Not searched: offload to the host" in told

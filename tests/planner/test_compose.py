"""The document of a search agrees with itself and with the request."""

from functools import lru_cache

import pytest

from planner import search
from planner.document import MEMORY_CAUSES, PlanDocument, dumps, loads
from planner.options import MARGIN
from tests.oracles.spaces import ODD_HEADS, SLOW_NETWORK, Space

SPACES = [
    Space(4, 6, 2, 0.2, changes=ODD_HEADS + SLOW_NETWORK),
    Space(4, 7, 4, 0.3, schedule="interleaved"),
    Space(5, 4, 4, 0.5, gpus_per_node=4),
    Space(6, 5, 6, 0.1),
    Space(3, 4, 6, 0.4, schedule="gpipe", changes=("tie_embeddings=true",)),
]
EACH = pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)


@lru_cache
def planned(space: Space) -> PlanDocument:
    """The plan of a space within the usual gap."""
    return search.plan(space.request(0.005))


def agrees(document: PlanDocument) -> None:
    """Degrees, layers, chunks, memory and certificate of a document fit together."""
    parallelism, stages = document.parallelism, document.stages
    degrees = parallelism.tp * parallelism.pp * parallelism.cp * parallelism.dp
    assert degrees == parallelism.gpus_used
    assert parallelism.gpus_used + parallelism.gpus_idle == document.cluster.gpus
    assert parallelism.dp_shard * parallelism.dp_replicate == parallelism.dp
    batch = parallelism.dp * parallelism.micro_batch_size * parallelism.num_microbatches
    assert batch == document.workload.global_batch
    assert len(stages) == parallelism.pp
    assert sum(stage.layers for stage in stages) == document.model.layers
    chunks = [stages[rank].chunks[chunk] for chunk in range(parallelism.vpp) for rank in range(parallelism.pp)]
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


@EACH
def test_the_same_request_gives_the_same_bytes(space: Space) -> None:
    """A second search writes the same document, byte for byte."""
    assert dumps(search.plan(space.request(0.005))) == dumps(planned(space))


@EACH
def test_alternatives_are_other_meshes_and_never_faster(space: Space) -> None:
    """Fastest first, each mesh once, none that of the plan, no more than asked for."""
    document = planned(space)
    best, others = document.parallelism, document.alternatives
    meshes = [(other.parallelism.tp, other.parallelism.pp, other.parallelism.dp) for other in others]
    assert len(set(meshes)) == len(meshes) < space.request().top_k
    assert (best.tp, best.pp, best.dp) not in meshes
    steps = [other.step_time_s for other in others]
    assert steps == sorted(steps)
    assert all(step_s >= document.certificate.bound_s for step_s in steps)
    for other in others:
        assert other.slower_by == pytest.approx(other.step_time_s / document.certificate.objective_s - 1, abs=1e-6)


def test_what_was_left_out_is_told() -> None:
    """The assumptions say what was dropped, why, and what was not searched at all."""
    told = " ".join(planned(SPACES[0]).assumptions)
    assert "layouts on promising meshes" in told
    assert "cannot beat the plan by the gap" in told
    assert "Not searched: context parallelism" in told

"""Offload that is searched for: the least that fits loses nothing, and nodes hold what their stages share."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from planner import hosts
from planner.candidates import bounded, costed, replayed
from planner.document import PlanDocument
from planner.errors import InfeasibleError
from planner.incumbent import Search
from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.search import plan
from planner.space import layouts, meshes
from tests.oracles.brute_offload import BruteOffload
from tests.oracles.legal_layouts import legal_layouts
from tests.oracles.spaces import (
    EVERY_SECOND_HAS_EXPERTS,
    EXPERTS,
    LATENT,
    NO_OVERLAP,
    ODD_HEADS,
    SLOW_NETWORK,
    TIED,
    UNFUSED,
    WINDOWS,
    Space,
)


def host(gigabytes: float) -> tuple[str, ...]:
    """Nodes with so much memory."""
    return (f"cluster.host_memory_bytes={int(gigabytes * 1e9)}",)


PIPELINE = ODD_HEADS + SLOW_NETWORK
OFFLOADS = [
    *Space(1, 2, 2, 0).with_memory(-0.1),
    *Space(1, 3, 2, 0).with_memory(-0.2, 0.0),
    *Space(2, 2, 2, 0, schedule="1f1b").with_memory(-0.1),
    *Space(2, 3, 2, 0, schedule="1f1b", changes=ODD_HEADS).with_memory(-0.05, 0.02),
    *Space(2, 4, 3, 0, schedule="1f1b", changes=PIPELINE + host(0.4)).with_memory(-0.15, -0.05),
    Space(3, 4, 3, -0.15, schedule="1f1b", gpus_per_node=4, changes=PIPELINE + host(0.4)),
    Space(3, 3, 3, -0.05, changes=TIED + NO_OVERLAP),
    Space(2, 4, 4, -0.05, schedule="interleaved", changes=PIPELINE),
    Space(2, 4, 4, -0.05, schedule="zb-v", changes=PIPELINE),
    Space(2, 4, 4, -0.05, schedule="zb-h1,gpipe", changes=PIPELINE),
    Space(2, 4, 2, -0.02, schedule="breadth-first", changes=PIPELINE + UNFUSED),
    Space(2, 4, 4, -0.05, schedule="v-half", changes=PIPELINE),
    Space(2, 2, 2, -0.05, gpus_per_node=4, schedule="1f1b", changes=EXPERTS),
    Space(2, 4, 2, -0.05, schedule="1f1b", changes=ODD_HEADS + EVERY_SECOND_HAS_EXPERTS),
    Space(2, 2, 1, -0.05, seq_len="16k"),
    Space(2, 2, 1, -0.05, changes=LATENT),
    Space(2, 5, 3, -0.05, schedule="1f1b", gpus_per_node=1, changes=ODD_HEADS + WINDOWS),
]
OFFLOADS = [replace(space, search=("offload",)) for space in OFFLOADS]
# Two stages on one node whose memory is enough for what they offload together, not for twice the half of it.
SHARED = Space(2, 4, 4, -0.12, schedule="zb-h1", changes=PIPELINE + host(0.45), search=("offload",))


def planned(request: PlanRequest) -> PlanDocument | None:
    """The plan of a request, None where nothing fits."""
    try:
        return plan(request)
    except InfeasibleError:
        return None


@pytest.mark.parametrize(
    "space",
    [pytest.param(space, id=space.name, marks=pytest.mark.slow if at % 5 else []) for at, space in enumerate(OFFLOADS)],
)
def test_the_least_that_fits_loses_nothing(space: Space) -> None:
    """As fast as the best of all recompute sets and counts, each under all 625 choices of fractions."""
    request = space.request()
    document, best_s = planned(request), BruteOffload(request).best_s()
    assert (document.predicted.step_time_s if document else inf) == pytest.approx(best_s, rel=1e-8)
    if document is not None:
        assert document.certificate.bound_s <= best_s * (1 + 1e-9)
        assert document.certificate.status == "OPTIMAL"


@pytest.mark.slow
def test_the_offloads_are_worth_searching() -> None:
    """Among the optima are all four kinds, parts of them, several stages, recompute beside them, and no plan at all."""
    found: set[str] = set()
    for space in OFFLOADS:
        document = planned(space.request())
        for stage in document.stages if document else ():
            shares = dict(stage.offload)
            found.update(name for name, share in shares.items() if share)
            found.update({"part"} if any(0 < share < 1 for share in shares.values()) else set())
            found.update({"recomputed"} if any(shares.values()) and stage.recompute.set else set())
        found.update({"pipeline"} if document and len(document.stages) > 1 else set())
    assert {"weights", "gradients", "optimizer", "activations", "part", "recomputed", "pipeline"} <= found


def test_what_fits_without_can_be_faster_with_offload() -> None:
    """Searched for, offload is taken where recomputing costs more; never where that makes a step longer."""
    space = Space(1, 3, 2, 0.0)
    without, with_offload = (plan(replace(space, search=search).request()) for search in ((), ("offload",)))
    assert with_offload.predicted.step_time_s < without.predicted.step_time_s
    assert any("beside plans that fit without" in sentence for sentence in with_offload.assumptions)
    assert not any("--search offload" in sentence for sentence in with_offload.assumptions)
    assert any("(--search offload)" in sentence for sentence in without.assumptions)


def test_stages_share_the_memory_of_their_node() -> None:
    """What they offload together fits in it, though not in halves; a program with that constraint finds the best."""
    request = SHARED.request()
    document, best_s = plan(request), BruteOffload(request).best_s()
    room, taken = hosts.room_bytes(request), [stage.predicted.host_bytes for stage in document.stages]
    assert document.predicted.step_time_s == pytest.approx(best_s, rel=1e-8)
    assert max(taken) > room / 2
    assert sum(taken) <= room
    assert document.predicted.host_memory_bytes == pytest.approx(sum(taken))
    roomy = plan(replace(SHARED, changes=PIPELINE).request())
    assert sum(stage.predicted.host_bytes for stage in roomy.stages) > room
    assert roomy.predicted.step_time_s < document.predicted.step_time_s


def test_a_dynamic_program_alone_cannot_carry_it() -> None:
    """Its best choice is more than the node holds and halves fit nowhere: it leaves a bound, and no choice."""
    request = SHARED.request()
    search = Search(CostModel(request, offload=True))
    costs = LayoutCosts.of(search.model, layouts(request, meshes(request)))
    costs = costs.with_columns(global_bound_s=np.zeros(len(costs)))
    candidates = [bounded(search, pipeline) for pipeline in costed(search, costs)]
    of_two = [replayed(each) for each in candidates if each is not None and each.pipeline.layout["pp"] == 2]
    assert of_two
    assert all(len(each.choice) == 0 and each.objective_s == inf and each.bound_s < inf for each in of_two)


@pytest.mark.parametrize("gpus_per_node", [1, 3, 4, 5, 8])
def test_gpus_of_stages_on_nodes_are_those_of_the_ranks(gpus_per_node: int) -> None:
    """Every mix of stages on some node, counted rank by rank, is there or is part of one that is."""
    request = Space(12, 3, 6, 0.5, gpus_per_node=gpus_per_node).request()
    columns = layouts(request, meshes(request))
    for row in range(0, len(columns["pp"]), 7):
        layout = {name: int(column[row]) for name, column in columns.items()}
        mixes = hosts.gpus_by_node(request, layout)
        assert mixes.sum(axis=1).max() <= gpus_per_node
        for first in range(0, layout["world"], gpus_per_node):
            ranks = range(first, min(first + gpus_per_node, layout["world"]))
            counts = np.zeros(layout["pp"], dtype=np.int64)
            for rank in ranks:
                counts[rank // layout["pp_stride"] % layout["pp"]] += 1
            assert np.any(np.all(counts <= mixes, axis=1))
    assert len(legal_layouts(request)) == len(columns["pp"])

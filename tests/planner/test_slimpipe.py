"""Sliced schedules end to end: costs beside the SlimPipe authors', documents, the clock, what other schedules lack."""

from functools import lru_cache

import numpy as np
import pytest

from cost_models.schedules.slimpipe_memory import kv_gradient_chunk_slices
from planner import rivals, search
from planner.candidates import replayed
from planner.document import PlanDocument, dumps, loads
from planner.explain.explanation import explain
from planner.fitting import MARGIN
from planner.fixed import FixedStage, fixed_candidate, planned
from planner.incumbent import Candidate, Search
from planner.infeasible import nearest
from planner.predict import CostModel
from planner.request import PlanRequest, build_request
from planner.rules import SCHEDULES
from planner.space import layouts, meshes
from planner.timeline.timeline import timeline_of_plan
from tests.oracles.spaces import SLICES, SLOW_NETWORK, Space

GIB = 2**30
PLANNED = [
    Space(4, 6, 2, 0.5, schedule="slimpipe", seq_len="8k", gpus_per_node=4),
    Space(4, 6, 2, 0.3, schedule="seq1f1b", seq_len="8k", gpus_per_node=4),
    Space(2, 4, 2, 0.8, schedule="terapipe", seq_len="4k", changes=SLOW_NETWORK),
    Space(2, 5, 3, 0.8, schedule="breadth-first", changes=SLOW_NETWORK),
]
EACH = pytest.mark.parametrize("space", PLANNED, ids=lambda space: space.name)


@lru_cache
def plan_of(space: Space) -> PlanDocument:
    """The plan of a space within the usual gap."""
    return search.plan(space.request(0.005))


def of_authors(slices: int) -> Candidate:
    """Llama-70B at 256 Ki tokens on 128 GPUs as in a row of the authors' artifact: TP 8, CP 2, PP 8, 10 chunks."""
    request = build_request("llama3-70b", 128, "80GB", seq_len="256k", global_batch=16, schedule="slimpipe")
    degrees = {"tp": 8, "sequence_parallel": 1, "cp": 2, "cp_heads": 1, "cp_ring": 0, "ep": 1, "etp": 1, "pp": 8}
    batch = {"vpp": 10, "dp": 1, "dp_shard": 1, "dp_replicate": 1, "rank_order": 0, "micro_batch_size": 1}
    cut = {"num_microbatches": 16, "schedule": SCHEDULES.index("slimpipe"), "slices": slices, "group_size": 0}
    return fixed_candidate(CostModel(request), degrees | batch | cut, [FixedStage(layers=10, zero=1)] * 8)


@pytest.mark.parametrize(
    ("slices", "activations", "logits", "kv_gradients"), [(16, 45.54, 0.98, 3.19), (32, 43.71, 0.98, 4.34)]
)
def test_memory_is_near_what_the_authors_plan_with(
    slices: int, activations: float, logits: float, kv_gradients: float
) -> None:
    """Activations within 2 %, with the head's input on top; logits but for those of the slice at work; of gradients an
    eighth, the share of key-value heads, which they leave out, with the buffers of hops."""
    candidate = of_authors(slices)
    rank = {name: column[0] / GIB for name, column in candidate.pipeline.chosen(candidate.choice).items()}
    assert rank["activations"] == pytest.approx(activations, rel=0.02)
    assert rank["logits_and_loss"] == pytest.approx(logits, rel=1.5 / slices)
    buffers = 4 * 2 * 8192 * 2**18 / slices / 16 / GIB
    assert rank["pipeline_buffers"] == pytest.approx(kv_gradients / 8 + buffers, rel=0.01)
    assert kv_gradient_chunk_slices(10, slices, 8) > 0


def test_the_bubble_shrinks_with_the_slices() -> None:
    """About (p - 1) / (n v) of a micro-batch's work is waited for, at most three times that with hops and the chunks of
    the ends; less with more slices."""
    all_waited = []
    for slices in (8, 16, 32):
        candidate = of_authors(slices)
        chosen = candidate.pipeline.chosen(candidate.choice)
        work = sum(chosen[name] for name in ("forward_s", "input_grad_s", "weight_grad_s")).max()
        waited = candidate.objective_s - 16 * work - chosen["global_s"].max()
        edges = (chosen["first_s"] + chosen["last_s"]).max()
        bubble = 7 / (slices * 10) * work
        assert bubble * 0.99 <= waited <= bubble * 3 + edges
        all_waited.append(waited)
    assert all_waited == sorted(all_waited, reverse=True)


@EACH
def test_a_document_holds_the_whole_plan(space: Space) -> None:
    """Written, read and costed anew it takes the same step and the same bytes."""
    document = loads(dumps(plan_of(space)))
    layout = document.parallelism
    assert (layout.schedule, layout.slices > 1) == (space.schedule, space.schedule != "breadth-first")
    candidate = planned(document)
    assert candidate.objective_s == pytest.approx(document.predicted.step_time_s, rel=1e-8)
    chosen = candidate.pipeline.chosen(candidate.choice)
    expected = [stage.predicted.device_bytes for stage in document.stages]
    assert chosen["device_bytes"] == pytest.approx(expected, rel=1e-8)
    parts = document.predicted.time_breakdown_s
    assert ("pipeline_exchange" in parts) == (space.schedule == "slimpipe")


@EACH
def test_a_plan_on_the_clock_peaks_at_its_predicted_bytes(space: Space) -> None:
    """Never above, and where a rank has one chunk exactly there, or where it has several a little under."""
    timeline = timeline_of_plan(plan_of(space))
    assert timeline.step.table.slices == plan_of(space).parallelism.slices
    peaks = np.array([curve.peak_bytes for curve in timeline.memory])
    assert np.all(peaks <= timeline.predicted_bytes * (1 + 1e-9))
    assert np.all(peaks >= timeline.predicted_bytes * 0.97)


@EACH
def test_an_explanation_adds_up(space: Space) -> None:
    """The parts of every stage's time are its three passes."""
    for stage in explain(plan_of(space)).stages:
        passes = sum(formula.value for formula in stage.time.formulas[:3])
        assert sum(part.total_s for part in stage.time.parts) == pytest.approx(passes, rel=1e-9)


@pytest.mark.parametrize(
    ("flags", "schedules"),
    [
        ({}, SCHEDULES[:3]),
        ({"target": "megatron"}, ("1f1b", "interleaved")),
        ({"target": "torchtitan"}, (*SCHEDULES[:5], "zb-v", "dualpipe-v")),
        ({"target": "axolotl"}, ("1f1b",)),
        ({"target": "runtime"}, SCHEDULES),
        ({"target": "megatron", "schedule": "slimpipe"}, ("slimpipe",)),
    ],
)
def test_a_target_says_which_schedules_are_searched(flags: dict[str, str], schedules: tuple[str, ...]) -> None:
    """Without one they are the usual ones; a schedule that is named is the only one."""
    request = build_request("llama3-8b", 8, "80GB", **flags)
    assert request.schedules == schedules
    assert CostModel(request).sliced == ("slimpipe" in schedules)


def test_a_plan_says_what_other_schedules_lack() -> None:
    """Every other schedule that was searched has a sentence: how much longer it takes, or that it does not fit."""
    space = Space(4, 4, 2, 0.2, target="runtime", seq_len="4k", gpus_per_node=1, changes=SLOW_NETWORK)
    document = search.plan(space.request())
    told = [each for each in document.assumptions if each.startswith("Not ") and ":" in each]
    own = document.parallelism.schedule if document.parallelism.pp > 1 else ""
    named = {each.split()[1].rstrip(":") for each in told} - {"searched"}
    assert named == set(SCHEDULES) - {own}


def test_a_search_of_usual_schedules_says_nothing_of_others() -> None:
    """They are among what was not searched, with the flag that adds them."""
    document = search.plan(Space(4, 4, 2, 0.5).request())
    assert not any(each.startswith("Not 1f1b") for each in document.assumptions)
    assert "seq1f1b, slimpipe (--target runtime, --schedule)" in document.assumptions[-1]


def test_rivals_are_told_of_the_mesh_of_the_plan() -> None:
    """GPipe needs more memory than there is where SlimPipe fits: so much, on that stage."""
    request = next(space for space in SLICES if space.schedule == "slimpipe").request()
    pipeline = replayed(_best(request)).pipeline
    least = float(np.max(pipeline.chosen(_best(request).choice)["device_bytes"])) * 1.08
    held = request.replaced(schedules=SCHEDULES, target="runtime", capacity_bytes=least, fixed={"pp": 2})
    found = Search(CostModel(held))
    found.add(_best(request))
    told = {each.split()[1].rstrip(":"): each for each in rivals.rivals(found)}
    assert "slimpipe" not in told
    assert set(told) == set(SCHEDULES) - {"slimpipe"}
    assert all(
        "longer than the plan" in each or "too much on stage" in each or "legal" in each for each in told.values()
    )


@lru_cache
def _best(request: PlanRequest) -> Candidate:
    best = search.searched(Search(CostModel(request))).best
    assert best is not None
    return best


def test_where_nothing_else_fits_the_runtime_is_planned_for() -> None:
    """With a host that takes nothing, slices make fit what no usual schedule does; the document says so."""
    changes = ("cluster.host_memory_bytes=1", "heads=7", "kv_heads=7", "hidden=896", "vocab=64000")
    space = Space(2, 4, 1, 0.0, seq_len="8k", gpus_per_node=1, changes=changes)
    sliced = Space(2, 4, 1, 0.0, schedule="slimpipe", seq_len="8k", gpus_per_node=1, changes=changes)
    least = {each: _least_bytes(each.request()) for each in (space, sliced)}
    assert least[sliced] * 1.01 < least[space]
    document = search.plan(space.request().replaced(capacity_bytes=least[sliced] * 1.01))
    assert document.parallelism.slices > 1
    assert any("as if asked for with --target runtime" in each for each in document.assumptions)


def _least_bytes(request: PlanRequest) -> float:
    """Memory of a GPU, margin included, with which something fits."""
    _, causes = nearest(CostModel(request), layouts(request, meshes(request)))
    return causes["device_bytes"] * (1 + MARGIN)


@pytest.mark.slow
def test_a_long_context_is_planned_with_slimpipe() -> None:
    """Llama-3-70B at 2 Mi tokens on 256 H100: it fits, and the plan says why 1F1B and interleaving lose."""
    request = build_request("llama3-70b", 256, "80GB", seq_len="2M", global_batch_tokens="4M", target="runtime")
    document = search.plan(request)
    assert document.parallelism.schedule == "slimpipe"
    assert document.predicted.verdict == "yes"
    assert document.predicted.mfu > 0.38
    told = " ".join(document.assumptions)
    assert "Not 1f1b: its best pipeline found" in told
    assert "Not interleaved: its best pipeline found" in told
    assert "GiB too much on stage" in told

"""Explanations: what is printed adds up to the plan, and the printed formulas come to the printed values."""

import io
import math
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from cost_models.specs import catalog
from cost_models.specs.beyond import BeyondOperators
from cost_models.specs.profile import HardwareProfile
from planner.document import PlanDocument, read
from planner.errors import RequestError
from planner.explain.explanation import Explanation, explain
from planner.explain.formulas import Formula
from planner.explain.setting import Plan
from planner.fixed import planned
from planner.report.explanation import explanation_report
from planner.request import build_request
from planner.search import plan
from tests.golden.jobs import JOBS

JOB = next(job for job in JOBS if job.name == "llama3-70b_256")
KINDS: dict[str, dict[str, Any]] = {
    "context and experts": dict(model="qwen3-30b-a3b", gpus=32, mem="80GB", seq_len="32k", global_batch=32),
    "offload": dict(model="llama3-8b", gpus=2, mem="40GB", global_batch=8),
    "windows": dict(model="gemma2-2b", gpus=8, mem="80GB", global_batch=64, schedule="interleaved"),
    "latent attention": dict(model="deepseek-v2-lite", gpus=16, mem="80GB", global_batch=64),
    "idle nodes": dict(model="llama3-8b", gpus=96, mem="80GB", global_batch=8),
}
QUICK = ("llama3-8b_7", "llama3-70b_256", "mixtral-8x7b_64")
PASSES = ("forward_s", "input_grad_s", "weight_grad_s")
UNITS = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "B": 1.0}


@pytest.fixture(scope="module")
def document() -> PlanDocument:
    """The plan of Llama-3-70B on 256 GPUs."""
    return read(JOB.path)


@pytest.fixture(scope="module")
def explanation(document: PlanDocument) -> Explanation:
    """What its first and last stage are made of."""
    return explain(document, [0, 3])


@pytest.mark.parametrize("job", [job for job in JOBS if job.name in QUICK], ids=lambda job: job.name)
def test_what_is_printed_of_a_golden_plan_adds_up(job):
    """Causes to the device's bytes and parts to the seconds of each pass, of the first two stages and the last."""
    document = read(job.path)
    _adds_up(document, sorted({0, min(1, document.parallelism.pp - 1), document.parallelism.pp - 1}))


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_what_is_printed_of_every_stage_adds_up(job):
    """The same for all stages."""
    _adds_up(read(job.path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_of_every_kind_of_plan_adds_up(kind):
    """The same for experts, context, offload, windows, latent attention, idle nodes; costed anew, nothing changes."""
    document = plan(build_request(**KINDS[kind]))
    assert _adds_up(document).notes == ()


def test_what_hops_and_split_backwards_take_of_a_processor_is_told():
    """Named as parts of their passes, which add up; where a profile has shown neither, nothing is told of them."""
    request = build_request(
        "data/loop/small-llama.toml",
        2,
        gpu="l4",
        seq_len="256",
        global_batch=8,
        target="runtime",
        recipe="runtime-cpu",
        schedule="zb-h1",
    ).replaced(fixed={"cp": 1, "tp": 1, "pp": 2})
    beyond = BeyondOperators(forward_s=1e-4, forward_token_s=0.0, backward_s=1e-4, backward_token_s=0.0, split_s=1e-4)
    shown = request.profile.replaced(beyond=beyond, hop_end_s=1e-4)
    of_pipelines = {"ends of hops", "splitting the backward"}
    for profile, told in ((request.profile, set()), (shown, of_pipelines)):
        explanation = _adds_up(plan(request.replaced(profile=profile)), profile=profile)
        assert {part.name for part in explanation.stages[1].time.parts} & of_pipelines == told


def _adds_up(
    document: PlanDocument, ranks: list[int] | None = None, profile: HardwareProfile | None = None
) -> Explanation:
    chosen = Plan(planned(document, profile)).chosen
    explanation = explain(document, ranks, profile)
    for stage in explanation.stages:
        causes = sum(cause.value for cause in stage.memory.causes)
        assert causes == pytest.approx(float(chosen["device_bytes"][stage.rank]), rel=1e-6)
        for name in PASSES:
            parts = sum(getattr(part, name) for part in stage.time.parts)
            assert parts == pytest.approx(float(chosen[name][stage.rank]), rel=1e-6)
        for each in (*stage.memory.causes, *stage.time.formulas):
            assert each.value == pytest.approx(float(chosen[each.name][stage.rank]), rel=1e-9)
    step = explanation.step
    assert sum(step.by_cause_s.values()) == pytest.approx(step.step_time_s, rel=1e-9)
    assert step.span_s + step.global_s == pytest.approx(step.step_time_s, rel=1e-12)
    return explanation


def test_printed_formulas_come_to_the_printed_values(explanation):
    """Read back as arithmetic, an expression with the values of its symbols, and its numbers, give the value."""
    checked = 0
    for stage in explanation.stages:
        values = {symbol.symbol: symbol.value for symbol in stage.symbols}
        values["allocated_bytes"] = stage.memory.allocated_bytes
        for each in (*stage.memory.causes, *(part for part in stage.parts if part.unit != "s")):
            assert _arithmetic(each.expression, values) == pytest.approx(each.value, rel=1e-3), each
            if each.numbers:  # numbers are rounded to three digits and more
                assert _arithmetic(each.numbers, {}) == pytest.approx(each.value, rel=0.02), each
            checked += 1
    assert checked >= 30


def _arithmetic(text: str, values: dict[str, float]) -> float:
    """The value of a printed formula: units become factors."""
    text = re.sub(r"([\d.]+) (KiB|MiB|GiB|B)\b", lambda found: f"{float(found[1]) * UNITS[found[2]]!r}", text)
    return float(eval(text.replace("^", "**"), {"max": max, "min": min, "ceil": math.ceil}, values))


def test_states_are_told_in_the_words_of_the_field(explanation):
    """Stage 0 holds the embedding and its layers: 2 B of weights each, 12 B of optimizer states over the shards."""
    causes = {cause.name: cause for cause in explanation.stages[0].memory.causes}
    assert causes["weights"].expression == "2 B * (embedding_parameters + layers * layer_parameters)"
    assert causes["moments"].expression == "8 B * (embedding_parameters + layers * layer_parameters) / dp_shard"
    assert causes["weights"].numbers == "2 B * (5.253e8 + 19 * 4.278e8)"
    assert "has_embedding" not in causes["weights"].expression
    assert causes["context"] == Formula("context", "614.4 MiB", "", causes["context"].value, "bytes")


def test_products_have_their_shapes_and_flops(explanation, document):
    """GEMMs of a layer: three passes of two FLOPs a parameter and token, at a share of the peak that can be."""
    model, tp = document.model, document.parallelism.tp
    tokens = document.workload.seq_len // document.parallelism.cp
    attention = 2 * model.hidden * (model.heads + model.kv_heads) * model.head_dim
    matrices = (attention + 3 * model.hidden * model.ffn) / tp
    products = [each for each in explanation.operators["layer"] if each.kind == "gemm"]
    assert sum(each.flops for each in products) == pytest.approx(3 * 2 * tokens * matrices)
    assert all(0.1 < each.peak_share < 1 for each in products)
    up = next(each for each in products if each.name == "MLP up")
    assert [call.sizes for call in up.calls][0] == f"{tokens:,} x {2 * model.ffn // tp:,} x 8,192"


def test_collectives_add_what_they_expose(explanation, document):
    """What the calls of a collective expose are the operator's seconds; those beside a product hide a part."""
    layer = explanation.operators["layer"]
    collectives = [each for each in layer if each.communication == "tensor_parallel" and each.total_s]
    assert len(collectives) == 4
    for each in collectives:
        assert sum(call.exposed_s for call in each.calls) == pytest.approx(each.total_s / each.alike)
        assert {(call.ranks, call.tier) for call in each.calls} == {(document.parallelism.tp, "nvlink")}
    hidden = [call for each in collectives for call in each.calls if call.hidden]
    assert hidden
    assert all(0 < call.exposed_s < call.seconds for call in hidden)


def test_states_go_round_their_shard_group(explanation, document):
    """Gradients of a layer: four bytes a parameter over the ranks of dp_shard and cp, through the network."""
    stage = explanation.stages[0]
    parameters = next(part.value for part in stage.parts if part.name == "layer_parameters")
    reduce = next(call for call in stage.time.exchanges if call.of_pass == "layer gradients")
    assert reduce.moved_bytes == pytest.approx(document.recipe.gradient_reduce_bytes * parameters)
    layout = document.parallelism
    assert (reduce.ranks, reduce.stride) == (layout.dp_shard * layout.cp, layout.tp)
    assert reduce.exposed_s is None


def test_a_stage_that_is_not_there_is_refused(document):
    """The message tells which there are."""
    with pytest.raises(RequestError, match="--stage must be a stage of the plan, 0 to 3, got 4"):
        explain(document, [4])


def test_another_profile_is_told(document):
    """Where today's profile is another one, the step differs and a note says why."""
    profile = catalog.load_profile(document.cluster.gpu.name)
    slower = profile.replaced(sustained_fraction=profile.sustained_fraction / 2)
    notes = explain(document, [0], slower).notes
    assert len(notes) == 1
    assert "its profile is not the" in notes[0]


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_names_every_cause_and_fits(explanation, width):
    """Every cause and operator is there; no line is wider than the terminal."""
    out = io.StringIO()
    Console(width=width, file=out).print(explanation_report(explanation, width))
    text = out.getvalue()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    for stage in explanation.stages:
        assert all(cause.name in text for cause in stage.memory.causes)
        assert f"Stage {stage.rank}: {stage.layers} layers" in text
    assert all(each.name.split()[0] in text for each in explanation.operators["layer"] if each.total_s)
    assert np.isfinite([symbol.value for stage in explanation.stages for symbol in stage.symbols]).all()

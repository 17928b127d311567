"""Days, money, energy and reliability: by hand, against simulated failures, and against what Llama 3 reported."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.specs.errors import SpecError
from cost_models.specs.parameters import parameters
from planner.economics import Economics, Economy, economics
from planner.economics.assumptions import LLAMA3_FAILURES_PER_GPU_DAY, SOURCES
from planner.economics.reliability import best_interval_s, goodput, spares
from planner.errors import RequestError
from planner.summary import PlanSummary
from tests.planner.sample import sample_document

PLAN = PlanSummary.of(sample_document())


def of_run(**assume: Any) -> Economics:
    """What the sample plan comes to, for a trillion tokens."""
    return economics(PLAN, Economy(**{"tokens": 10**12, "days": 30.0, "price_usd_per_gpu_hour": {"any": 2.0}} | assume))


def test_a_run_without_failures_by_hand() -> None:
    """Tokens over tokens a second, with a checkpoint a day; GPU-hours, dollars and kilowatt hours from that."""
    found = of_run(failures_per_gpu_day=0.0, node_power_factor=1.5, pue=1.2)
    write_s = PLAN.checkpoint_bytes / min(PLAN.nodes * 1e9, 2e12)
    every = round(86_400 / PLAN.step_time_s)
    share = every * PLAN.step_time_s / (every * PLAN.step_time_s + write_s)
    run_s = 10**12 / PLAN.tokens * PLAN.step_time_s / share
    assert found.goodput == pytest.approx(share)
    assert found.days == pytest.approx(run_s / 86_400)
    assert found.gpu_hours == pytest.approx(PLAN.gpus * run_s / 3600)
    assert found.cost_usd == pytest.approx(2.0 * PLAN.gpus * run_s / 3600)
    assert found.energy_kwh == pytest.approx(PLAN.gpus * PLAN.gpu_power_w * 1.5 * 1.2 * run_s / 3.6e6)
    assert found.steps == math.ceil(10**12 / PLAN.tokens)
    assert found.interruptions is None
    assert found.spare_nodes == 0
    assert found.meets_deadline == (run_s <= 30 * 86_400)
    assert found.tokens_per_day * found.days == pytest.approx(1e12)


def test_per_million_tokens_is_the_run_over_its_tokens() -> None:
    """And without a budget there is that alone."""
    found, bare = of_run(), economics(PLAN, Economy(price_usd_per_gpu_hour={"any": 2.0}))
    assert found.cost_usd is not None
    assert found.energy_kwh is not None
    assert found.cost_usd_per_million_tokens == pytest.approx(found.cost_usd / 1e6)
    assert found.energy_kwh_per_million_tokens == pytest.approx(found.energy_kwh / 1e6)
    assert bare.cost_usd_per_million_tokens == found.cost_usd_per_million_tokens
    assert (bare.days, bare.cost_usd, bare.energy_kwh, bare.meets_deadline) == (None, None, None, None)


def test_a_checkpoint_is_what_the_recipe_keeps() -> None:
    """Weights, master weights and moments of every parameter once: 14 bytes of Megatron's 18."""
    document = sample_document()
    recipe = document.recipe
    kept = recipe.weight_bytes + recipe.master_bytes + recipe.moment_bytes
    assert kept == 14
    assert PLAN.checkpoint_bytes == kept * parameters(document.model)


def test_llama_3_would_be_interrupted_as_it_was() -> None:
    """419 times in 54 days on 16,384 GPUs, with more than 90 % of the time in steps that count."""
    plan = PLAN.replaced(gpus=16_384, nodes=2048, gpus_per_node=8, checkpoint_bytes=14 * 405e9, step_time_s=10.0)
    found = economics(plan, Economy())
    assert found.interruptions_per_day * 54 == pytest.approx(419)
    assert 0.9 < found.goodput < 0.95
    assert found.checkpoint_write_s == pytest.approx(14 * 405e9 / 2e12)
    assert 4 < found.spare_nodes < 20


@given(stall_s=st.floats(0.01, 600), mtbf_h=st.floats(0.5, 5000))
def test_the_interval_loses_least(stall_s: float, mtbf_h: float) -> None:
    """No interval of a fine grid keeps more of the time than Daly's, beyond 0.2 %; a short mean time included."""
    mtbf_s = 3600 * mtbf_h
    best = goodput(best_interval_s(stall_s, mtbf_s), stall_s, 600.0, mtbf_s)
    grid = np.geomspace(stall_s / 100, 20 * mtbf_s, 400)
    assert max(goodput(float(each), stall_s, 600.0, mtbf_s) for each in grid) <= best + 0.002


@pytest.mark.parametrize(("interval_s", "stall_s", "restart_s", "mtbf_s"), [(900, 30, 600, 7200), (300, 5, 60, 600)])
def test_goodput_is_as_simulated(interval_s: float, stall_s: float, restart_s: float, mtbf_s: float) -> None:
    """Segments of training and a checkpoint, interrupted at random, restarts too: the same share within 1.5 %."""
    draw = np.random.default_rng(1)
    wall_s, segments = 0.0, 20_000
    for _ in range(segments):
        while (failure_s := draw.exponential(mtbf_s)) < interval_s + stall_s:
            wall_s += failure_s
            while (again_s := draw.exponential(mtbf_s)) < restart_s:
                wall_s += again_s
            wall_s += restart_s
        wall_s += interval_s + stall_s
    assert goodput(interval_s, stall_s, restart_s, mtbf_s) == pytest.approx(interval_s * segments / wall_s, rel=0.015)


@pytest.mark.parametrize("mean", [0.0, 0.1, 1.0, 7.8, 300.0, 2000.0])
@pytest.mark.parametrize("confidence", [0.5, 0.99, 0.999])
def test_spares_are_enough_and_no_more(mean: float, confidence: float) -> None:
    """Of drawn numbers of nodes under repair as large a share is covered, and with one spare less it is not."""
    count = spares(mean, confidence)
    down = np.random.default_rng(2).poisson(mean, 400_000)
    assert np.mean(down <= count) >= confidence - 0.003
    assert count == 0 or np.mean(down <= count - 1) < confidence + 0.003


@given(
    rate=st.floats(0, 0.01),
    restart_s=st.floats(0, 1e5),
    stall=st.floats(0, 1),
    gpus=st.sampled_from([1, 8, 256, 16_384, 1_000_000]),
)
def test_losses_are_a_share_and_grow_with_failures(rate: float, restart_s: float, stall: float, gpus: int) -> None:
    """Whatever is assumed, goodput lies in (0, 1], and twice the failures never keep more."""
    plan = PLAN.replaced(gpus=gpus, nodes=-(-gpus // 8), gpus_per_node=8)
    settings: dict[str, Any] = {"restart_s": restart_s, "checkpoint_stall": stall, "checkpoint_every_s": 3600.0}
    once = economics(plan, Economy(failures_per_gpu_day=rate, **settings))
    twice = economics(plan, Economy(failures_per_gpu_day=2 * rate, **settings))
    assert 0 < twice.goodput <= once.goodput * (1 + 1e-9) <= 1 + 1e-9


def test_spares_are_paid_for_where_that_is_assumed() -> None:
    """Their GPUs are in the hours and the power then."""
    free, paid = of_run(), of_run(pay_for_spares=True)
    assert free.spare_nodes > 0
    more = (PLAN.gpus + free.spare_nodes * PLAN.gpus_per_node) / PLAN.gpus
    assert paid.gpu_hours == pytest.approx(more * (free.gpu_hours or 0))
    assert paid.power_w == pytest.approx(more * free.power_w)


def test_every_assumption_is_told_with_its_source() -> None:
    """One sentence each; a default that is a figure says where it is from, and a figure that was set does not."""
    sentences = Economy().sentences()
    assert len(sentences) == len(Economy.model_fields)
    for name, field in Economy.model_fields.items():
        assert (name in SOURCES) == (field.default is not None and name != "price_usd_per_gpu_hour")
    assert any("419 unexpected interruptions in 54 days on 16,384 GPUs" in each for each in sentences)
    told = Economy.of(tokens="15T", days=60, price="h100=2.5,b200=4", assume=["pue=1.3"]).sentences()
    assert told[0] == "tokens = 15T: tokens of the whole run."
    assert told[2].startswith("price_usd_per_gpu_hour = h100-sxm 2.5, b200 4: ")
    assert told[4] == "pue = 1.3: power of the site over the power of its nodes."
    assert pytest.approx(4.7357e-4, rel=1e-4) == LLAMA3_FAILURES_PER_GPU_DAY


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tokens": "many"}, "--tokens must be a whole number such as 15T or 300B, got 'many'"),
        (
            {"price": "cheap"},
            "--price must be dollars for an hour of one GPU, 2.5 or h100-sxm=2.5,b200=4.0, got 'che",
        ),
        ({"price": "h100=-1"}, "got 'h100=-1'"),
        ({"price": "h100=nan"}, "got 'h100=nan'"),
        ({"price": "h100=1,h100-sxm=2"}, "--price names h100-sxm twice"),
        ({"price": "h101=1"}, "unknown gpu 'h101'"),
        ({"assume": ["puh=1.2"]}, "got 'puh=1.2'; did you mean 'pue'?"),
        ({"assume": ["pue"]}, "--assume must be NAME=VALUE"),
        ({"assume": ["pue=0.9"]}, "assume.pue must be >= 1, got 0.9"),
        ({"assume": ["pue=hot"]}, "assume.pue must be a number, got 'hot'"),
        ({"days": 0}, "assume.days must be > 0, got 0"),
    ],
)
def test_what_cannot_be_assumed_is_refused(given: dict[str, Any], told: str) -> None:
    """With the flag or the field, the value and what is allowed."""
    with pytest.raises((RequestError, SpecError)) as error:
        Economy.of(**given)
    assert told in str(error.value)

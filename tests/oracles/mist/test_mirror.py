"""The mirror answers as Mist's analyser did, on its worked example and on the plans it was run on."""

from typing import Any

import numpy as np
import pytest

from tests.oracles.mist.gpt import Gpt, MicroBatch, gpt
from tests.oracles.mist.hardware import Card, artifact
from tests.oracles.mist.plan import Stage, analyse, stages_of, step_seconds
from tests.oracles.mist.stage import Options, StageModel

LOCKED = Card("locked")
SMALL = gpt("1.3b", flash=False)
PREDICTED = [run for run in artifact()["runs"] if run["predicted_s"]]


def run_name(run: dict[str, Any]) -> str:
    """A run's model, as a test's name."""
    return f"{run['size']}-{'flash' if run['flash'] else 'scores'}"


def analysed(run: dict[str, Any], clocks: str) -> Any:
    """The mirror's answer for a run."""
    model = gpt(run["size"], run["flash"])
    batch = run["stages"][0]["micro_batch"]
    sizes = {"gpus": run["gpus"], "batch": batch, "micro_batches": run["micro_batches"]}
    return analyse(model, Card(clocks), **sizes, stages=stages_of(run))


def test_worked_example() -> None:
    """GPT 1.3B on 2 L4, all recomputed: 10.6594 s, peaks of 19255 and 19503 MiB (README of the artifact)."""
    found = analyse(SMALL, LOCKED, gpus=2, batch=8, micro_batches=2, stages=[Stage(24, 24)])
    assert found.step_s == pytest.approx(10.659405, rel=1e-4)
    assert found.forward_mib == pytest.approx([19255.25], rel=1e-4)
    assert found.backward_mib == pytest.approx([19503.125], rel=1e-4)
    assert found.fits == [True]


def test_tuned_example() -> None:
    """The plan of the artifact's tuner for the same job costs 9.2689 s."""
    stages = [Stage(12, 5), Stage(12)]
    found = analyse(SMALL, LOCKED, gpus=2, batch=2, micro_batches=16, stages=stages)
    assert found.step_s == pytest.approx(9.26892465, rel=2e-4)
    assert found.fits == [True, True]


@pytest.mark.parametrize("run", PREDICTED, ids=run_name)
def test_shipped_plans(run: dict[str, Any]) -> None:
    """Shipped plans take the time, within 0.2 %, and the memory, within 0.01 %, that Mist predicted for them."""
    found = analysed(run, "free" if run["size"] == "7b" else "locked")
    assert found.step_s == pytest.approx(run["predicted_s"], rel=2e-3)
    assert found.peaks_mib == pytest.approx(run["predicted_mib"], rel=1e-4)


def test_shipped_plan_over_the_margin() -> None:
    """The shipped plan for 7B breaks the tuner's own margin for fragmentation."""
    run = next(run for run in PREDICTED if run["size"] == "7b")
    assert not all(analysed(run, "free").fits)


def test_operators_too_short_count_as_nothing() -> None:
    """An operator under 50 us is dropped, a backward pass of over 2.3 forward ones is two."""
    assert LOCKED.operators_s([("add", "2x2048x2048;2x2048x2048")]) == (0.0, 0.0)
    forward_s, backward_s = LOCKED.operators_s([("flash_attention", "2x2048x3x16x128")])
    assert backward_s == 2 * forward_s


def test_collectives_by_hand() -> None:
    """A gather of 1 GiB by 2 GPUs moves half of it at 2.964 GiB/s; a reduction takes 1.1 times that."""
    by_hand = 0.5 / 2.964 + 1e-4
    assert LOCKED.collective_s("all_gather", 1024, 1, 2) == pytest.approx(by_hand)
    assert LOCKED.collective_s("reduce_scatter", 1024, 1, 2) == pytest.approx(1.1 * by_hand)
    assert LOCKED.collective_s("all_gather", 1024, 1, 1) == 0.0


def test_streams_by_hand() -> None:
    """Beside a gather of 1 s, compute of 2 s is slowed 1.1676 times for that second, and then runs on alone."""
    assert LOCKED.beside_s([2.0], [1.0], 0.0, 0.0) == pytest.approx([1 + 2 - 1 / 1.1676])
    assert LOCKED.beside_s([2.0], 0.0, 0.0, 0.0) == pytest.approx([2.0])
    by_hand = 1.0152 + 0.5  # a copy of 1.0152 / 1.0005 s ends with one second of compute
    assert LOCKED.beside_s([1.5], 0.0, [1.0152 / 1.0005], 0.0) == pytest.approx([by_hand])


def test_slowdowns_are_not_monotone() -> None:
    """Under Mist's factors a copy more can make the others end sooner: beside it a copy to the host is slowed less."""
    without, beside = LOCKED.beside_s(0.0, [1.0, 1.0], [0.0, 0.03], [1.0, 1.0])
    assert beside < 0.95 * without


def test_step_by_hand() -> None:
    """3 micro-batches: 2 * 5 for the slowest, 3 + 5 for both, and the edge of the second beyond the first: 4 - 3."""
    assert step_seconds([3.0, 5.0], [0.5, 4.0], 3) == 10 + 8 + 1
    assert step_seconds([3.0, 5.0], [2.0, 4.0], 3) == 10 + 8 + 2


def test_states_on_the_host() -> None:
    """Half of the optimizer states on the host is 6 bytes of the 16 of a parameter off the device; time only rises."""
    whole, half = (
        analyse(SMALL, LOCKED, gpus=1, batch=1, micro_batches=32, stages=[Stage(24, 24, 1, (0.0, 0.0, share, 0.0))])
        for share in (0.0, 0.5)
    )
    saved_mib = 24 * 6 * SMALL.layer_parameters / 2**20
    assert whole.backward_mib[0] - half.backward_mib[0] == pytest.approx(saved_mib)
    assert half.step_s > whole.step_s


def test_recompute_adds_a_forward() -> None:
    """Recomputing every layer adds the forward seconds of every layer to a micro-batch, and drops what they keep."""
    kept, recomputed = (
        analyse(SMALL, LOCKED, gpus=1, batch=1, micro_batches=32, stages=[Stage(24, layers)]) for layers in (0, 24)
    )
    forward_s = MicroBatch.of(SMALL, LOCKED, 1, 32).layer_s[0]
    assert recomputed.stable_s[0] - kept.stable_s[0] == pytest.approx(24 * forward_s)
    assert recomputed.forward_mib[0] < kept.forward_mib[0]


def test_one_micro_batch_has_no_edges() -> None:
    """With one micro-batch the copies of the optimizer step are among the stable seconds, with two they are apart."""
    stages = [Stage(24, 24, 1, (0.0, 0.0, 0.5, 0.0))]
    one, two = (analyse(SMALL, LOCKED, gpus=1, batch=1, micro_batches=count, stages=stages) for count in (1, 2))
    assert one.delta_s == [0.0]
    assert two.delta_s[0] > 0


def test_batch_of_nothing() -> None:
    """Mist's head at batch 0, as with data parallelism over more devices than sequences, hides most of its seconds."""
    seven = gpt("7b", flash=True)
    free = Card("free")
    whole = sum(free.operators_s(seven.head_operators(1)))
    nothing = sum(free.operators_s(seven.head_operators(0)))
    assert nothing < 0.1 * whole


def test_sharding_divides_the_states() -> None:
    """ZeRO 3 keeps a rank's share of weights and gradients, and two buffers of each of the largest layer."""
    options = Options(np.array([1, 3]), *np.zeros((4, 2)))
    costs = StageModel(Gpt(2048, 24, 16, flash=True), LOCKED, options, 1, 2, 1, 16)
    held = np.array([[24]]), np.array([[0]])
    everywhere, sharded = costs._states_mib(held[0])[1].ravel()
    layer, vocab = 2 * costs.model.layer_parameters / 2**20, 2 * costs.model.vocab_parameters / 2**20
    assert everywhere - sharded == pytest.approx(24 * layer - 4 * vocab)

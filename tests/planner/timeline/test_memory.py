import numpy as np
import pytest

from planner.fixed import planned
from planner.timeline.memory import stage_memory
from tests.planner.timeline.cases import GOLDEN, plan, plan_timeline, split_gradients, two_ranks, with_memory


def test_what_a_forward_saves_is_freed_by_the_backward() -> None:
    """Rank 0 holds two micro-batches at most, rank 1 one, and both rest in the end."""
    first, last = with_memory(two_ranks()).memory
    assert first.time_s.tolist() == [0, 1, 9, 12]
    assert first.held_bytes.tolist() == [11, 12, 11, 10]
    assert last.time_s.tolist() == [0, 1, 10, 12]
    assert last.held_bytes.tolist() == [10, 11, 10, 10]
    assert (first.peak_bytes, last.peak_bytes) == (12, 11)


def test_a_weight_gradient_frees_what_an_input_gradient_needs_later() -> None:
    """The rank that postpones its weight gradients holds both micro-batches until then."""
    _, curve = with_memory(split_gradients()).memory
    assert curve.peak_bytes == 12
    assert curve.held_bytes[np.searchsorted(curve.time_s, 5, side="right") - 1] == 12


def test_what_is_recomputed_comes_back_with_the_input_gradient() -> None:
    """Micro-batches that wait for weight gradients alone hold what these need, gradients of logits too."""
    _, plain = with_memory(split_gradients()).memory
    _, curve = with_memory(split_gradients(), split=3.0, split_waiting=20.0).memory
    assert plain.peak_bytes == 12
    assert curve.peak_bytes == 10 + 2 * (3 + 20)


def test_what_comes_and_goes_is_held_while_it_is_needed() -> None:
    """Buffers until the rank is through, what a backward works in beside it, the optimizer's in the global part."""
    step = two_ranks(global_s=1.0)
    (curve, _) = with_memory(step, buffer=100.0, transient=1000.0, optimizer=10_000.0).memory

    def at(time_s: float) -> float:
        return float(curve.held_bytes[np.searchsorted(curve.time_s, time_s, side="right") - 1])

    assert at(0.5) == 10 + 100 + 1
    assert at(4.5) == 10 + 100 + 2 + 1000
    assert at(6.5) == 10 + 100 + 2
    assert at(12.5) == 10 + 10_000
    assert at(13.0) == 10


def test_logits_wait_for_all_micro_batches_but_the_one_at_work() -> None:
    """With two micro-batches alive one set of logits waits."""
    plain, waiting = (with_memory(two_ranks(), waiting=amount).memory[0] for amount in (0.0, 5.0))
    assert waiting.peak_bytes == plain.peak_bytes + 5


@pytest.mark.parametrize("name", GOLDEN)
def test_a_kept_plan_peaks_at_its_predicted_bytes(name: str) -> None:
    """Exactly where ranks have one chunk; else up to a hundredth under, as live counts of chunks peak apart."""
    timeline = plan_timeline(name)
    peaks = np.array([curve.peak_bytes for curve in timeline.memory])
    assert np.all(peaks <= timeline.predicted_bytes * (1 + 1e-9))
    slack = 1e-9 if timeline.step.table.chunks == 1 else 0.01
    assert np.all(peaks >= timeline.predicted_bytes * (1 - slack))


def test_the_parts_of_a_stage_make_up_its_peak() -> None:
    """At rest, buffers, what a backward works in and what all micro-batches alive have saved: the predicted bytes."""
    candidate = planned(plan("deepseek-v3_256"))
    memory = stage_memory(candidate.pipeline, candidate.choice)
    alive = candidate.pipeline.options["live_total"][candidate.choice]
    saved = memory.saved_bytes[:, 0] * alive
    whole = memory.resting_bytes + memory.buffer_bytes + memory.transient_bytes + saved
    assert whole == pytest.approx(memory.peak_bytes)

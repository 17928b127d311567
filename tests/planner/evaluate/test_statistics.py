"""Errors, ranking and verdicts."""

import pytest

from planner.evaluate.answers import answers
from planner.evaluate.statistics import compare, errors, ranking, verdicts
from tests.planner.evaluate.rows import LLAMA


def compared(rows):
    return compare(rows, answers(rows))


def predicted_s(row):
    found = answers([row])[0]
    assert found.costs is not None
    return found.costs.step_time_s


def test_errors_are_over_what_was_measured():
    """A step measured at half the prediction is an error of +100 %; a throughput says the same."""
    seconds = predicted_s(LLAMA) / 2
    tokens = 128 * 8192 / seconds / 64
    rows = [{**LLAMA, "step_time_s": str(seconds)}, {**LLAMA, "tokens_per_s_per_gpu": str(tokens)}, LLAMA]
    by_source = errors(compared(rows), lambda one: one.time_error, lambda one: one.source)
    assert by_source["a"].count == 2
    assert by_source["a"].mean == by_source["a"].median == by_source["a"].bias == pytest.approx(1.0)
    assert by_source["a"].within == 0.0


def test_memory_is_compared_by_the_source_counter():
    """Allocated bytes, unless the source read the device or the allocator."""
    rows = [{**LLAMA, "peak_mem_gib": "40", "notes": notes} for notes in ("", "mem from nvidia-smi")]
    allocated, device = (one.memory_error for one in compared(rows))
    assert allocated is not None
    assert device is not None
    assert device > allocated


def test_regret_is_what_the_predicted_best_loses():
    """Taking the predicted best of three costs what it measured over the best; repeats are averaged, ties shared."""
    layouts = [{"tp": "1", "pp": "4"}, {"tp": "2", "pp": "4"}, {"tp": "4", "pp": "4"}]
    rows = [{**LLAMA, **layout, "id": f"a-{index}"} for index, layout in enumerate(layouts)]
    order = sorted(range(3), key=lambda index: predicted_s(rows[index]))
    measured = dict(zip(order, (1.1, 1.0, 2.0), strict=True))
    timed = [{**row, "step_time_s": str(measured[index])} for index, row in enumerate(rows)]
    repeated = [*timed, {**timed[order[0]], "step_time_s": "1.3"}]
    assert ranking(compared(timed)).mean_regret == pytest.approx(0.1)
    assert ranking(compared(repeated)).mean_regret == pytest.approx(0.2)
    assert ranking(compared(timed)).zero_regret == 0.0
    assert ranking(compared(timed[:2])) is None
    perfect = [{**row, "step_time_s": str(predicted_s(row))} for row in rows]
    assert ranking(compared(perfect)).correlation == pytest.approx(1.0)


def test_verdicts_know_what_happened():
    """A run that worked should fit, one that ran out of memory should not; a row that says neither counts nowhere."""
    large = {**LLAMA, "micro_batch": "4", "global_batch_seqs": "256"}
    rows = [{**LLAMA, "step_time_s": "5"}, {**large, "oom": "1", "tp": "1", "pp": "1"}, LLAMA]
    said = verdicts(compared(rows))
    assert (said.right, said.wrong, said.borderline) == (2, 0, 0)

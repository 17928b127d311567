"""Values that a row leaves open."""

from planner.evaluate.answers import answers
from tests.planner.evaluate.rows import LLAMA, MIXTRAL


def test_performance_recipes_interleave_short_pipelines():
    """Few micro-batches for many stages and no word of chunks: as many as make the step fastest, told as assumed."""
    open_row, said = answers([{**LLAMA, "global_batch_seqs": "32"}, {**LLAMA, "global_batch_seqs": "32", "vpp": "1"}])
    assert open_row.run.layout["vpp"] > 1
    assert "vpp=" in open_row.message
    assert said.run.layout["vpp"] == 1
    assert open_row.costs.step_time_s < said.costs.step_time_s


def test_an_open_micro_batch_is_the_fastest_that_fits():
    """No micro-batch that fits would have been faster."""
    row = {**LLAMA, "micro_batch": "", "vpp": "1"}
    chosen, *others = answers([row, *({**row, "micro_batch": str(size)} for size in (1, 2, 4, 8))])
    assert chosen.fits != "no"
    assert chosen.costs.step_time_s == min(one.costs.step_time_s for one in others if one.fits != "no")
    assert "micro_batch=" in chosen.message


def test_open_degrees_are_one_unless_nothing_fits():
    """A model that needs no splitting is not split; one that does is split until it fits."""
    small, large = answers(
        [
            {**LLAMA, "tp": "", "pp": "", "micro_batch": "", "vpp": ""},
            {**LLAMA, "model": "llama3-70b", "tp": "", "pp": "", "micro_batch": "", "vpp": ""},
        ]
    )
    assert small.run.layout["tp"] * small.run.layout["pp"] <= 2
    assert large.run.layout["tp"] * large.run.layout["pp"] >= 4
    assert large.fits != "no"


def test_open_expert_degrees_make_experts_fit():
    """Experts that a rank cannot hold alone are shared out."""
    (answer,) = answers([{**MIXTRAL, "ep": "", "n_gpus": "64", "pp": "1", "vpp": "", "global_batch_seqs": "256"}])
    assert answer.run.layout["ep"] > 1
    assert answer.fits != "no"

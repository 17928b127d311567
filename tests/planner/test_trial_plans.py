"""Plans to try: the best first, random and bad ones of all that run."""

from planner.request import build_request
from planner.trial_plans import trial_plans


def test_best_random_and_bad_plans_of_two_gpus() -> None:
    """The best come in order and differ in mesh, micro-batch or schedule; bad ones are slow; none comes twice."""
    request = build_request(
        "data/loop/small-llama.toml", 2, gpu="l4", gpus_per_node=2, seq_len="128", global_batch=4, recipe="runtime-cpu"
    ).replaced(fixed={"cp": 1})
    trials = trial_plans(request, best=5, at_random=3, bad=2, seed=0, runs=lambda document: True)
    assert [trial.kind for trial in trials] == ["best"] * 5 + ["random"] * 3 + ["bad"] * 2
    best = [trial.predicted_s for trial in trials if trial.kind == "best"]
    assert best == sorted(best)
    assert min(trial.predicted_s for trial in trials if trial.kind == "bad") > best[-1]
    assert len({trial.document.configuration.model_dump_json() for trial in trials}) == 10
    assert all(trial.document.parallelism.gpus_used == 2 for trial in trials)
    none = trial_plans(request, best=5, at_random=3, bad=2, seed=0, runs=lambda document: False)
    assert none == []

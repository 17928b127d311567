"""`python -m tests.oracles.mist.report` prints the figures of docs/mist.md."""

from dataclasses import replace

import numpy as np

from planner.offload import host_share_bytes
from tests.oracles.mist.gpt import gpt
from tests.oracles.mist.hardware import Card, artifact
from tests.oracles.mist.plan import Stage, analyse, stages_of, step_seconds
from tests.oracles.mist.product import Predicted
from tests.oracles.mist.tuner import Job, tune

GIB = 2.0**30
JOBS = {
    "1.3b on 2": (Job(gpt("1.3b", flash=False), Card("locked"), 2, 32), 9.26892465),
    "2.7b on 8": (Job(gpt("2.7b", flash=True), Card("free"), 8, 128), 11.632),
    "7b on 8": (Job(gpt("7b", flash=True), Card("free"), 8, 128), 27.608),
}


def mirror() -> None:
    """Print the mirror beside Mist's own figures."""
    print("mirror                    step s      Mist    error    peaks  Mist to measured")
    small = gpt("1.3b", flash=False)
    found = analyse(small, Card("locked"), gpus=2, batch=8, micro_batches=2, stages=[Stage(24, 24)])
    worst = max(found.forward_mib[0] / 19255.25 - 1, found.backward_mib[0] / 19503.125 - 1, key=abs)
    print(f"worked example        {found.step_s:10.4f}{10.659405:10.4f}{found.step_s / 10.659405 - 1:9.3%}{worst:9.4%}")
    for run in artifact()["runs"]:
        if run["predicted_s"]:
            card = Card("free" if run["size"] == "7b" else "locked")
            sizes = {"gpus": run["gpus"], "batch": run["stages"][0]["micro_batch"]}
            stages = stages_of(run)
            model = gpt(run["size"], run["flash"])
            found = analyse(model, card, **sizes, micro_batches=run["micro_batches"], stages=stages)
            worst = np.abs(np.array(found.peaks_mib) / run["predicted_mib"] - 1).max()
            name, expected = f"{run['size']} {'flash' if run['flash'] else 'scores'}", run["predicted_s"]
            of_measured = expected / run["measured_s"] - 1
            error = found.step_s / expected - 1
            print(f"{name:22}{found.step_s:10.4f}{expected:10.4f}{error:9.3%}{worst:9.4%}{of_measured:8.1%}")


def tuner() -> None:
    """Print the plans found under the mirror beside those of Mist's tuner."""
    print("\ntuner                     step s      Mist  gained  plan")
    for name, (job, expected) in JOBS.items():
        best = tune(job)
        assert best is not None
        setting = best.setting
        stages = " ".join(f"{stage.layers}/{stage.recomputed}" for stage in best.stages)
        plan = f"pp {setting.stages}, b {setting.batch}, m {setting.micro_batches}, layers/recomputed {stages}"
        print(f"{name:22}{best.step_s:10.4f}{expected:10.4f}{1 - best.step_s / expected:8.2%}  {plan}")


def measured() -> None:
    """Print the product's prediction of each measured run, and what it has that Mist's model has not."""
    print("\nproduct               measured  step s   error  memory    hops optimizer  merged  host GiB")
    for run in artifact()["runs"]:
        predicted = Predicted.of(run)
        name = f"{run['family']} {run['size']} {'flash' if run['flash'] else 'scores'}"
        taken, step_s = run["measured_s"], predicted.step_s
        memory = max(predicted.allocated_mib / run["measured_allocated_mib"] - 1, key=abs)
        times = predicted.times
        no_hops = replace(times, hop_s=np.zeros_like(times.hop_s))
        without_s = predicted.replayed_s(no_hops)
        stable = (times.forward_s + times.input_grad_s + times.weight_grad_s).sum(axis=1).tolist()
        merged_s = step_seconds(stable, (times.first_s + times.last_s).tolist(), run["micro_batches"])
        merged = (merged_s + predicted.global_s) / without_s - 1
        error = step_s / taken - 1
        shares = f"{1 - without_s / step_s:8.2%}{predicted.global_s / step_s:10.2%}{merged:8.2%}"
        host = predicted.stages["host_bytes"].max() / GIB
        print(f"{name:22}{taken:8.3f}{step_s:8.3f}{error:8.1%}{memory:8.1%}{shares}{host:10.1f}")
    room = host_share_bytes(predicted.candidate.pipeline.model.request) / GIB
    print(f"host memory that a GPU may take: {room:.0f} GiB")


def head() -> None:
    """Print what a batch of no sequences makes of Mist's head."""
    model, card = gpt("7b", flash=True), Card("free")
    added_s = card.accumulation_s(model.vocab_parameters)
    whole, nothing = (1e3 * (sum(card.operators_s(model.head_operators(batch))) + added_s) for batch in (1, 0))
    print(f"\nhead of 7b, a micro-batch: {whole:.1f} ms at batch 1, {nothing:.1f} ms at batch 0")


def main() -> None:
    """Print all of it."""
    mirror()
    tuner()
    measured()
    head()


if __name__ == "__main__":
    main()

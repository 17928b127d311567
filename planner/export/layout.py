"""The layout of a plan from the degrees that a launcher's file gives, and the configuration of it."""

from collections.abc import Sequence
from typing import Any

from cost_models.specs.errors import SpecError
from cost_models.specs.workload import WorkloadSpec
from planner.document import Configuration, Parallelism
from planner.errors import LauncherFileError
from planner.export.bundle import Job
from planner.export.choice import Choice, stages_of

__all__ = ["configuration_of", "even_chunks"]


def configuration_of(
    job: Job,
    choice: Choice,
    layers: Sequence[int],
    *,
    seq_len: int,
    global_batch: int,
    precision: str,
    optimizer: str = "adamw",
    **degrees: Any,
) -> Configuration:
    """The configuration with these degrees (those of `Parallelism`; all but tp, pp and micro_batch_size may be left
    out) and chunks of so many `layers`, in the order of the layers. Raises LauncherFileError where they do not agree.
    """
    given = {"vpp": 1, "cp": 1, "ep": 1, "etp": 1, "dp_replicate": 1, "schedule": "1f1b", **degrees}
    inner = given["tp"] * given["cp"] * given["pp"]
    dp = max(job.gpus_used // inner, 1)
    of_step = dp * given["micro_batch_size"]
    if inner * dp != job.gpus_used or global_batch % of_step:
        message = (
            f"tp {given['tp']}, cp {given['cp']}, pp {given['pp']} and micro-batches of {given['micro_batch_size']} do "
            f"not divide {job.gpus_used} GPUs and a batch of {global_batch}"
        )
        raise LauncherFileError(message)
    if choice.zero_stage == 0:  # nothing is sharded: all ranks are one group by name
        given["dp_replicate"] = 1
    given = {"dp_shard": dp // given["dp_replicate"], "sequence_parallel": False, **given}
    if given["cp"] > 1 and given.get("cp_type") == "ulysses":
        given["cp_heads"] = given["cp"]
    try:
        return Configuration(
            model=job.model,
            cluster=job.cluster,
            recipe=job.recipe,
            workload=WorkloadSpec(
                seq_len=seq_len,
                global_batch=global_batch,
                precision=precision,
                optimizer=optimizer,
                expert_imbalance=job.expert_imbalance,
                document_mask_imbalance=job.document_mask_imbalance,
            ),
            parallelism=Parallelism(
                **given,
                dp=dp,
                num_microbatches=global_batch // of_step,
                gpus_used=job.gpus_used,
                gpus_idle=job.cluster.gpus - job.gpus_used,
            ),
            stages=stages_of(given["schedule"], given["pp"], given["vpp"], layers, choice),
        )
    except (SpecError, ValueError) as error:
        message = f"the files do not describe a plan: {error}"
        raise LauncherFileError(message) from error


def even_chunks(layers: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Equal chunks of so many layers, int[pp * vpp]. Raises LauncherFileError where they do not divide."""
    if layers % (pp * vpp):
        message = f"{layers} layers cannot be split into {pp} * {vpp} equal chunks"
        raise LauncherFileError(message)
    return (layers // (pp * vpp),) * (pp * vpp)

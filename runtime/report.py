"""Measured against predicted, a row for each stage, in the columns that `plan evaluate` reads."""

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from cost_models.schedules import V_SHAPED
from planner.document import PlanDocument, Stage, virtual_stages

__all__ = ["report_text"]

GIB = 2.0**30
WARM_UP_STEPS = 1


def report_text(document: PlanDocument, records: Sequence[dict[str, Any]]) -> str:
    """The report as CSV. `records` are those of a run's steps; the first, which pays for warming up, counts only alone.

    Memory is what the device's allocator had given out at most; on a CPU what the process held.
    """
    counted = records[WARM_UP_STEPS:] or records
    rows = [_row(document, index, stage, counted) for index, stage in enumerate(document.stages)]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(document: PlanDocument, index: int, stage: Stage, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    time_s = statistics.median(record["stage_step_time_s"][index] for record in records)
    peak_bytes = max(record["stage_peak_memory_bytes"][index] for record in records)
    tokens = document.workload.seq_len * document.parallelism.global_batch
    predicted, total = stage.predicted, document.predicted
    return {
        "id": f"stage-{index}",
        **_configuration(document, stage),
        "step_time_s": f"{time_s:.6g}",
        "tokens_per_s_per_gpu": f"{tokens / time_s / document.parallelism.gpus_used:.6g}",
        "peak_mem_gib": f"{peak_bytes / GIB:.6g}",
        "predicted_step_time_s": f"{total.step_time_s:.6g}",
        "predicted_step_time_low_s": f"{total.step_time_low_s:.6g}",
        "predicted_step_time_high_s": f"{total.step_time_high_s:.6g}",
        "predicted_tokens_per_s_per_gpu": f"{total.tokens_per_s_per_gpu:.6g}",
        "predicted_peak_allocated_gib": f"{predicted.allocated_bytes / GIB:.6g}",
        "predicted_peak_reserved_gib": f"{predicted.reserved_bytes / GIB:.6g}",
        "notes": "; ".join(_notes(document, index, stage, records[0]["device"])),
    }


def _configuration(document: PlanDocument, stage: Stage) -> dict[str, Any]:
    model, layout, cluster = document.model, document.parallelism, document.cluster
    return {
        "source": "plan run",
        "model": model.name,
        "n_layers": model.layers,
        "hidden": model.hidden,
        "ffn": model.ffn,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "vocab": model.vocab,
        "gpu": cluster.gpu.name,
        "n_gpus": layout.gpus_used,
        "gpus_per_node": cluster.gpus_per_node,
        "seq_len": document.workload.seq_len,
        "global_batch_seqs": layout.global_batch,
        "micro_batch": layout.micro_batch_size,
        "tp": layout.tp,
        "sp": int(layout.sequence_parallel),
        "pp": layout.pp,
        "vpp": layout.vpp,
        "cp": layout.cp,
        "ep": layout.ep,
        "etp": layout.etp,
        "dp": layout.dp,
        "zero_or_fsdp": _sharding(stage, layout.dp_replicate),
        "recompute": _recompute(stage),
        "offload": "none",
        "precision": document.workload.precision,
        "framework": "meshplan",
        "recipe": document.recipe.name,
        "schedule": layout.schedule,
        "stage_layers": ",".join(map(str, _layers(document))),
    }


def _notes(document: PlanDocument, index: int, stage: Stage, device: str) -> Iterator[str]:
    """What no column says, as evaluate reads notes; the layers that are recomputed where they are not all."""
    yield f"stage={index}"
    yield f"device={device}"
    if document.parallelism.dp_replicate > 1:
        yield f"shard size={document.parallelism.dp_shard}"
    if 0 < stage.recompute.layers < stage.layers:
        yield f"recomputed layers={stage.recompute.layers} of {stage.layers}"


def _sharding(stage: Stage, replicas: int) -> str:
    if stage.zero_stage < 3:
        return f"zero{stage.zero_stage}"
    if not stage.reshard_after_forward:
        return "grad_op"
    return "hsdp" if replicas > 1 else "fsdp"


def _recompute(stage: Stage) -> str:
    modules = stage.recompute.set
    if "full" in modules:
        return "full"
    return f"selective:{'+'.join(modules)}" if modules else "none"


def _layers(document: PlanDocument) -> list[int]:
    """Layers of every virtual stage, of every rank where a V places them otherwise than a table of runs can say."""
    if document.parallelism.schedule in V_SHAPED:
        return [stage.layers for stage in document.stages]
    return [chunk.layers for chunk in virtual_stages(document.stages, document.parallelism.schedule)]

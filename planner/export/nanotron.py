"""nanotron: the sections of its YAML that set parallelism, batch and sharding."""

from collections.abc import Mapping
from typing import Any

from planner.document import Configuration
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import Choice
from planner.export.launch import torchrun
from planner.export.layout import configuration_of, even_chunks
from planner.export.reading import yaml_table, yaml_text
from planner.rules.nanotron import NANOTRON

__all__ = ["bundle", "plan"]

FILE = "nanotron.yaml"
ENGINES = {"1f1b": "1f1b", "gpipe": "afab"}
# Its asynchronous tensor parallelism is checked to run with one connection.
CONNECTIONS = "1"


def bundle(configuration: Configuration) -> Bundle:
    """The plan as nanotron.yaml."""
    return Bundle(
        launcher=NANOTRON.name,
        versions=NANOTRON.versions,
        files={FILE: yaml_text(_config(configuration), "Put over these sections of a nanotron configuration.")},
        command=torchrun(configuration, f"run_train.py --config-file {FILE}"),
        env={"CUDA_DEVICE_MAX_CONNECTIONS": CONNECTIONS},
        notes=("Model, data and learning rate are sections of your configuration.",),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files. Raises LauncherFileError."""
    require(files, "nanotron", FILE)
    values = yaml_table(files[FILE])
    parallelism, tokens = values.section("parallelism"), values.section("tokens")
    size, steps = tokens.integer("micro_batch_size"), tokens.integer("batch_accumulation_per_replica", 1)
    tp, pp, cp = parallelism.integer("tp"), parallelism.integer("pp"), parallelism.integer("context_parallel_size", 1)
    engines = {theirs: ours for ours, theirs in ENGINES.items()}
    choice = Choice(
        zero_stage=values.section("optimizer").integer("zero_stage", 0),
        recompute=("full",) if parallelism.flag("recompute_layer") else (),
    )
    return configuration_of(
        job,
        choice,
        even_chunks(job.model.layers, pp, 1),
        seq_len=tokens.integer("sequence_length"),
        global_batch=size * steps * parallelism.integer("dp"),
        precision="bf16",
        tp=tp,
        sequence_parallel=tp > 1 and parallelism.word("tp_mode", ("ALL_REDUCE", "REDUCE_SCATTER")) == "REDUCE_SCATTER",
        pp=pp,
        cp=cp,
        **({"cp_type": "ring"} if cp > 1 else {}),
        ep=parallelism.integer("expert_parallel_size", 1),
        etp=tp if job.model.moe else 1,
        schedule=engines[parallelism.word("pp_engine", tuple(engines))],
        micro_batch_size=size,
    )


def _config(configuration: Configuration) -> dict[str, Any]:
    layout, choice = configuration.parallelism, Choice.of(configuration)
    return {
        "parallelism": {
            "dp": layout.dp,
            "pp": layout.pp,
            "tp": layout.tp,
            "context_parallel_size": layout.cp,
            "expert_parallel_size": layout.ep,
            "pp_engine": ENGINES[layout.schedule],
            "tp_mode": "REDUCE_SCATTER" if layout.sequence_parallel else "ALL_REDUCE",
            "tp_linear_async_communication": configuration.recipe.overlap_tensor_parallel and layout.sequence_parallel,
            "recompute_layer": bool(choice.recompute),
        },
        "tokens": {
            "sequence_length": configuration.workload.seq_len,
            "micro_batch_size": layout.micro_batch_size,
            "batch_accumulation_per_replica": layout.num_microbatches,
        },
        "optimizer": {
            "zero_stage": choice.zero_stage,
            "accumulate_grad_in_fp32": configuration.recipe.gradient_bytes >= 4,
        },
        "model": {"dtype": "bfloat16"},
    }

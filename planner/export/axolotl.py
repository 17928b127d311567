"""Axolotl: the parallel part of its YAML."""

from collections.abc import Mapping
from typing import Any

from planner.document import Configuration
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import Choice, states_on_host
from planner.export.launch import torchrun
from planner.export.layout import configuration_of
from planner.export.reading import yaml_table, yaml_text
from planner.rules.accelerate import AXOLOTL

__all__ = ["bundle", "plan"]

FILE = "axolotl.yaml"
# Of the optimizers with moments of 8 bits, the one that works on FSDP2's shards.
OPTIMIZERS = {"adamw": "adamw_torch_fused", "adamw-8bit": "adamw_torch_8bit"}
# ring_flash_attn gathers keys and values in its Llama 3 form, or sends them round.
CONTEXT = {"all_gather": "varlen_llama3", "ring": "batch_ring"}


def bundle(configuration: Configuration) -> Bundle:
    """The plan as axolotl.yaml."""
    return Bundle(
        launcher=AXOLOTL.name,
        versions=AXOLOTL.versions,
        files={FILE: yaml_text(_config(configuration), "Put over the same keys of an Axolotl configuration.")},
        command=torchrun(configuration, f"-m axolotl.cli.train {FILE}"),
        notes=("Model, data sets and optimizer are keys of your configuration.",),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files. Raises LauncherFileError."""
    require(files, "axolotl", FILE)
    values = yaml_table(files[FILE])
    fsdp, sharded = values.section("fsdp_config"), "fsdp_config" in values
    tp, cp = values.integer("tensor_parallel_size", 1), values.integer("context_parallel_size", 1)
    kinds = {theirs: ours for ours, theirs in CONTEXT.items()}
    optimizers = {theirs: ours for ours, theirs in OPTIMIZERS.items()}
    recompute = fsdp.flag("activation_checkpointing") or values.flag("gradient_checkpointing")
    choice = Choice(
        zero_stage=3 if sharded else 0,
        reshard_after_forward=sharded and fsdp.flag("reshard_after_forward", True),
        recompute=("full",) if recompute else (),
        offload=states_on_host(fsdp.flag("offload_params"), activations=values.flag("activation_offloading")),
    )
    size, steps = values.integer("micro_batch_size"), values.integer("gradient_accumulation_steps", 1)
    return configuration_of(
        job,
        choice,
        (job.model.layers,),
        seq_len=values.integer("sequence_len"),
        global_batch=size * steps * (job.gpus_used // max(tp * cp, 1)),
        precision="fp8" if values.flag("fp8") else "bf16",
        optimizer=optimizers[values.word("optimizer", tuple(optimizers), OPTIMIZERS["adamw"])],
        tp=tp,
        pp=1,
        cp=cp,
        **({"cp_type": kinds[values.word("ring_attn_func", tuple(kinds), "varlen_llama3")]} if cp > 1 else {}),
        etp=tp if job.model.moe else 1,
        dp_replicate=values.integer("dp_replicate_size", 1),
        micro_batch_size=size,
    )


def _config(configuration: Configuration) -> dict[str, Any]:
    layout, workload, choice = configuration.parallelism, configuration.workload, Choice.of(configuration)
    sharded, offloads = choice.zero_stage == 3, choice.offload.activations > 0
    values: dict[str, Any] = {
        "micro_batch_size": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.num_microbatches,
        "sequence_len": workload.seq_len,
        "bf16": True,
        "optimizer": OPTIMIZERS[workload.optimizer],
        **({"fp8": True} if workload.precision == "fp8" else {}),
        "tensor_parallel_size": layout.tp,
        "context_parallel_size": layout.cp,
        "gradient_checkpointing": bool(choice.recompute) and (offloads or not sharded),
    }
    if sharded or layout.tp > 1:
        values |= {"dp_shard_size": layout.dp_shard, "dp_replicate_size": layout.dp_replicate}
    if offloads:
        values["activation_offloading"] = True
    if layout.cp > 1:
        values |= {"ring_attn_func": CONTEXT[layout.cp_type], "attn_implementation": "flash_attention_2"}
    if sharded:
        values |= {
            "fsdp_version": 2,
            "fsdp_config": {
                "reshard_after_forward": choice.reshard_after_forward,
                "offload_params": choice.offload.weights > 0,
                "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "state_dict_type": "SHARDED_STATE_DICT",
                "activation_checkpointing": bool(choice.recompute) and not offloads,
            },
        }
    return values

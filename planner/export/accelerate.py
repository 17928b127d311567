"""Hugging Face accelerate: the YAML of `accelerate launch`, and what the training script must be told beside it."""

from collections.abc import Mapping
from typing import Any

from planner.document import Configuration
from planner.export.arguments import Value, as_text, parsed
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import Choice, states_on_host
from planner.export.layout import configuration_of
from planner.export.reading import Section, yaml_table, yaml_text
from planner.rules.accelerate import ACCELERATE

__all__ = ["CONTEXT", "OPTIMIZERS", "bundle", "layers_and_degrees", "optimizer_of", "plan"]

FILE, SCRIPT_FILE = "accelerate.yaml", "script.args"
OPTIMIZERS = {"adamw": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit"}
CONTEXT = {"all_gather": "allgather", "ring": "alltoall"}


def bundle(configuration: Configuration) -> Bundle:
    """The plan as accelerate.yaml and the arguments of the training script."""
    layout, workload, choice = configuration.parallelism, configuration.workload, Choice.of(configuration)
    gpus, of_node = layout.gpus_used, configuration.cluster.gpus_per_node
    script: dict[str, Value] = {
        "per_device_train_batch_size": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.num_microbatches,
        "max_length": workload.seq_len,
        "gradient_checkpointing": bool(choice.recompute) and choice.zero_stage == 0,
        "optim": OPTIMIZERS[workload.optimizer],
    }
    uneven = (f"accelerate starts equally many ranks on every node, {gpus} are on nodes of {of_node}.",)
    return Bundle(
        launcher=ACCELERATE.name,
        versions=ACCELERATE.versions,
        files={
            FILE: yaml_text(_config(configuration, choice), "Configuration of accelerate launch."),
            SCRIPT_FILE: as_text(script, separator="_"),
        },
        command=(
            f"exec accelerate launch --config_file {FILE} --machine_rank ${{NODE_RANK:-0}} "
            f"--main_process_ip ${{MASTER_ADDR:-localhost}} --main_process_port ${{MASTER_PORT:-29500}} "
            f"train.py $(cat {SCRIPT_FILE})"
        ),
        notes=(
            "train.py is your script; it prepares model, optimizer and data with an Accelerator.",
            *(uneven if gpus > of_node and gpus % of_node else ()),
        ),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files. Raises LauncherFileError."""
    require(files, "accelerate", FILE, SCRIPT_FILE)
    values, script = yaml_table(files[FILE]), Section(parsed(files[SCRIPT_FILE], "_"))
    fsdp = values.section("fsdp_config")
    sharded = values.word("distributed_type", ("FSDP", "MULTI_GPU", "NO")) == "FSDP"
    recompute = fsdp.flag("fsdp_activation_checkpointing") or script.flag("gradient_checkpointing")
    on_host = fsdp.flag("fsdp_activation_checkpointing_offload")
    choice = Choice(
        zero_stage=3 if sharded else 0,
        reshard_after_forward=sharded and fsdp.flag("fsdp_reshard_after_forward", True),
        recompute=("full",) if recompute else (),
        offload=states_on_host(fsdp.flag("fsdp_offload_params"), activations=on_host),
    )
    size = script.integer("per_device_train_batch_size")
    steps = script.integer("gradient_accumulation_steps", 1)
    degrees = layers_and_degrees(values.section("parallelism_config"), job, "parallelism_config_")
    return configuration_of(
        job,
        choice,
        **degrees,
        seq_len=script.integer("max_length"),
        global_batch=size * steps * (job.gpus_used // max(degrees["tp"] * degrees["cp"], 1)),
        precision=values.word("mixed_precision", ("bf16", "fp8")),
        optimizer=optimizer_of(script, "optim"),
        micro_batch_size=size,
    )


def layers_and_degrees(sizes: Section, job: Job, prefix: str) -> dict[str, Any]:
    """Degrees of a ParallelismConfig whose keys begin with `prefix`; all layers are on every rank."""
    tp, cp = sizes.integer(f"{prefix}tp_size", 1), sizes.integer(f"{prefix}cp_size", 1)
    degrees: dict[str, Any] = {"tp": tp, "cp": cp, "pp": 1, "layers": (job.model.layers,)}
    if cp > 1:
        kinds = {theirs: ours for ours, theirs in CONTEXT.items()}
        degrees["cp_type"] = kinds[sizes.word(f"{prefix}cp_comm_strategy", tuple(kinds), "allgather")]
    if job.model.moe:
        degrees["etp"] = tp
    return {**degrees, "dp_replicate": sizes.integer(f"{prefix}dp_replicate_size", 1)}


def optimizer_of(values: Section, key: str) -> str:
    """Our name of the optimizer that a key names."""
    names = {theirs: ours for ours, theirs in OPTIMIZERS.items()}
    return names[values.word(key, tuple(names), OPTIMIZERS["adamw"])]


def _config(configuration: Configuration, choice: Choice) -> dict[str, Any]:
    layout, sharded = configuration.parallelism, choice.zero_stage == 3
    gpus, of_node = layout.gpus_used, configuration.cluster.gpus_per_node
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if sharded else "MULTI_GPU" if gpus > 1 else "NO",
        "num_machines": -(-gpus // of_node),
        "num_processes": gpus,
        "mixed_precision": configuration.workload.precision,
    }
    if sharded:
        values["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": choice.reshard_after_forward,
            "fsdp_offload_params": choice.offload.weights > 0,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_activation_checkpointing": bool(choice.recompute),
            "fsdp_activation_checkpointing_offload": choice.offload.activations > 0,
        }
    if sharded or layout.tp > 1:
        values["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": layout.dp_replicate,
            "parallelism_config_dp_shard_size": layout.dp_shard,
            "parallelism_config_tp_size": layout.tp,
            "parallelism_config_cp_size": layout.cp,
            **({"parallelism_config_cp_comm_strategy": CONTEXT[layout.cp_type]} if layout.cp > 1 else {}),
        }
    return values

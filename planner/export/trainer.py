"""The transformers Trainer: TrainingArguments as JSON, and the parallelism that JSON cannot hold as Python."""

import json
from collections.abc import Mapping
from typing import Any

from planner.document import Configuration
from planner.export.accelerate import CONTEXT, OPTIMIZERS, layers_and_degrees, optimizer_of
from planner.export.arguments import as_text, parsed
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import Choice, states_on_host
from planner.export.launch import torchrun
from planner.export.layout import configuration_of
from planner.export.reading import Section, json_table, literals
from planner.rules.accelerate import TRAINER

__all__ = ["bundle", "plan"]

FILE, PYTHON_FILE, SCRIPT_FILE = "training_arguments.json", "parallelism.py", "script.args"
PYTHON = '''\
"""The plan's TrainingArguments: `training_arguments(output_dir)` for a Trainer."""

import json
from pathlib import Path

from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import TorchContextParallelConfig
from transformers import TrainingArguments

PARALLELISM = {parallelism!r}


def training_arguments(output_dir, **more):
    """The arguments of training_arguments.json with the plan's parallelism; `more` are any others."""
    given = json.loads(Path(__file__).with_name("training_arguments.json").read_text())
    sizes = dict(PARALLELISM)
    strategy = sizes.pop("cp_comm_strategy", None)
    if strategy is not None:
        sizes["cp_handler"] = TorchContextParallelConfig(cp_comm_strategy=strategy)
    parallelism = ParallelismConfig(**sizes) if sizes else None
    return TrainingArguments(output_dir, parallelism_config=parallelism, **given, **more)
'''


def bundle(configuration: Configuration) -> Bundle:
    """The plan as training_arguments.json and parallelism.py, which reads it."""
    choice, sizes = Choice.of(configuration), _sizes(configuration)
    script = {"max_length": configuration.workload.seq_len}
    return Bundle(
        launcher=TRAINER.name,
        versions=TRAINER.versions,
        files={
            FILE: json.dumps(_arguments(configuration, choice), indent=2) + "\n",
            PYTHON_FILE: PYTHON.format(parallelism=sizes),
            SCRIPT_FILE: as_text(script, separator="_"),
        },
        command=torchrun(configuration, f"train.py $(cat {SCRIPT_FILE})"),
        notes=("train.py is your script: it gives parallelism.training_arguments(...) to a Trainer.",),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files. Raises LauncherFileError."""
    require(files, "trainer", FILE, PYTHON_FILE, SCRIPT_FILE)
    values, script = json_table(files[FILE]), Section(parsed(files[SCRIPT_FILE], "_"))
    sizes = Section(literals(files[PYTHON_FILE])).section("PARALLELISM")
    fsdp, sharded = values.section("fsdp_config"), values.flag("fsdp")
    recompute = fsdp.flag("activation_checkpointing") or values.flag("gradient_checkpointing")
    choice = Choice(
        zero_stage=3 if sharded else 0,
        reshard_after_forward=sharded and fsdp.flag("reshard_after_forward", True),
        recompute=("full",) if recompute else (),
        offload=states_on_host(fsdp.flag("cpu_offload")),
    )
    size, steps = (values.integer(name) for name in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    degrees = layers_and_degrees(sizes, job, "")
    return configuration_of(
        job,
        choice,
        **degrees,
        seq_len=script.integer("max_length"),
        global_batch=size * steps * (job.gpus_used // max(degrees["tp"] * degrees["cp"], 1)),
        precision="bf16",
        optimizer=optimizer_of(values, "optim"),
        micro_batch_size=size,
    )


def _arguments(configuration: Configuration, choice: Choice) -> dict[str, Any]:
    layout, sharded = configuration.parallelism, choice.zero_stage == 3
    values: dict[str, Any] = {
        "per_device_train_batch_size": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.num_microbatches,
        "bf16": True,
        "optim": OPTIMIZERS[configuration.workload.optimizer],
        "gradient_checkpointing": bool(choice.recompute) and not sharded,
    }
    if sharded:
        values |= {
            "fsdp": True,
            "fsdp_config": {
                "version": 2,
                "reshard_after_forward": choice.reshard_after_forward,
                "cpu_offload": choice.offload.weights > 0,
                "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "state_dict_type": "SHARDED_STATE_DICT",
                "activation_checkpointing": bool(choice.recompute),
            },
        }
    return values


def _sizes(configuration: Configuration) -> dict[str, Any]:
    """Arguments of ParallelismConfig; none where data parallelism is all there is."""
    layout = configuration.parallelism
    if configuration.stages[0].zero_stage == 0 and layout.tp == 1:
        return {}
    names = ("dp_replicate", "dp_shard", "tp", "cp")
    strategy = {"cp_comm_strategy": CONTEXT[layout.cp_type]} if layout.cp > 1 else {}
    return {f"{name}_size": getattr(layout, name) for name in names} | strategy

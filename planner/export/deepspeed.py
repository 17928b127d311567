"""DeepSpeed: its JSON configuration, and PipelineModule's arguments as Python where there is a pipeline."""

import json
from collections.abc import Mapping
from typing import Any

from planner.document import Configuration, Offload
from planner.export.arguments import as_text, parsed
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import Choice
from planner.export.launch import torchrun
from planner.export.layout import configuration_of, even_chunks
from planner.export.reading import Section, json_table
from planner.rules.deepspeed import DEEPSPEED

__all__ = ["bundle", "plan"]

FILE, SCRIPT_FILE, PIPELINE_FILE = "deepspeed.json", "script.args", "pipeline.py"
PIPELINE = '''\
"""The model of train.py as the plan's pipeline: layers are dealt to its ranks evenly."""

from deepspeed.pipe import PipelineModule


def pipelined(layers, loss_fn):
    """The transformer layers of a model, a list of modules or LayerSpecs, on {stages} pipeline ranks."""
    return PipelineModule(
        layers=layers,
        loss_fn=loss_fn,
        num_stages={stages},
        partition_method="type:.*(Layer|Block)",
        activation_checkpoint_interval={interval},
    )
'''


def bundle(configuration: Configuration) -> Bundle:
    """The plan as deepspeed.json; what its script is told apart, and pipeline.py for pp above 1."""
    layout, choice = configuration.parallelism, Choice.of(configuration)
    files = {
        FILE: json.dumps(_config(configuration, choice), indent=2) + "\n",
        SCRIPT_FILE: as_text({"seq_length": configuration.workload.seq_len}, separator="_"),
    }
    if layout.pp > 1:
        files[PIPELINE_FILE] = PIPELINE.format(stages=layout.pp, interval=int(bool(choice.recompute)))
    return Bundle(
        launcher=DEEPSPEED.name,
        versions=DEEPSPEED.versions,
        files=files,
        command=torchrun(configuration, f"train.py --deepspeed --deepspeed_config {FILE} $(cat {SCRIPT_FILE})"),
        notes=(
            "train.py is your script: it builds the model and passes deepspeed.json to deepspeed.initialize.",
            *(("Layers are recomputed where the model calls deepspeed.checkpointing.",) if choice.recompute else ()),
        ),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files. Raises LauncherFileError."""
    require(files, "deepspeed", FILE, SCRIPT_FILE)
    values = json_table(files[FILE])
    tp = values.section("tensor_parallel").integer("autotp_size", 1)
    pp, cp = values.section("pipeline").integer("stages", 1), values.integer("sequence_parallel_size", 1)
    return configuration_of(
        job,
        _choice(values),
        even_chunks(job.model.layers, pp, 1),
        seq_len=Section(parsed(files[SCRIPT_FILE], "_")).integer("seq_length"),
        global_batch=values.integer("train_batch_size"),
        precision="bf16",
        tp=tp,
        pp=pp,
        cp=cp,
        **({"cp_type": "ulysses"} if cp > 1 else {}),
        etp=tp if job.model.moe else 1,
        micro_batch_size=values.integer("train_micro_batch_size_per_gpu"),
    )


def _config(configuration: Configuration, choice: Choice) -> dict[str, Any]:
    layout, full = configuration.parallelism, bool(choice.recompute)
    values: dict[str, Any] = {
        "train_batch_size": configuration.workload.global_batch,
        "train_micro_batch_size_per_gpu": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.num_microbatches,
        "bf16": {"enabled": True},
        "zero_optimization": _zero(configuration, choice),
    }
    if layout.tp > 1:
        values["tensor_parallel"] = {"autotp_size": layout.tp}
    if layout.cp > 1:
        values["sequence_parallel_size"] = layout.cp
    if layout.pp > 1:
        values["pipeline"] = {
            "stages": layout.pp,
            "partition": "type:.*(Layer|Block)",
            "activation_checkpoint_interval": int(full),
        }
    if full:
        values["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": choice.offload.activations > 0,
            "number_checkpoints": configuration.model.layers,
        }
    return values


def _zero(configuration: Configuration, choice: Choice) -> dict[str, Any]:
    recipe = configuration.recipe
    values: dict[str, Any] = {
        "stage": choice.zero_stage,
        "overlap_comm": recipe.overlap_gradient_reduce,
        "contiguous_gradients": True,
        "reduce_scatter": choice.zero_stage > 0,
    }
    if choice.offload.optimizer:
        values["offload_optimizer"] = {"device": "cpu", "pin_memory": True, "ratio": choice.offload.optimizer}
    if choice.offload.weights:
        values["offload_param"] = {"device": "cpu", "pin_memory": True}
    return values


def _choice(values: Section) -> Choice:
    zero, checkpoints = values.section("zero_optimization"), values.section("activation_checkpointing")
    stage = zero.integer("stage", 0)
    moved = zero.section("offload_optimizer").number("ratio", 1.0) if "offload_optimizer" in zero else 0.0
    return Choice(
        zero_stage=stage,
        reshard_after_forward=stage == 3,
        recompute=("full",) if "number_checkpoints" in checkpoints else (),
        offload=Offload(
            weights=float("offload_param" in zero),
            gradients=moved,
            optimizer=moved,
            activations=float(checkpoints.flag("cpu_checkpointing")),
        ),
    )

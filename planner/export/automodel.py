"""NeMo AutoModel: the parts of a recipe's YAML that set parallelism and batch."""

from collections.abc import Mapping
from typing import Any

from planner.document import Configuration
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import Choice, states_on_host
from planner.export.launch import torchrun
from planner.export.layout import configuration_of
from planner.export.reading import Section, yaml_table, yaml_text
from planner.export.torch_pipeline import SCHEDULE_NAMES, ModuleNames, stages_read
from planner.rules.automodel import AUTOMODEL

__all__ = ["bundle", "plan"]

FILE = "automodel.yaml"
MODULES = ModuleNames("model.embed_tokens", "model.layers.", "model.norm", "lm_head")


def bundle(configuration: Configuration) -> Bundle:
    """The plan as sections of a recipe: distributed, step_scheduler, packed_sequence, and fp8 where asked for."""
    layout, workload, choice = configuration.parallelism, configuration.workload, Choice.of(configuration)
    in_pipeline = layout.num_microbatches if layout.pp > 1 else 1
    values: dict[str, Any] = {
        "step_scheduler": {
            "global_batch_size": workload.global_batch,
            "local_batch_size": layout.micro_batch_size * in_pipeline,
        },
        "dataset": {"seq_length": workload.seq_len},
        "distributed": _distributed(configuration, choice),
    }
    if workload.precision == "fp8":
        values["fp8"] = {"enabled": True}
    return Bundle(
        launcher=AUTOMODEL.name,
        versions=AUTOMODEL.versions,
        files={FILE: yaml_text(values, "Put over these sections of an AutoModel recipe; its model and data stay.")},
        command=torchrun(configuration, f"-m nemo_automodel.cli.app {FILE}"),
        notes=("Model, data and optimizer are sections of your recipe.",),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files. Raises LauncherFileError."""
    require(files, "automodel", FILE)
    values = yaml_table(files[FILE])
    distributed, steps = values.section("distributed"), values.section("step_scheduler")
    sharded = distributed.word("strategy", ("fsdp2", "ddp"), "fsdp2") == "fsdp2"
    degrees: dict[str, Any] = {name: distributed.integer(f"{name}_size", 1) for name in ("tp", "pp", "cp", "ep")}
    sharded = sharded and distributed.integer("dp_size", 1) * degrees["cp"] > 1
    choice = Choice(
        zero_stage=3 if sharded else 0,
        reshard_after_forward=sharded and distributed.flag("reshard_after_forward", True),
        recompute=("full",) if distributed.flag("activation_checkpointing") else (),
        offload=states_on_host(sharded and "offload_policy" in distributed),
    )
    return configuration_of(
        job,
        choice,
        **_pipeline(distributed.section("pipeline"), steps, degrees["pp"], job),
        **degrees,
        seq_len=values.section("dataset").integer("seq_length"),
        global_batch=steps.integer("global_batch_size"),
        precision="fp8" if values.section("fp8").flag("enabled") else "bf16",
        sequence_parallel=degrees["tp"] > 1 and distributed.flag("sequence_parallel"),
        dp_replicate=distributed.integer("dp_replicate_size", 1),
    )


def _pipeline(pipeline: Section, steps: Section, pp: int, job: Job) -> dict[str, Any]:
    local = steps.integer("local_batch_size")
    if pp == 1:
        return {"layers": (job.model.layers,), "micro_batch_size": local}
    size = pipeline.integer("pp_microbatch_size", 1)
    schedule, stages = pipeline.text("pp_schedule", "1f1b"), pipeline.items("module_fqns_per_model_part")
    return stages_read(MODULES, stages, schedule, local, size, pp)


def _distributed(configuration: Configuration, choice: Choice) -> dict[str, Any]:
    layout = configuration.parallelism
    if choice.zero_stage == 0 and layout.dp > 1:
        return {"strategy": "ddp", "dp_size": layout.dp, "activation_checkpointing": bool(choice.recompute)}
    values: dict[str, Any] = {
        "strategy": "fsdp2",
        "dp_size": layout.dp,
        **({"dp_replicate_size": layout.dp_replicate} if layout.dp_replicate > 1 else {}),
        **{f"{name}_size": getattr(layout, name) for name in ("tp", "pp", "cp", "ep")},
        "sequence_parallel": layout.sequence_parallel,
        "activation_checkpointing": bool(choice.recompute),
    }
    if choice.zero_stage == 3:
        values["reshard_after_forward"] = choice.reshard_after_forward
    if choice.offload.optimizer:
        values["offload_policy"] = {"_target_": "torch.distributed.fsdp.CPUOffloadPolicy", "pin_memory": True}
    if layout.pp > 1:
        values["pipeline"] = {
            "pp_schedule": SCHEDULE_NAMES[layout.schedule],
            "pp_microbatch_size": layout.micro_batch_size,
            "pp_batch_size": layout.micro_batch_size * layout.num_microbatches,
            "module_fqns_per_model_part": MODULES.lists(configuration),
        }
    return values

"""torchtitan: a Python recipe, which is the form of its configuration, and command-line flags where they suffice."""

from collections.abc import Mapping
from typing import Any

from planner.document import Configuration
from planner.export.arguments import as_text
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import EVERY_LAYER, Choice, states_on_host
from planner.export.launch import torchrun
from planner.export.layout import configuration_of
from planner.export.reading import Section, literals
from planner.export.torch_pipeline import SCHEDULE_NAMES, ModuleNames, stages_read
from planner.rules.torchtitan import TORCHTITAN

__all__ = ["MODULES", "bundle", "plan"]

RECIPE_FILE, FLAGS_FILE = "recipe.py", "flags.args"
MODULES = ModuleNames("tok_embeddings", "layers.", "norm", "lm_head")
# The functions of its registries that return the models of our catalog.
CONFIGS = {
    "llama3-8b": ("llama3", "llama3_8b"),
    "llama3.1-8b": ("llama3", "llama3_8b"),
    "llama3-70b": ("llama3", "llama3_70b"),
    "llama3.1-70b": ("llama3", "llama3_70b"),
    "llama3.3-70b": ("llama3", "llama3_70b"),
    "llama3.1-405b": ("llama3", "llama3_405b"),
    "deepseek-v2-lite": ("deepseek_v3", "deepseek_v3_16b"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
    "qwen3-0.6b": ("qwen3", "qwen3_0_6b"),
    "qwen3-1.7b": ("qwen3", "qwen3_1_7b"),
    "qwen3-14b": ("qwen3", "qwen3_14b"),
    "qwen3-32b": ("qwen3", "qwen3_32b"),
    "qwen3-30b-a3b": ("qwen3", "qwen3_30b_a3b"),
    "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b"),
}
HEAD = '''\
"""The parallel part of a plan for torchtitan: --module recipe --config plan, or apply() to a configuration of yours."""

from dataclasses import replace

from torchtitan.trainer import Trainer

'''
APPLY = '''

def apply(config: Trainer.Config) -> Trainer.Config:
    """The configuration with the plan's parallelism, batch and recompute."""
    from torchtitan.distributed.activation_checkpoint import FullAC

    {model_spec}return replace(
        config,
        parallelism=replace(config.parallelism, **PARALLELISM),
        training=replace(config.training, **TRAINING),
        activation_checkpoint=FullAC.Config() if FULL_RECOMPUTE else None,
        {replaced})
'''
FLOAT8 = """\
from torchtitan.components.quantization import Float8LinearConverter

    converter = Float8LinearConverter.Config(filter_fqns=["lm_head"], model_compile_enabled=config.compile.enable)
    model_spec = replace(config.model_spec, model=converter.build().convert(config.model_spec.model))
    """
PLAN = '''

def plan() -> Trainer.Config:
    """The configuration that torchtitan has for the model, with the plan applied."""
    from torchtitan.models.{module}.config_registry import {config}

    return apply({config}())
'''


def bundle(configuration: Configuration) -> Bundle:
    """The plan as a Python recipe, and as flags, which have no place for lists of modules and for fp8."""
    choice = Choice.of(configuration)
    parallelism, training = _parallelism(configuration, choice), _training(configuration, choice)
    full = choice.recompute == ("full",)
    fp8 = configuration.workload.precision == "fp8"
    values = (("PARALLELISM", parallelism), ("TRAINING", training), ("FULL_RECOMPUTE", full), ("FP8", fp8))
    known = CONFIGS.get(configuration.model.name)
    text = HEAD + "".join(f"{name} = {value!r}\n" for name, value in values)
    text += APPLY.format(model_spec=FLOAT8 if fp8 else "", replaced="model_spec=model_spec,\n    " if fp8 else "")
    files = {RECIPE_FILE: text.replace("        )\n", "    )\n")}
    if known:
        files[RECIPE_FILE] += PLAN.format(module=known[0], config=known[1])
    if "module_fqns_per_model_part" not in parallelism and not fp8:
        files[FLAGS_FILE] = _flags(full, parallelism=parallelism, training=training)
    return Bundle(
        launcher=TORCHTITAN.name,
        versions=TORCHTITAN.versions,
        files=files,
        command=torchrun(configuration, "-m torchtitan.train --module recipe --config plan"),
        env={"PYTHONPATH": ".", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        notes=() if known else ("recipe.py needs a plan() that applies it to the Trainer.Config of your model.",),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files, read off the recipe. Raises LauncherFileError."""
    require(files, "torchtitan", RECIPE_FILE)
    values = Section(literals(files[RECIPE_FILE]))
    parallelism, training = values.section("PARALLELISM"), values.section("TRAINING")
    degrees: dict[str, Any] = {
        "tp": parallelism.integer("tensor_parallel_degree", 1),
        "pp": parallelism.integer("pipeline_parallel_degree", 1),
        "cp": parallelism.integer("context_parallel_degree", 1),
        "ep": parallelism.integer("expert_parallel_degree", 1),
    }
    replicas, shards = (parallelism.integer(f"data_parallel_{name}_degree", 1) for name in ("replicate", "shard"))
    sharded = shards * degrees["cp"] > 1
    choice = Choice(
        zero_stage=3 if sharded else 0,
        reshard_after_forward=sharded
        and parallelism.word("fsdp_reshard_after_forward", ("always", "never"), "always") == "always",
        recompute=("full",) if values.flag("FULL_RECOMPUTE") else (),
        recompute_per_chunk=EVERY_LAYER,
        offload=states_on_host(training.flag("enable_cpu_offload")),
    )
    return configuration_of(
        job,
        choice,
        **_pipeline(parallelism, training, degrees["pp"], job),
        **degrees,
        seq_len=training.integer("seq_len"),
        global_batch=training.integer("global_batch_size"),
        precision="fp8" if values.flag("FP8") else "bf16",
        sequence_parallel=degrees["tp"] > 1 and parallelism.flag("enable_sequence_parallel", True),
        dp_replicate=replicas,
    )


def _pipeline(parallelism: Section, training: Section, pp: int, job: Job) -> dict[str, Any]:
    """Layers of the chunks, the schedule and the micro-batch; without a pipeline local_batch_size is one of them."""
    local = training.integer("local_batch_size")
    if pp == 1:
        return {"layers": (job.model.layers,), "micro_batch_size": local}
    size = parallelism.integer("pipeline_parallel_microbatch_size", 1)
    schedule, stages = parallelism.text("pipeline_parallel_schedule"), parallelism.items("module_fqns_per_model_part")
    return stages_read(MODULES, stages, schedule, local, size, pp)


def _parallelism(configuration: Configuration, choice: Choice) -> dict[str, Any]:
    layout = configuration.parallelism
    sharded = choice.zero_stage == 3
    values: dict[str, Any] = {
        "data_parallel_replicate_degree": layout.dp_replicate if sharded else layout.dp,
        "data_parallel_shard_degree": layout.dp_shard if sharded else 1,
        "fsdp_reshard_after_forward": "never" if sharded and not choice.reshard_after_forward else "always",
        "tensor_parallel_degree": layout.tp,
        "enable_sequence_parallel": layout.sequence_parallel,
        "pipeline_parallel_degree": layout.pp,
        "context_parallel_degree": layout.cp,
        "expert_parallel_degree": layout.ep,
    }
    if layout.pp > 1:
        values |= {
            "pipeline_parallel_schedule": SCHEDULE_NAMES[layout.schedule],
            "pipeline_parallel_microbatch_size": layout.micro_batch_size,
            "module_fqns_per_model_part": MODULES.lists(configuration),
        }
    return values


def _training(configuration: Configuration, choice: Choice) -> dict[str, Any]:
    layout = configuration.parallelism
    in_pipeline = layout.num_microbatches if layout.pp > 1 else 1
    return {
        "local_batch_size": layout.micro_batch_size * in_pipeline,
        "global_batch_size": configuration.workload.global_batch,
        "seq_len": configuration.workload.seq_len,
        "enable_cpu_offload": choice.offload.optimizer > 0,
        "disable_cuda_graphs": not configuration.recipe.cuda_graphs or layout.pp * layout.ep > 1,
    }


def _flags(full: bool, **sections: Mapping[str, Any]) -> str:
    """Flags that override a configuration; tyro spells a false one `--section.no-name`."""
    flags = {
        f"{section}.{'no-' if value is False else ''}{name}": value is False or value
        for section, values in sections.items()
        for name, value in values.items()
    }
    return as_text(flags, separator="_") + f"activation-checkpoint:{'full' if full else 'none'}\n"

"""Megatron-LM: the arguments of pretrain_gpt.py."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.document import Configuration, Offload, RecomputeModule
from planner.errors import LauncherFileError
from planner.export.arguments import Value, as_text, parsed
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import EVERY_LAYER, Choice, chunk_layers, is_even
from planner.export.known import argument_faults
from planner.export.launch import torchrun
from planner.export.layout import configuration_of, even_chunks
from planner.export.reading import Section
from planner.export.transformer import transformer_arguments
from planner.rules.megatron import MEGATRON

__all__ = ["CONTEXT", "bundle", "environment", "parallel_arguments", "plan", "plan_of"]

MODEL_FILE, PARALLEL_FILE = "model.args", "parallel.args"
CONTEXT = {"all_gather": "allgather", "ring": "p2p", "ulysses": "a2a", "hierarchical": "a2a+p2p"}
MODULES: dict[RecomputeModule, str] = {
    "norm": "layernorm",
    "activation": "moe_act",
    "core_attention": "core_attn",
    "mla_up_proj": "mla_up_proj",
    "mlp": "mlp",
    "moe": "moe",
    "shared_experts": "shared_experts",
}
UNSHARDED, OPTIMIZER_SHARDED = "no_shard", "optim"
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
# Connections of a device to its host: one keeps communication behind the kernels that it is launched after, which
# tensor and context parallelism rely on; sharded weights want more, this is CUDA's own number.
CONNECTIONS, SHARDED_CONNECTIONS = "1", "8"
MAX_LAYOUT = 200_000


def bundle(configuration: Configuration) -> Bundle:
    """The plan as two argument lists, of the model and of its parallel part."""
    return Bundle(
        launcher=MEGATRON.name,
        versions=MEGATRON.versions,
        files={
            PARALLEL_FILE: as_text(parallel_arguments(configuration)),
            MODEL_FILE: as_text(transformer_arguments(configuration)),
        },
        command=torchrun(configuration, f"pretrain_gpt.py $(cat {MODEL_FILE} {PARALLEL_FILE})"),
        env=environment(configuration),
        notes=("Data, tokenizer, learning rate and checkpoints are given to launch.sh.",),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files. Raises LauncherFileError."""
    require(files, "megatron", PARALLEL_FILE)
    arguments = parsed(files[PARALLEL_FILE])
    if faults := argument_faults(arguments):
        raise LauncherFileError("; ".join(faults))
    return plan_of(Section(arguments), job)


def parallel_arguments(configuration: Configuration) -> dict[str, Value]:
    """The parallel part, by the names of Megatron's arguments."""
    layout, workload, choice = configuration.parallelism, configuration.workload, Choice.of(configuration)
    arguments: dict[str, Value] = {
        "tensor_model_parallel_size": layout.tp,
        "sequence_parallel": layout.sequence_parallel,
        "pipeline_model_parallel_size": layout.pp,
        **_pipeline(configuration),
        **_context(configuration),
        "use_tp_pp_dp_mapping": layout.rank_order == "tp-cp-ep-pp-dp",
        "micro_batch_size": layout.micro_batch_size,
        "global_batch_size": workload.global_batch,
        "seq_length": workload.seq_len,
        "bf16": True,
    }
    if configuration.model.moe:
        arguments |= {
            "expert_model_parallel_size": layout.ep,
            "expert_tensor_parallel_size": layout.etp,
            "moe_token_dispatcher_type": "alltoall",
            # It recomputes the activations of grouped products only.
            "moe_grouped_gemm": not configuration.recipe.launches_per_expert or "activation" in choice.recompute,
        }
    if workload.precision == "fp8":
        arguments |= {"fp8_format": "hybrid", "fp8_recipe": "tensorwise"}
    arguments |= _sharding(configuration, choice)
    return arguments | _recompute(choice) | _offload(configuration, choice)


def environment(configuration: Configuration) -> dict[str, str]:
    """The variables that Megatron checks."""
    layout, choice = configuration.parallelism, Choice.of(configuration)
    if choice.zero_stage >= 2:
        return {"CUDA_DEVICE_MAX_CONNECTIONS": SHARDED_CONNECTIONS}
    return {"CUDA_DEVICE_MAX_CONNECTIONS": CONNECTIONS} if layout.tp * layout.cp > 1 else {}


def _pipeline(configuration: Configuration) -> dict[str, Value]:
    layout = configuration.parallelism
    arguments: dict[str, Value] = {}
    if not is_even(configuration):
        arguments["pipeline_model_parallel_layout"] = _layout_text(configuration)
    elif layout.vpp > 1:
        arguments["num_virtual_stages_per_pipeline_rank"] = layout.vpp
    if layout.schedule == "interleaved":
        arguments["microbatch_group_size_per_virtual_pipeline_stage"] = layout.group_size
    return arguments


def _layout_text(configuration: Configuration) -> str:
    """The layers of every virtual stage: E embedding, t layers, m multi-token prediction, L loss."""
    counts = chunk_layers(configuration)
    parts = ["" if count == 0 else "t" if count == 1 else f"t*{count}" for count in counts]
    parts[0] = "E" + parts[0]
    parts[-1] += "m" * configuration.model.mtp_layers + "L"
    return "|".join(parts)


def _context(configuration: Configuration) -> dict[str, Value]:
    layout = configuration.parallelism
    if layout.cp == 1:
        return {}
    arguments: dict[str, Value] = {"context_parallel_size": layout.cp, "cp_comm_type": CONTEXT[layout.cp_type]}
    if layout.cp_type == "hierarchical":
        arguments["hierarchical_context_parallel_sizes"] = [layout.cp_heads, layout.cp // layout.cp_heads]
    return arguments


def _sharding(configuration: Configuration, choice: Choice) -> dict[str, Value]:
    layout, recipe = configuration.parallelism, configuration.recipe
    overlaps = {"overlap_grad_reduce": recipe.overlap_gradient_reduce}
    small = configuration.workload.optimizer == "precision-aware"
    if choice.zero_stage == 0 and not small and not choice.offload.optimizer:
        return {**overlaps}
    if choice.zero_stage == 0:  # one copy of the states: what steps it is a part of the distributed optimizer
        alone: dict[str, Value] = {
            "use_distributed_optimizer": True,
            "data_parallel_sharding_strategy": UNSHARDED,
        }
        return {**alone, **overlaps, **_optimizer_types(configuration, choice)}
    if choice.zero_stage == 3 and not choice.reshard_after_forward:
        return {"use_torch_fsdp2": True, "torch_fsdp2_no_reshard_after_forward": True, "ckpt_format": "torch_dist"}
    overlaps["overlap_param_gather"] = recipe.overlap_parameter_gather and recipe.overlap_gradient_reduce
    arguments: dict[str, Value] = {"use_distributed_optimizer": True, **overlaps}
    if layout.dp_replicate > 1:
        arguments["num_distributed_optimizer_instances"] = layout.dp_replicate
    if choice.zero_stage >= 2:
        arguments |= {
            "use_megatron_fsdp": True,
            "data_parallel_sharding_strategy": SHARDING[choice.zero_stage],
            "ckpt_format": "fsdp_dtensor",
            "no_gradient_accumulation_fusion": True,
        }
    return arguments | _optimizer_types(configuration, choice)


def _optimizer_types(configuration: Configuration, choice: Choice) -> dict[str, Value]:
    """The data types of gradients, master weights and moments, as the recipe has them."""
    recipe = configuration.recipe
    small = configuration.workload.optimizer == "precision-aware"
    aware = small or choice.offload.optimizer > 0 or recipe.moment_bytes < 8 or 0 < recipe.master_bytes < 4
    arguments: dict[str, Value] = {"grad_reduce_in_bf16": recipe.gradient_reduce_bytes < 4 and not aware}
    if aware:
        moments = "bf16" if small else {8: "fp32", 4: "bf16", 2: "fp8"}.get(int(recipe.moment_bytes), "fp32")
        arguments |= {
            "use_precision_aware_optimizer": True,
            "main_grads_dtype": "bf16" if small else "fp32",
            "main_params_dtype": "fp16" if 0 < recipe.master_bytes < 4 else "fp32",
            "exp_avg_dtype": moments,
            "exp_avg_sq_dtype": moments,
        }
    return arguments


def _recompute(choice: Choice) -> dict[str, Value]:
    if not choice.recompute:
        return {}
    if choice.recompute != ("full",):
        return {
            "recompute_granularity": "selective",
            "recompute_modules": [MODULES[module] for module in choice.recompute],
        }
    every = choice.recompute_per_chunk == EVERY_LAYER
    return {
        "recompute_granularity": "full",
        "recompute_method": "uniform" if every else "block",
        "recompute_num_layers": 1 if every else choice.recompute_per_chunk,
    }


def _offload(configuration: Configuration, choice: Choice) -> dict[str, Value]:
    arguments: dict[str, Value] = {}
    if choice.offload.optimizer:
        arguments |= {"optimizer_cpu_offload": True, "optimizer_offload_fraction": choice.offload.optimizer}
    if choice.offload.activations:
        arguments["cpu_offloading_num_layers"] = round(choice.offload.activations * configuration.model.layers)
    return arguments


def plan_of(arguments: Section, job: Job) -> Configuration:
    """The plan that Megatron's arguments, by their names, stand for. Raises LauncherFileError."""
    pp = arguments.integer("pipeline_model_parallel_size", 1)
    vpp, layers = _chunks(arguments, job, pp)
    dense = job.model.moe is None
    tp = arguments.integer("tensor_model_parallel_size", 1)
    interleaved = vpp > 1
    degrees: dict[str, Any] = _read_context(arguments)
    if interleaved:
        degrees["group_size"] = arguments.integer("microbatch_group_size_per_virtual_pipeline_stage", pp)
    return configuration_of(
        job,
        _read_choice(arguments, job),
        layers,
        seq_len=arguments.integer("seq_length"),
        global_batch=arguments.integer("global_batch_size"),
        precision="fp8" if "fp8_format" in arguments else "bf16",
        optimizer="precision-aware" if arguments.text("main_grads_dtype", "fp32") == "bf16" else "adamw",
        tp=tp,
        sequence_parallel=arguments.flag("sequence_parallel") and tp > 1,
        pp=pp,
        vpp=vpp,
        schedule="interleaved" if interleaved else "1f1b",
        ep=1 if dense else arguments.integer("expert_model_parallel_size", 1),
        etp=1 if dense else arguments.integer("expert_tensor_parallel_size", tp),
        rank_order="tp-cp-ep-pp-dp" if arguments.flag("use_tp_pp_dp_mapping") else "tp-cp-ep-dp-pp",
        micro_batch_size=arguments.integer("micro_batch_size"),
        dp_replicate=arguments.integer("num_distributed_optimizer_instances", 1),
        **degrees,
    )


def _chunks(arguments: Section, job: Job, pp: int) -> tuple[int, Sequence[int]]:
    """Chunks of a rank, and the layers of every chunk in the order of the layers."""
    if "pipeline_model_parallel_layout" not in arguments:
        vpp = arguments.integer("num_virtual_stages_per_pipeline_rank", 1)
        return vpp, even_chunks(job.model.layers, pp, vpp)
    layers = _layers_of_layout(arguments.text("pipeline_model_parallel_layout"))
    if len(layers) % pp:
        message = f"pipeline_model_parallel_layout must have a multiple of {pp} stages, got {len(layers)}"
        raise LauncherFileError(message)
    return len(layers) // pp, layers


def _layers_of_layout(text: str) -> list[int]:
    """Layers of each virtual stage of a layout such as `Et*9|(t*10|)*3tL`."""
    flat = re.sub(r"[,\s]", "", text)
    repeated = re.compile(r"\(([^()]*)\)\*(\d+)|([EtmL|])\*(\d+)")
    while match := repeated.search(flat):
        many, part = int(match[2] or match[4]), match[1] or match[3] or ""
        if many * len(part) > MAX_LAYOUT:
            break
        flat = flat[: match.start()] + part * many + flat[match.end() :]
    if not re.fullmatch(r"[EtmL|]+", flat):
        message = f"pipeline_model_parallel_layout must be of E, t, m, L and |, x*n and (...)*n, got {text!r}"
        raise LauncherFileError(message)
    return [stage.count("t") for stage in flat.split("|")]


def _read_context(arguments: Section) -> dict[str, Any]:
    if arguments.integer("context_parallel_size", 1) == 1:
        return {}
    kind = {name: ours for ours, name in CONTEXT.items()}[
        arguments.word("cp_comm_type", tuple(CONTEXT.values()), "p2p")
    ]
    degrees = {"cp": arguments.integer("context_parallel_size"), "cp_type": kind}
    if kind == "hierarchical":
        degrees["cp_heads"] = int(arguments.items("hierarchical_context_parallel_sizes")[0])
    return degrees


def _read_choice(arguments: Section, job: Job) -> Choice:
    moved = arguments.integer("cpu_offloading_num_layers", 0) / job.model.layers
    optimizer = arguments.number("optimizer_offload_fraction", 1.0) if "optimizer_cpu_offload" in arguments else 0.0
    zero_stage, reshard = _read_sharding(arguments)
    recompute, per_chunk = _read_recompute(arguments)
    return Choice(zero_stage, reshard, recompute, per_chunk, Offload(optimizer=optimizer, activations=moved))


def _read_sharding(arguments: Section) -> tuple[int, bool]:
    """The ZeRO stage, and whether weights are freed after the forward pass."""
    if arguments.flag("use_torch_fsdp2"):
        return 3, not arguments.flag("torch_fsdp2_no_reshard_after_forward")
    words = (UNSHARDED, OPTIMIZER_SHARDED, *SHARDING.values())
    if arguments.flag("use_megatron_fsdp"):
        stage = words.index(arguments.word("data_parallel_sharding_strategy", words, UNSHARDED))
        return stage, stage == 3
    sharded = arguments.word("data_parallel_sharding_strategy", words, OPTIMIZER_SHARDED) != UNSHARDED
    return int(arguments.flag("use_distributed_optimizer") and sharded), False


def _read_recompute(arguments: Section) -> tuple[tuple[RecomputeModule, ...], int]:
    """What is recomputed, and on how many layers of a chunk."""
    if "recompute_granularity" not in arguments:
        return (), EVERY_LAYER
    if arguments.word("recompute_granularity", ("full", "selective")) == "full":
        method = arguments.word("recompute_method", ("uniform", "block"))
        return ("full",), EVERY_LAYER if method == "uniform" else arguments.integer("recompute_num_layers")
    ours = {name: module for module, name in MODULES.items()}
    given = arguments.items("recompute_modules") or ["core_attn"]
    unknown = [name for name in given if name not in ours]
    if unknown:
        message = f"recompute_modules must be of {', '.join(ours)}, got {', '.join(unknown)}"
        raise LauncherFileError(message)
    return tuple(ours[name] for name in given), EVERY_LAYER

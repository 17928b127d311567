"""MaxText: a YAML configuration on top of its base.yml, with a mesh inside the fast network and one across it."""

from collections.abc import Mapping
from math import gcd
from typing import Any

from planner.document import Configuration, Offload
from planner.export.bundle import Bundle, Job, require
from planner.export.choice import Choice
from planner.export.layout import configuration_of, even_chunks
from planner.export.reading import Section, yaml_table, yaml_text
from planner.rules.maxtext import MAXTEXT

__all__ = ["bundle", "plan"]

FILE = "maxtext.yml"
STRATEGIES = {"all_gather": "all_gather", "ring": "ring"}
# Innermost first. `tensor_sequence` also splits norms and residuals along the sequence.
AXES = ("tensor", "tensor_sequence", "context", "expert", "fsdp", "data", "pipeline")


def bundle(configuration: Configuration) -> Bundle:
    """The plan as maxtext.yml."""
    env = {"NNODES": str(-(-configuration.parallelism.gpus_used // configuration.cluster.gpus_per_node))}
    return Bundle(
        launcher=MAXTEXT.name,
        versions=MAXTEXT.versions,
        files={FILE: yaml_text(_config(configuration), "Read after MaxText's base.yml; model and data are yours.")},
        command=f"exec python3 -m maxtext.trainers.pre_train.train {FILE} hardware=gpu",
        env=env,
        notes=("JAX finds the other nodes by JAX_COORDINATOR_IP, JAX_COORDINATOR_PORT and NODE_RANK.",),
    )


def plan(files: Mapping[str, str], job: Job) -> Configuration:
    """The plan of such files. Raises LauncherFileError."""
    require(files, "maxtext", FILE)
    values = yaml_table(files[FILE])
    degrees = {
        axis: values.integer(f"ici_{axis}_parallelism", 1) * values.integer(f"dcn_{axis}_parallelism", 1)
        for axis in AXES
    }
    tp, pp = degrees["tensor"] * degrees["tensor_sequence"], degrees["pipeline"]
    vpp = values.integer("num_pipeline_repeats", 1) if pp > 1 else 1
    inner = max(tp * degrees["context"] * pp, 1)
    rounds = values.integer("num_pipeline_microbatches") if pp > 1 else values.integer("gradient_accumulation_steps", 1)
    batch = round(float(values.text("per_device_batch_size")) * job.gpus_used)
    batch *= values.integer("gradient_accumulation_steps", 1)
    sharded = degrees["fsdp"] * degrees["context"] * degrees["expert"] > 1
    cp = degrees["context"]
    kinds = {theirs: ours for ours, theirs in STRATEGIES.items()}
    return configuration_of(
        job,
        _choice(values, sharded, pp),
        even_chunks(job.model.layers, pp, vpp),
        seq_len=values.integer("max_target_length"),
        global_batch=batch,
        precision="fp8" if values.text("quantization", "") else "bf16",
        tp=tp,
        sequence_parallel=degrees["tensor_sequence"] > 1,
        pp=pp,
        vpp=vpp,
        schedule="1f1b" if pp == 1 else "gpipe" if vpp == 1 else "breadth-first",
        cp=cp,
        **({"cp_type": kinds[values.word("context_parallel_strategy", tuple(kinds))]} if cp > 1 else {}),
        ep=degrees["expert"],
        etp=tp if job.model.moe else 1,
        dp_replicate=degrees["data"] if sharded else 1,
        micro_batch_size=max(batch // max(job.gpus_used // inner * rounds, 1), 1),
    )


def _config(configuration: Configuration) -> dict[str, Any]:
    layout, workload, choice = configuration.parallelism, configuration.workload, Choice.of(configuration)
    steps = 1 if layout.pp > 1 else layout.num_microbatches
    values: dict[str, Any] = {
        "base_config": "base.yml",
        **_mesh(configuration, choice),
        "max_target_length": workload.seq_len,
        "per_device_batch_size": workload.global_batch / layout.gpus_used / steps,
        "gradient_accumulation_steps": steps,
        "remat_policy": "full" if choice.recompute else "none",
        "optimizer_memory_host_offload": choice.offload.optimizer > 0,
        "parameter_memory_host_offload": choice.offload.weights > 0,
        "quantization": "fp8" if workload.precision == "fp8" else "",
    }
    if layout.cp > 1:
        values["context_parallel_strategy"] = STRATEGIES[layout.cp_type]
    if layout.pp > 1:
        values |= {
            "num_layers_per_pipeline_stage": configuration.model.layers // (layout.pp * layout.vpp),
            "num_pipeline_repeats": layout.vpp,
            "num_pipeline_microbatches": layout.num_microbatches,
            "pipeline_fsdp_ag_once": choice.zero_stage == 3 and not choice.reshard_after_forward,
        }
    return values


def _mesh(configuration: Configuration, choice: Choice) -> dict[str, int]:
    """The degree of every axis inside a domain of the innermost network (ici) and across domains (dcn)."""
    layout, cluster = configuration.parallelism, configuration.cluster
    sharded = choice.zero_stage == 3
    degrees = {
        "tensor": 1 if layout.sequence_parallel else layout.tp,
        "tensor_sequence": layout.tp if layout.sequence_parallel else 1,
        "context": layout.cp,
        "expert": layout.ep,
        "fsdp": layout.dp_shard // layout.ep if sharded else 1,
        "data": layout.dp_replicate if sharded else layout.dp,
        "pipeline": layout.pp,
    }
    domain = cluster.tiers[0].domain_gpus or cluster.gpus
    left = domain if layout.gpus_used > domain else layout.gpus_used
    sizes: dict[str, int] = {}
    for axis in AXES:
        inside = gcd(degrees[axis], left)
        left //= inside
        sizes |= {f"ici_{axis}_parallelism": inside, f"dcn_{axis}_parallelism": degrees[axis] // inside}
    return sizes


def _choice(values: Section, sharded: bool, pp: int) -> Choice:
    keeps = pp > 1 and values.flag("pipeline_fsdp_ag_once")
    return Choice(
        zero_stage=3 if sharded else 0,
        reshard_after_forward=sharded and not keeps,
        recompute=("full",) if values.word("remat_policy", ("full", "none")) == "full" else (),
        offload=Offload(
            weights=float(values.flag("parameter_memory_host_offload")),
            optimizer=float(values.flag("optimizer_memory_host_offload")),
        ),
    )

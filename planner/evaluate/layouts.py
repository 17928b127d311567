"""The layout of a row: degrees, micro-batches, schedule, and the groups that share states."""

import re
from math import prod

from cost_models import schedules
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.parameters import parameters
from cost_models.specs.recipe import FrameworkRecipe
from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError, UnsupportedRunError
from planner.evaluate.sharding import read_sharding

__all__ = ["layout_of"]

# Part of the memory that a hybrid's states take, where its group is not named.
FREE_FOR_STATES = 0.33
# Micro-batches of a step without a pipeline where none are said; with sharded weights one is usual.
ACCUMULATED = 8
# Schedules of one copy of the model and of whole sequences.
KNOWN = ("1f1b", "interleaved", "gpipe", "breadth-first", "zb-h1", "zb-h2", *schedules.V_SHAPED)
# Other spellings, without the word schedule and what is neither letter nor digit, and the last of the same name.
SPELLINGS = {
    "1f1bi": "interleaved",
    "1f1binterleaved": "interleaved",
    "interleaved1f1b": "interleaved",
    "virtualpipeline": "interleaved",
    "vpp": "interleaved",
    "pipedreamflush": "1f1b",
    "pipedream": "1f1b",
    "afab": "gpipe",
    "bfs": "breadth-first",
    "loopedbfs": "breadth-first",
    "zb1p": "zb-h1",
    "zbb": "zb-h1",
    "zb2p": "zb-h2",
    "vzb": "zb-v",
    "zbvzerobubble": "zb-v",
    "zbvformatted": "zb-v",
    **{"".join(filter(str.isalnum, name)): name for name in KNOWN},
}
# How the context is split, with letters and digits alone; Megatron's own names among them.
CONTEXT_SPELLINGS = {
    **dict.fromkeys(("", "ring", "p2p"), "ring"),
    **dict.fromkeys(("allgather", "ag"), "all_gather"),
    **dict.fromkeys(("ulysses", "a2a"), "ulysses"),
}
# Schedules of other kinds, and the known one that is nearest in bubble and memory.
NEAREST = (("dualpipe", "zb-h1"), ("zero", "zb-h1"), ("zb", "zb-h1"))


def layout_of(
    cells: Cells, model: ModelSpec, recipe: FrameworkRecipe, cluster: ClusterSpec
) -> tuple[dict[str, int], str, int]:
    """The columns of planner.space.LAYOUT_FIELDS but the schedule, its name, and the sequences of a step.

    Raises a RunError.
    """
    gpus = cluster.gpus
    tp, pp, cp = _degrees(cells, gpus)
    if gpus % (tp * pp * cp):
        message = f"tp*pp*cp must divide n_gpus ({gpus}), got {tp}*{pp}*{cp}"
        raise InvalidRunError(message)
    dp = gpus // (tp * pp * cp)
    micro, batch = _batch(cells, recipe, dp, pp)
    ep, etp = _experts(cells, model, tp, tp * cp * dp)
    shard = _shard_ranks(cells, dp, _state_bytes(model, recipe) / (tp * pp * cluster.gpu.usable_memory_bytes))
    sequence_parallel = cells.text("sp") in ("1", "true", "True") if cells.text("sp") else recipe.sequence_parallel
    micro_batches = batch // (dp * micro)
    schedule, vpp = _schedule(cells, model, pp, micro_batches)
    _check_heads(model, tp)
    switched, ring = _context(cells, cp)
    layout = {
        "tp": tp,
        "sequence_parallel": int(tp > 1 and sequence_parallel),
        "cp": cp,
        "cp_heads": switched,
        "cp_ring": ring,
        "ep": ep,
        "etp": etp,
        "pp": pp,
        "vpp": vpp,
        "dp": dp,
        "dp_shard": shard,
        "dp_replicate": dp // shard,
        "rank_order": 0,
        "micro_batch_size": micro,
        "num_microbatches": micro_batches,
        "slices": 1,
        "group_size": 0,
    }
    return layout, schedule, batch


def _degrees(cells: Cells, gpus: int) -> tuple[int, int, int]:
    """tp, pp and cp: one that alone is missing is what dp leaves of the GPUs, others are 1."""
    given = {name: cells.whole(name) for name in ("tp", "pp", "cp")}
    replicas = cells.whole("dp")
    for name in ("pp", "tp"):
        held = prod(value or 1 for value in given.values())
        if given[name] is None and replicas and gpus % (held * replicas) == 0 and gpus > held * replicas:
            given[name] = int(cells.assume(name, gpus // (held * replicas), "what dp leaves"))
    tp, pp, cp = (value or int(cells.assume(name, 1)) for name, value in given.items())
    return tp, pp, cp


def _batch(cells: Cells, recipe: FrameworkRecipe, dp: int, pp: int) -> tuple[int, int]:
    """Sequences of a micro-batch and of a step. Raises InvalidRunError."""
    micro, batch = cells.whole("micro_batch"), cells.whole("global_batch_seqs")
    if micro is None:
        part = _part_of_local_batch(cells, pp)
        micro = cells.assume("micro_batch", part, "a part for every stage") if part else cells.assume("micro_batch", 1)
    if batch is None:
        alone = 1 if recipe.zero_stage == 3 else ACCUMULATED
        batch = cells.assume("global_batch_seqs", dp * micro * (4 * pp if pp > 1 else alone))
    if batch % (dp * micro) and any(cells.whole(name) is None for name in ("tp", "pp", "micro_batch")):
        rounded = max(1, round(batch / (dp * micro))) * dp * micro
        batch = cells.assume("global_batch_seqs", rounded, f"nearest to {batch} for the assumed degrees")
    if batch % (dp * micro):
        message = f"dp*micro_batch must divide global_batch_seqs ({batch}), got {dp}*{micro}"
        raise InvalidRunError(message)
    return int(micro), int(batch)


def _part_of_local_batch(cells: Cells, pp: int) -> int:
    """Sequences of a micro-batch where only the local batch is noted, 0 where nothing is.

    PyTorch's pipelines cut it into one part for every stage unless they are told otherwise.
    """
    local = re.search(r"local batch (\d+)", cells.row.get("notes", ""))
    return max(1, int(local[1]) // pp) if local else 0


def _state_bytes(model: ModelSpec, recipe: FrameworkRecipe) -> float:
    """Bytes of the whole model's states, unsharded."""
    per_parameter = recipe.weight_bytes + recipe.gradient_bytes + recipe.master_bytes + recipe.moment_bytes
    return per_parameter * parameters(model)


def _check_heads(model: ModelSpec, tp: int) -> None:
    if model.heads % tp or model.ffn % tp:
        message = f"tp must divide heads ({model.heads}) and ffn ({model.ffn}), got {tp}"
        raise InvalidRunError(message)


def _context(cells: Cells, cp: int) -> tuple[int, int]:
    """cp_heads and cp_ring of how the context is split; without a word it is in a ring, as most frameworks do."""
    text = "".join(filter(str.isalnum, (cells.text("cp_type") or cells.note("cp_comm_type")).lower()))
    if text not in CONTEXT_SPELLINGS:
        message = f"cp_type must be one of all_gather, ring, ulysses, got {text}"
        raise UnsupportedRunError(message)
    return {"ring": (1, int(cp > 1)), "all_gather": (1, 0), "ulysses": (cp, 0)}[CONTEXT_SPELLINGS[text]]


def _experts(cells: Cells, model: ModelSpec, tp: int, ranks: int) -> tuple[int, int]:
    """Expert-parallel degree and tensor-parallel degree inside an expert: Megatron's default for the latter is tp."""
    if model.moe is None:
        return 1, 1
    ep = cells.whole("ep") or cells.assume("ep", 1)
    etp = cells.whole("etp") or (1 if tp == 1 else cells.assume("etp", tp))
    if ranks % (ep * etp) and ranks % ep == 0 and not cells.text("etp"):
        etp = 1
    if ranks % (ep * etp) or model.moe.experts % ep:
        message = f"ep*etp must divide tp*cp*dp ({ranks}) and ep the {model.moe.experts} experts, got {ep}*{etp}"
        raise InvalidRunError(message)
    return ep, etp


def _shard_ranks(cells: Cells, dp: int, states: float) -> int:
    """Ranks that share one copy of the states: all of dp, or the group that the row names.

    `states` are those of a rank, unsharded, over its memory: a hybrid's group, where it is not named, is the fewest
    whole nodes that leave two thirds of the memory free.
    """
    for note in ("zero1 group", "fsdp shard size", "shard size"):
        number = re.match(r"\d+", cells.note(note))
        if number and dp % int(number[0]) == 0:
            return int(number[0])
    size = re.search(r"FSDP shard size (\d+)", cells.row.get("notes", ""))
    if size and dp % int(size[1]) == 0:
        return int(size[1])
    if read_sharding(cells.text("zero_or_fsdp") or "none") == "hsdp":
        node = cells.whole("gpus_per_node") or 8
        groups = [size for size in range(node, dp + 1, node) if dp % size == 0 and states / size <= FREE_FOR_STATES]
        return int(cells.assume("shard size", min(groups, default=dp)))
    return dp


def _schedule(cells: Cells, model: ModelSpec, pp: int, micro_batches: int) -> tuple[str, int]:
    """The schedule and the chunks of a rank. Raises a RunError."""
    if pp == 1:
        return "1f1b", 1
    vpp = cells.whole("vpp") or 1
    text = (cells.text("schedule") or cells.note("schedule")).lower()
    named = SPELLINGS.get("".join(filter(str.isalnum, text.removeprefix("schedule"))))
    usual = "interleaved" if vpp > 1 else "1f1b"
    name = named or usual
    if text and named is None:
        nearest = next((known for word, known in NEAREST if word in text), usual)
        name = cells.assume("schedule", nearest, f"nearest to {text}")
    if name == "interleaved" and vpp == 1:
        vpp = cells.assume("vpp", max(1, (model.layers + 2) // pp), "one layer a chunk")
    if name == "1f1b" and vpp > 1:
        name = "interleaved"
    if name in schedules.V_SHAPED and vpp == 1:
        vpp = 2
    if name.startswith("zb-h") and named is None:
        vpp = 1
    if not schedules.schedule(name).legal(pp, vpp, micro_batches):
        requires = schedules.schedule(name).REQUIRES
        message = f"{name} needs {requires}, got pp {pp}, vpp {vpp}, {micro_batches} micro-batches"
        raise InvalidRunError(message)
    return name, vpp

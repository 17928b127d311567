"""Every symbol of the cost expressions once: its name, its unit, what it stands for.

Sizes are declared positive; flags (0 or 1) and counts that may be zero are declared nonnegative, because a flag that
sympy believes positive folds a condition such as `flag > 0` to true without a word.
"""

from dataclasses import dataclass

from sympy import Symbol

__all__ = ["HELD", "MEANINGS", "PARTS", "RECOMPUTE_FLAGS", "Meaning"]


@dataclass(frozen=True)
class Meaning:
    """Unit and one-line description of a symbol."""

    unit: str
    text: str


MEANINGS: dict[str, Meaning] = {}


def _size(name: str, unit: str, text: str) -> Symbol:
    MEANINGS[name] = Meaning(unit, text)
    return Symbol(name, positive=True)


def _count(name: str, unit: str, text: str) -> Symbol:
    MEANINGS[name] = Meaning(unit, text)
    return Symbol(name, nonnegative=True)


def _flag(name: str, text: str) -> Symbol:
    return _count(name, "0 or 1", text)


# model
hidden = _size("hidden", "elements", "width of the residual stream")
ffn = _size("ffn", "elements", "inner width of the MLP")
heads = _size("heads", "heads", "query heads")
kv_heads = _size("kv_heads", "heads", "key-value heads")
head_dim = _size("head_dim", "elements", "width of one head")
padded_vocab = _size("padded_vocab", "elements", "vocabulary, padded as the framework pads it for this TP")
max_positions = _size("max_positions", "positions", "rows of a learned position table")

# workload and layout
seq_len = _size("seq_len", "tokens", "sequence length")
micro_batch_size = _size("micro_batch_size", "sequences", "sequences in a micro-batch")
tp = _size("tp", "ranks", "tensor-parallel degree")
cp = _size("cp", "ranks", "context-parallel degree")
pp = _size("pp", "ranks", "pipeline ranks")
pipelined = _flag("pipelined", "there is more than one pipeline rank")
vpp = _size("vpp", "chunks", "model chunks of a pipeline rank")
sequence_parallel = _flag("sequence_parallel", "norm and residual activations are sharded over TP")
dp_shard = _size("dp_shard", "ranks", "ranks over which states are sharded (context-parallel ranks included)")
dp_replicate = _size("dp_replicate", "ranks", "replicas of a shard group")
dp_stride = _size("dp_stride", "ranks", "distance in rank numbers between neighbours of a shard group")
replicate_stride = _size("replicate_stride", "ranks", "distance in rank numbers between neighbouring replicas")
pp_stride = _size("pp_stride", "ranks", "distance in rank numbers between neighbouring stages")
world = _size("world", "ranks", "ranks of the job")
communicators = _count("communicators", "communicators", "process groups with more than one rank")

# recompute set, as flags
recompute_norm = _flag("recompute_norm", "norm outputs are recomputed")
recompute_activation = _flag("recompute_activation", "the activation's output is recomputed")
recompute_core_attention = _flag("recompute_core_attention", "the attention scores are recomputed")
recompute_mlp = _flag("recompute_mlp", "the MLP is recomputed")
recompute_full = _flag("recompute_full", "the whole layer is recomputed from its input")
RECOMPUTE_FLAGS = {
    "norm": recompute_norm,
    "activation": recompute_activation,
    "core_attention": recompute_core_attention,
    "mlp": recompute_mlp,
    "full": recompute_full,
}

# stage: what one pipeline rank (or one chunk of it) holds
layers = _count("layers", "layers", "layers held")
recompute_layers = _count("recompute_layers", "layers", "layers held that recompute the set")
has_embedding = _flag("has_embedding", "holds the token embedding")
has_head = _flag("has_head", "holds the final norm, the head and the loss")
live_layers = _count("live_layers", "layers", "layer activations alive at the peak, all micro-batches in flight")
live_recompute_layers = _count("live_recompute_layers", "layers", "those of live_layers that recompute the set")
live_embedding = _count("live_embedding", "micro-batches", "micro-batches whose embedding output is alive")
live_head = _count("live_head", "micro-batches", "micro-batches whose head activations are alive")

# state sharding of a stage (ZeRO), as flags
shard_optimizer = _flag("shard_optimizer", "optimizer states are sharded (ZeRO-1 and up)")
shard_gradients = _flag("shard_gradients", "gradients are sharded (ZeRO-2 and up)")
shard_weights = _flag("shard_weights", "parameters are sharded (ZeRO-3, FSDP)")
reshard = _flag("reshard", "gathered parameters are freed after each forward")

# What a stage holds of each unit of the model.
HELD = {"layer": layers, "embedding": has_embedding, "head": has_head}

# The outputs of the dear expressions (stage.py), as symbols of the cheap ones.
PARTS: dict[str, Symbol] = {}


def _part(name: str, unit: str, text: str) -> None:
    PARTS[name] = _count(name, unit, text)


for _unit in HELD:
    _part(f"{_unit}_forward_s", "s", f"forward of one micro-batch in the {_unit}")
    _part(f"{_unit}_input_grad_s", "s", f"input gradient of one micro-batch in the {_unit}")
    _part(f"{_unit}_weight_grad_s", "s", f"weight gradient of one micro-batch in the {_unit}")
    _part(f"{_unit}_communication_s", "s", f"exposed tensor-parallel collectives of one micro-batch in the {_unit}")
    _part(f"{_unit}_parameters", "elements", f"parameters of the {_unit} on one tensor-parallel rank")
    _part(f"{_unit}_gather_s", "s", f"gathering the parameters of the {_unit} in its shard group")
    _part(f"{_unit}_reduce_s", "s", f"reducing the gradients of the {_unit} to shards, and over replicas")
    _part(f"{_unit}_all_reduce_s", "s", f"all-reducing the whole gradients of the {_unit}")
    _part(f"{_unit}_saved_bytes", "bytes", f"kept by the {_unit} of one micro-batch, nothing recomputed")
_part("shared_parameters", "elements", "parameters that embedding and head share on one tensor-parallel rank")
_part("layer_recompute_s", "s", "running again what the recompute set frees of a layer")
_part("layer_recomputed_saved_bytes", "bytes", "kept by a layer that recomputes the set")
_part("layer_restored_bytes", "bytes", "what recomputing brings back of a layer")
_part("layer_workspace_bytes", "bytes", "what the backward through a layer needs beside what is kept")
_part("logits_bytes", "bytes", "logits of one micro-batch at the peak of the loss")
_part("boundary_bytes", "bytes", "sent across a pipeline boundary, one micro-batch, one direction")
_part("gradient_norm_reduce_s", "s", "reducing the gradient norm over all ranks")
_part("tied_reduce_s", "s", "adding the two gradients of a tied embedding")

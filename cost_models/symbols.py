"""Every symbol of the cost expressions once: its name, its unit, what it stands for.

Sizes are declared positive; flags (0 or 1) and counts that may be zero are declared nonnegative, because a flag that
sympy believes positive folds a condition such as `flag > 0` to true without a word.
"""

from dataclasses import dataclass

from sympy import Symbol

from cost_models.vocabulary import RECOMPUTE_MODULES, recompute_flag

__all__ = ["HELD", "MEANINGS", "OFFLOADS", "PARTS", "RECOMPUTE_FLAGS", "Meaning"]


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
position_rows = _count("position_rows", "positions", "rows of a learned position table")
value_head_dim = _size("value_head_dim", "elements", "width of a value head (latent attention)")
rope_head_dim = _size("rope_head_dim", "elements", "rotary part of a query or key head (latent attention)")
query_rank = _size("query_rank", "elements", "width of the query latent")
kv_rank = _size("kv_rank", "elements", "width of the key-value latent")
experts = _size("experts", "experts", "routed experts of a layer")
top_k = _size("top_k", "experts", "routed experts that see a token")
expert_ffn = _size("expert_ffn", "elements", "inner width of one routed expert")
shared_ffn = _size("shared_ffn", "elements", "inner width of all shared experts together")

# workload and layout
seq_len = _size("seq_len", "tokens", "sequence length")
slice_len = _size("slice_len", "tokens", "tokens of a sequence in one pass: all of them, or a slice")
slices = _size("slices", "slices", "passes that a micro-batch takes through a layer")
quantised = _flag("quantised", "operands of matrix products are cast to one byte (fp8)")
micro_batch_size = _size("micro_batch_size", "sequences", "sequences in a micro-batch")
expert_imbalance = _size("expert_imbalance", "1", "tokens of the fullest expert rank over the mean")
document_mask_imbalance = _size("document_mask_imbalance", "1", "attention of the slowest context rank over the mean")
tp = _size("tp", "ranks", "tensor-parallel degree")
cp = _size("cp", "ranks", "context-parallel degree")
cp_heads = _size("cp_heads", "ranks", "context-parallel ranks that exchange heads for sequence (Ulysses)")
cp_ring = _flag("cp_ring", "keys and values go round a ring; else they are gathered")
ep = _size("ep", "ranks", "expert-parallel degree")
etp = _size("etp", "ranks", "tensor-parallel degree inside an expert")
pp = _size("pp", "ranks", "pipeline ranks")
pipelined = _flag("pipelined", "there is more than one pipeline rank")
ends_apart = _flag("ends_apart", "embedding and head are on different pipeline ranks")
vpp = _size("vpp", "chunks", "model chunks of a pipeline rank")
sequence_parallel = _flag("sequence_parallel", "norm and residual activations are sharded over TP")
dp_shard = _size("dp_shard", "ranks", "ranks over which states are sharded (context-parallel ranks included)")
dp_replicate = _size("dp_replicate", "ranks", "replicas of a shard group")
dp_stride = _size("dp_stride", "ranks", "distance in rank numbers between neighbours of a shard group")
replicate_stride = _size("replicate_stride", "ranks", "distance in rank numbers between neighbouring replicas")
pp_stride = _size("pp_stride", "ranks", "distance in rank numbers between neighbouring stages")
expert_shard = _size("expert_shard", "ranks", "replicas of an expert, over which its states are sharded")
expert_stride = _size("expert_stride", "ranks", "distance in rank numbers between an expert's replicas")
spread = _flag("spread", "pipeline ranks share out embedding, head and attention of a slice (SlimPipe)")
world = _size("world", "ranks", "ranks of the job")
communicators = _count("communicators", "communicators", "process groups with more than one rank")

# recompute set, as flags
RECOMPUTE_FLAGS = {module: _flag(recompute_flag(module), text) for module, text in RECOMPUTE_MODULES.items()}
recompute_full = RECOMPUTE_FLAGS["full"]

# stage: what one pipeline rank (or one chunk of it) holds
layers = _count("layers", "layers", "repeating groups of layers held (a group is one layer in most models)")
recompute_layers = _count("recompute_layers", "layers", "groups held that recompute the set")
recompute_ends = _flag("recompute_ends", "layers that go with the embedding or the head recompute the set")
has_embedding = _flag("has_embedding", "holds the token embedding, or its share of it")
has_head = _flag("has_head", "holds the final norm, the head and the loss, or its share of them")
live_layers = _count("live_layers", "layers", "layer activations alive at the peak, all micro-batches in flight")
live_recompute_layers = _count("live_recompute_layers", "layers", "those of live_layers that recompute the set")
live_embedding = _count("live_embedding", "micro-batches", "micro-batches whose embedding output is alive")
live_head = _count("live_head", "micro-batches", "micro-batches whose head activations are alive")
kv_gradient_layers = _count("kv_gradient_layers", "layers", "slices of layers whose keys and values await gradients")
waiting_embedding = _count(
    "waiting_embedding", "micro-batches", "those of live_embedding that lack weight gradients only"
)
waiting_layers = _count("waiting_layers", "layers", "those of live_layers that lack weight gradients only")
waiting_head = _count("waiting_head", "micro-batches", "those of live_head that lack weight gradients only")

# What of the passes of one micro-batch through it is not for its own sake.
hop_ends = _count("hop_ends", "hops", "sent to other ranks and received from them, one direction")
split_layers = _count(
    "split_layers",
    "layers",
    "those of layers whose backward is split, the model's first chunk apart; where some micro-batches are, their part",
)
first_split_layers = _count("first_split_layers", "layers", "layers of the model's first chunk where backwards split")

# state sharding of a stage (ZeRO), as flags
shard_optimizer = _flag("shard_optimizer", "optimizer states are sharded (ZeRO-1 and up)")
shard_gradients = _flag("shard_gradients", "gradients are sharded (ZeRO-2 and up)")
shard_weights = _flag("shard_weights", "parameters are sharded (ZeRO-3, FSDP)")
reshard = _flag("reshard", "gathered parameters are freed after each forward")

# host offload of a stage, as fractions (Mist's WO, GO, OO, AO)
offload_weights = _count("offload_weights", "fraction", "weights that live on the host")
offload_gradients = _count("offload_gradients", "fraction", "gradients that live on the host")
offload_optimizer = _count(
    "offload_optimizer", "fraction", "optimizer states that live on the host and are stepped there"
)
offload_activations = _count("offload_activations", "fraction", "saved activations that wait on the host")
OFFLOADS = (offload_weights, offload_gradients, offload_optimizer, offload_activations)

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
    for _group in ("tensor_parallel", "context_parallel", "expert_parallel"):
        _part(f"{_unit}_{_group}_s", "s", f"exposed {_group} collectives of one micro-batch in the {_unit}")
    _part(f"{_unit}_recompute_s", "s", f"running again what the recompute set frees of the {_unit}")
    _part(f"{_unit}_forward_attention_s", "s", f"core attention in the forward of the {_unit}")
    _part(f"{_unit}_backward_attention_s", "s", f"core attention in the input gradient of the {_unit}")
    _part(f"{_unit}_recompute_attention_s", "s", f"core attention that the recompute set runs again in the {_unit}")
    _part(f"{_unit}_pipeline_exchange_s", "s", f"what pipeline ranks exchange to share out the {_unit}, one direction")
    _part(f"{_unit}_parameters", "elements", f"parameters of the {_unit} on one rank, routed experts apart")
    _part(f"{_unit}_expert_parameters", "elements", f"parameters of routed experts of the {_unit} on one rank")
    _part(f"{_unit}_gather_s", "s", f"gathering the parameters of the {_unit} in their shard groups")
    _part(f"{_unit}_reduce_s", "s", f"reducing the gradients of the {_unit} to shards, and over replicas")
    _part(f"{_unit}_all_reduce_s", "s", f"all-reducing the whole gradients of the {_unit}")
    _part(f"{_unit}_parameter_copy_s", "s", f"casting and laying out the gathered weights of the {_unit}")
    _part(f"{_unit}_gradient_copy_s", "s", f"casting and laying out the gradients of the {_unit} to be reduced")
    _part(f"{_unit}_accumulation_s", "s", f"adding the gradients of one micro-batch to their sum in the {_unit}")
    _part(f"{_unit}_saved_bytes", "bytes", f"kept by the {_unit} of one micro-batch, nothing recomputed")
    _part(f"{_unit}_recomputed_saved_bytes", "bytes", f"kept by the {_unit} when it recomputes the set")
    _part(f"{_unit}_gradient_bytes", "bytes", f"gradients that the weight gradients of the {_unit} are made of")
_part("hop_end_s", "s", "what each end of a hop takes of its rank, one micro-batch, one direction")
_part("layer_split_s", "s", "what a backward in two parts takes more of one micro-batch in the layer")
_part("shared_parameters", "elements", "parameters that embedding and head share on one tensor-parallel rank")
_part("layer_restored_bytes", "bytes", "what recomputing brings back of a layer")
_part("layer_workspace_bytes", "bytes", "what the backward through a layer needs beside what is kept")
_part("layer_kv_bytes", "bytes", "keys and values of one slice in a layer")
_part("largest_matrix", "elements", "parameters of the largest dense operator of a layer on one rank")
_part("logits_bytes", "bytes", "logits of one micro-batch at the peak of the loss")
_part("boundary_bytes", "bytes", "sent across a pipeline boundary, one micro-batch, one direction")
_part("gradient_norm_reduce_s", "s", "reducing the gradient norm over all ranks")
_part("tied_reduce_s", "s", "adding the two gradients of a tied embedding")

"""The model of a row: a catalog entry, a relative of one with the row's sizes, or the row's sizes alone."""

import re
from functools import cache, lru_cache

from cost_models.specs import catalog
from cost_models.specs.errors import SpecError
from cost_models.specs.model import ModelSpec
from cost_models.specs.moe import MoeSpec
from cost_models.specs.parameters import parameters
from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError, UnsupportedRunError

__all__ = ["model_of"]

# A size within a name: "-400b", "-17b", "-128e".
SIZE = re.compile(r"[-_ ]\d+(?:\.\d+)?[bme]\b")
# Layers that are not attention and MLP.
HYBRIDS = ("nemotron-h", "nemotron-3", "nemotron-nano", "mamba", "jamba", "deepseekv4", "bert", "t5", "retro", "vit")
# Sizes of a row by the model's field.
SIZES = {
    "n_layers": "layers",
    "hidden": "hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "vocab": "vocab",
}
DEFAULT_VOCAB = 51_200
DEFAULT_HEAD_DIM = 128
DEFAULT_CONTEXT = 2048
# A GPT's architecture, and what came after it: what a row's sizes do not say.
GPT = {
    "gated_mlp": False,
    "norm": "layernorm",
    "qkv_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
    "positions": "learned",
    "tie_embeddings": True,
}
# Words of a model's name, and how its family departs from a GPT or from a Llama.
FAMILIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("bloom", {**GPT, "positions": "alibi", "embedding_norm": True}),
    ("tr3m", {**GPT, "embedding_norm": True}),
    ("mpt", {**GPT, "qkv_bias": False, "attention_output_bias": False, "mlp_bias": False}),
    ("gpt", GPT),
    ("megatron", GPT),
    ("opt", GPT),
    ("nemotron", {"gated_mlp": False, "norm": "layernorm"}),
    ("llama", {"gated_mlp": True}),
    ("qwen", {"gated_mlp": True}),
    ("internlm", {"gated_mlp": True}),
    ("mistral", {"gated_mlp": True}),
    ("falcon", {**GPT, "positions": "rope", "parallel_block": True}),
)


def model_of(cells: Cells, seq_len: int | None) -> ModelSpec:
    """The model of a row. Raises a RunError."""
    name = cells.text("model")
    if any(hybrid in name.lower() for hybrid in HYBRIDS) or cells.says("hybrid mamba"):
        message = f"model must be a decoder of attention and MLP or expert layers, got {name}"
        raise UnsupportedRunError(message)
    try:
        base = _relative(name)
        return _sized(cells, base, name) if base else _from_sizes(cells, name, seq_len)
    except SpecError as error:
        raise InvalidRunError(str(error)) from error


@cache
def _known() -> tuple[tuple[str, str], ...]:
    """Every name of the catalog's models without case and separators, longest first, and the entry it stands for."""
    return tuple(sorted(catalog.keys("models").items(), key=lambda pair: (-len(pair[0]), pair)))


@cache
def _loaded(entry: str) -> ModelSpec:
    return catalog.load_model(entry)


@lru_cache(maxsize=4096)
def _relative(name: str) -> ModelSpec | None:
    """The catalog's model whose name is the row's, or begins it ("llama3-70b-L12"); None without one."""
    key = catalog.key(name)
    for known, entry in _known():
        if key == known or (key.startswith(known) and not key[len(known)].isdigit() and len(known) >= 5):
            return _loaded(entry)
    family = SIZE.sub("", name.lower()).strip("-_ ")
    alike = {entry for known, entry in _known() if SIZE.sub("", entry).strip("-") == family}
    return _loaded(alike.pop()) if len(alike) == 1 else None


def _sized(cells: Cells, base: ModelSpec, name: str) -> ModelSpec:
    """The catalog's model with the sizes of the row where they differ."""
    given = {column: cells.whole(column) for column in SIZES}
    changes: dict[str, object] = {SIZES[column]: value for column, value in given.items() if value is not None}
    layers = given["n_layers"] or base.layers
    changes |= _heads(cells, base, given["hidden"], given["heads"])
    ffn, experts = cells.whole("ffn"), cells.whole("n_experts")
    if base.moe is not None:
        changes["moe"] = _moe(cells, base.moe, ffn, layers)
    elif experts:
        message = f"n_experts must be empty for {base.name}, which has no experts, got {experts}"
        raise InvalidRunError(message)
    elif ffn:
        changes["ffn"] = ffn
    if layers != base.layers:  # truncated models are run without the layers that predict ahead
        changes["mtp_layers"] = 0
    context = cells.whole("seq_len") or 0
    if base.positions == "learned" and context > base.max_seq_len:
        changes["max_seq_len"] = context
    model = base.replaced(**changes, name=name)
    resized = given["hidden"] not in (None, base.hidden)
    return _with_layers(cells, model.replaced(layers=1)) if resized and given["n_layers"] is None else model


def _heads(cells: Cells, base: ModelSpec, hidden: int | None, heads: int | None) -> dict[str, object]:
    """Heads and their width where the row's differ from the catalog's model."""
    if hidden in (None, base.hidden) and heads in (None, base.heads):
        return {}
    width = hidden or base.hidden
    count = heads or cells.assume("heads", max(1, width // base.head_dim))
    changes: dict[str, object] = {"heads": count}
    if base.mla is None:
        changes["head_dim"] = width // count
    if base.kv_heads == base.heads:
        changes["kv_heads"] = count
    return changes


def _moe(cells: Cells, base: MoeSpec, ffn: int | None, layers: int) -> MoeSpec:
    changes: dict[str, object] = {}
    if experts := cells.whole("n_experts"):
        changes["experts"] = experts
    if top_k := cells.whole("topk"):
        changes["top_k"] = top_k
    if ffn and base.layer_step == 1:
        changes["expert_ffn"] = ffn
    dense = cells.note("dense_layers").split(" ")[0]
    if dense.isdigit():
        changes["leading_dense_layers"] = int(dense)
    elif base.leading_dense_layers >= layers:
        changes["leading_dense_layers"] = 0
    return base.replaced(**changes)


def _from_sizes(cells: Cells, name: str, seq_len: int | None) -> ModelSpec:
    """A model of the row's sizes alone; its family's habits are read from its name and its parameter count."""
    hidden = cells.whole("hidden")
    if hidden is None:
        message = f"model must be in the catalog, or hidden and n_layers given, got {name or 'no name'}"
        raise UnsupportedRunError(message)
    family = next((habits for word, habits in FAMILIES if word in name.lower()), {})
    heads = cells.whole("heads") or cells.assume("heads", max(1, hidden // DEFAULT_HEAD_DIM))
    if hidden % heads:
        message = f"heads must divide hidden ({hidden}), got {heads}"
        raise InvalidRunError(message)
    ffn = cells.whole("ffn") or cells.assume("ffn", 4 * hidden)
    fields: dict[str, object] = {
        "name": name or "unnamed",
        "hidden": hidden,
        "ffn": ffn,
        "heads": heads,
        "kv_heads": cells.whole("kv_heads") or heads,
        "head_dim": hidden // heads,
        "vocab": cells.whole("vocab") or cells.assume("vocab", _vocab(cells, family)),
        "max_seq_len": max(seq_len or 0, DEFAULT_CONTEXT),
        "layers": cells.whole("n_layers") or 1,
        **family,
    }
    if not family and ffn == 4 * hidden:
        fields |= {"gated_mlp": False}
    experts = cells.whole("n_experts")
    if experts:
        top_k = cells.whole("topk") or cells.assume("topk", min(2, experts))
        fields["moe"] = MoeSpec(experts=experts, top_k=top_k, expert_ffn=ffn)
    model = _with_layers(cells, ModelSpec.model_validate(fields))
    return _with_parameters(cells, model, gates=(model.gated_mlp,) if family else (False, True))


def _vocab(cells: Cells, family: dict[str, object]) -> int:
    """ "vocab about 250k" in the notes, else the usual vocabulary of a GPT."""
    about = re.search(r"vocab (?:about )?(\d+)k", cells.row.get("notes", ""))
    return int(about[1]) * 1000 if about else DEFAULT_VOCAB


def _with_layers(cells: Cells, model: ModelSpec) -> ModelSpec:
    """The model with the layers that its parameter count asks for where the row does not say. Raises a RunError."""
    if cells.whole("n_layers") is not None:
        return model
    billions = cells.number("params_b")
    if billions is None:
        message = "n_layers is missing, and without params_b it cannot be told"
        raise UnsupportedRunError(message)
    two = model.replaced(layers=2)
    per_layer = parameters(two) - parameters(model)
    layers = round((billions * 1e9 - parameters(model)) / per_layer) + 1
    if layers < 1:
        message = f"params_b must be above that of one layer ({parameters(model) / 1e9:.3g}), got {billions}"
        raise InvalidRunError(message)
    return model.replaced(layers=cells.assume("n_layers", layers, "from params_b"))


def _with_parameters(cells: Cells, model: ModelSpec, gates: tuple[bool, ...]) -> ModelSpec:
    """The model, gated or tied as its printed parameter count says."""
    billions = cells.number("params_b")
    if billions is None or model.moe is not None:
        return model

    def off(candidate: ModelSpec) -> float:
        return abs(parameters(candidate) / 1e9 - billions)

    others = [
        model.replaced(gated_mlp=gated, tie_embeddings=tied)
        for gated in gates
        for tied in (model.tie_embeddings, not model.tie_embeddings)
    ]
    nearest = min(others, key=off)
    # A rounded count proves little: the family's habits hold unless they are far off.
    return nearest if off(model) > 0.03 * billions and off(nearest) < off(model) / 2 else model

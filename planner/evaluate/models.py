"""The model of a row: a catalog entry, a relative of one with the row's sizes, or the row's sizes alone."""

import re
from functools import cache, lru_cache
from math import log

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
# Vocabularies of decoders with a table of their own, in ascending order: SentencePiece's, GPT-2's, GPT-2's padded.
USUAL_VOCABS = (32_000, 50_257, DEFAULT_VOCAB)
# Parameters of a decoder layer over its width squared: a vocabulary of so many widths costs a layer.
LAYER_OVER_HIDDEN = 12
# Parameters in a name, and experts, whose number times size says nothing.
PARAMETERS = re.compile(r"(?<![\d.a-z])(\d+(?:\.\d+)?)\s*([bmt])(?![a-z0-9])", re.IGNORECASE)
EXPERTS = re.compile(r"\d+\s*x\s*\d|-a\d+|\d+e\b|moe", re.IGNORECASE)
SIZED = re.compile(r"\d[bm]$")
# A printed size may be off by this: it is rounded, and counts the vocabulary or does not.
ROUNDED_SIZE = 0.03
# A size of so many digits that differs by this is another model's.
SIZE_DIGITS, ANOTHER_SIZE = 3, 0.01
UNITS = {"m": 1e-3, "b": 1.0, "t": 1e3}
# Widths of published decoders, and the parameters (1e9) of models of that width: GPT-3's table 2.1 and what followed.
USUAL_WIDTHS = {
    768: 0.125,
    1024: 0.35,
    1536: 0.76,
    2048: 1.3,
    2560: 2.7,
    3072: 3.8,
    4096: 7.0,
    5120: 13.0,
    6144: 20.0,
    6656: 32.0,
    8192: 68.0,
    10240: 100.0,
    12288: 175.0,
    16384: 400.0,
    20480: 530.0,
    25600: 1000.0,
}
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
    ("baichuan", {"gated_mlp": True}),
    ("yi-", {"gated_mlp": True}),
    ("olmo", {"gated_mlp": True}),
    ("aquila", {"gated_mlp": True}),
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
    if not cells.text("params_b") and (billions := _billions(name)):
        cells.row["params_b"] = str(billions)
    try:
        base = _relative(name)
        if base is None or _is_another(cells, base):
            return _from_sizes(cells, name, seq_len)
        return _sized(cells, base, name)
    except SpecError as error:
        raise InvalidRunError(str(error)) from error


def _billions(name: str) -> float | None:
    """Parameters that a name states ("GPT3-175B", "opt-350m"), billions; names of experts ("8x7B") do not."""
    found = None if EXPERTS.search(name) else PARAMETERS.search(name)
    return float(found[1]) * UNITS[found[2].lower()] if found else None


def _is_another(cells: Cells, base: ModelSpec) -> bool:
    """Whether the row's model is not the catalog's of that name: it has experts, or its size is another."""
    if base.moe is not None or cells.text("hidden") or cells.text("n_layers"):
        return base.moe is None and bool(cells.whole("n_experts")) and bool(cells.text("hidden"))
    billions = cells.number("params_b")
    return bool(billions) and not 0.7 < parameters(base) / 1e9 / float(billions or 1) < 1.4


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
    key, billions = catalog.key(name), _billions(name)
    for known, entry in _known():
        begins = key.startswith(known) and len(known) >= 5 and (key == known or not key[len(known)].isdigit())
        sized = SIZED.search(known) and _billions(entry) not in (None, billions)  # qwen2-57b begins like qwen2.5-7b
        if key == known or (begins and not sized):
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
    resized = given["hidden"] not in (None, base.hidden) or (given["hidden"] and _is_deeper(cells, model))
    return _with_layers(cells, model.replaced(layers=1)) if resized and given["n_layers"] is None else model


def _is_deeper(cells: Cells, model: ModelSpec) -> bool:
    """Whether the row's size, in three digits or more, is not that of the catalog's model at the row's width."""
    billions = cells.number("params_b") or 0.0
    exact = len(f"{billions:g}".replace(".", "")) >= SIZE_DIGITS
    return exact and abs(parameters(model) / 1e9 / billions - 1) > ANOTHER_SIZE


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
    hidden = cells.whole("hidden") or _usual_hidden(cells, name)
    family = next((habits for word, habits in FAMILIES if word in name.lower()), {})
    heads = cells.whole("heads") or cells.assume("heads", max(1, hidden // DEFAULT_HEAD_DIM))
    if hidden % heads:
        message = f"heads must divide hidden ({hidden}), got {heads}"
        raise InvalidRunError(message)
    gated = bool(family.get("gated_mlp"))
    ffn = cells.whole("ffn") or cells.assume("ffn", -(-8 * hidden // 3 // 256) * 256 if gated else 4 * hidden)
    fields: dict[str, object] = {
        "name": name or "unnamed",
        "hidden": hidden,
        "ffn": ffn,
        "heads": heads,
        "kv_heads": cells.whole("kv_heads") or heads,
        "head_dim": hidden // heads,
        "vocab": cells.whole("vocab") or DEFAULT_VOCAB,
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
    gates = (model.gated_mlp,) if family else (False, True)
    if cells.whole("vocab") is None:
        model = model.replaced(vocab=cells.assume("vocab", _vocab(cells, model, gates)))
    return _with_parameters(cells, model, gates)


def _usual_hidden(cells: Cells, name: str) -> int:
    """The width that models of the row's parameter count usually have. Raises UnsupportedRunError."""
    billions = cells.number("params_b")
    if not billions or billions <= 0 or not name:
        message = f"model must be in the catalog, or hidden and n_layers given, got {name or 'no name'}"
        raise UnsupportedRunError(message)
    hidden = min(USUAL_WIDTHS, key=lambda width: abs(log(USUAL_WIDTHS[width] / billions)))
    return int(cells.assume("hidden", hidden, f"usual for {billions:g}e9 parameters"))


def _vocab(cells: Cells, model: ModelSpec, gates: tuple[bool, ...]) -> int:
    """ "vocab about 250k" in the notes, else a usual vocabulary: that of a GPT unless the printed parameters differ.

    Whoever leaves both ends of a pipeline a layer short takes the head for a layer: then of the vocabularies that agree
    with the printed parameters it is the one whose head costs most nearly as much.
    """
    about = re.search(r"vocab (?:about )?(\d+)k", cells.row.get("notes", ""))
    if about:
        return int(about[1]) * 1000
    printed = cells.row.get("params_b", "")
    if model.moe or not re.fullmatch(r"\d+\.\d+", printed) or not cells.text("n_layers"):
        return DEFAULT_VOCAB
    agreeing = [vocab for vocab in USUAL_VOCABS if _rounds_to(model.replaced(vocab=vocab), printed, gates)]
    pp = cells.whole("pp") or 1
    if agreeing and model.layers % pp and (model.layers + 2) % pp == 0:
        return min(agreeing, key=lambda vocab: abs(vocab - LAYER_OVER_HIDDEN * model.hidden))
    return agreeing[0] if agreeing and DEFAULT_VOCAB not in agreeing else DEFAULT_VOCAB


def _rounds_to(model: ModelSpec, printed: str, gates: tuple[bool, ...]) -> bool:
    """Whether the model, gated or not, with tied embeddings, has the printed parameters (1e9) to their last digit."""
    digits = len(printed.partition(".")[2])
    counts = (parameters(model.replaced(gated_mlp=gated, tie_embeddings=True)) / 1e9 for gated in gates)
    return any(round(count, digits) == round(float(printed), digits) for count in counts)


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
    even = round(layers / (cells.whole("pp") or 1)) * (cells.whole("pp") or 1)
    if abs(even - layers) <= ROUNDED_SIZE * layers:  # models are made as deep as divides into the pipeline
        layers = even
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

"""The points that a profile is made of: the sizes that operators have in the models' layouts, as tensors to measure."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from cost_models.exchange import moved_for_a_parameter
from cost_models.specs.model import ModelSpec
from cost_models.specs.parameters import layer_parameters, parameters
from cost_models.specs.recipe import FrameworkRecipe
from profiler.errors import ProfilerError
from profiler.points import Point

__all__ = [
    "COLLECTIVES",
    "GEMMS",
    "HOST_COPIES",
    "IN_PLACE",
    "LAYERS",
    "LAYERS_IN_A_ROW",
    "LINKS",
    "PIPELINES",
    "SHARED_LAYERS",
    "STATES",
    "Candidates",
    "Counted",
    "candidates",
    "host_copies",
    "layer_shape",
    "merged",
    "reference",
    "that_fit",
]

Candidates = dict[str, list[Point]]
"""Points by operator."""
Counted = dict[tuple[str, tuple[int, ...]], float]
"""Bytes that one row of a memory-bound operator, or one parameter, is counted with: by operator and detail."""

Sizes = Mapping[str, Iterable[tuple[float, ...]]]
"""Distinct sizes of every operator, by its name in cost_models.operators without the unit."""

GEMMS = ("gemm_forward", "gemm_input_grad", "gemm_weight_grad")
ATTENTIONS = ("attention_forward", "attention_backward")
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
LINKS = (*COLLECTIVES, "send")
HOST_COPIES = ("host_to_device", "device_to_host")
LAYERS = ("layers_forward", "layers_both_ways", "layers_split")
"""Whole layers in place, so many one after the other; tokens are their size. The last have their backward split."""
SHARED_LAYERS = tuple(f"shared_{name}" for name in LAYERS)
"""The same layers, which tensor-parallel ranks share."""
PIPELINES = ("pipeline_1f1b", "pipeline_interleaved")
"""As many of them on each of two neighbours, in one chunk and a chunk each."""
IN_PLACE = (*LAYERS, *SHARED_LAYERS, *PIPELINES)
LAYERS_IN_A_ROW = 4
STATES = ("parameter_copy", "gradient_copy", "gradient_accumulation", "optimizer_step")
# Sizes of one axis are measured at factors of so much.
STEP = 4
SMALLEST_BYTES, SMALLEST_PARAMETERS = 1024, 4096
COPY_BYTES = (2**22, 2**24, 2**26)
HOST_COPY_BYTES = tuple(2**power for power in range(12, 31, 3))


def candidates(
    model: ModelSpec,
    recipe: FrameworkRecipe,
    sizes: Sizes,
    bytes_of_a_token: Mapping[str, float],
    ranks: int,
) -> tuple[Candidates, Counted]:
    """The points of one model by operator, in no particular order, and what memory-bound ones are counted with.

    `bytes_of_a_token` are what memory-bound operators are counted with for one token on a device that shares nothing.
    """
    found: Candidates = {}
    counted: Counted = {}
    for name in GEMMS:
        found[name] = [Point(name, _whole(each)) for each in sizes.get(name, ())]
    for name in ATTENTIONS:
        found[name] = [_attention(name, model, each) for each in sizes.get(name, ()) if each[2] == each[3]]
    for name, size in bytes_of_a_token.items():
        detail = _detail(name, model, sizes)
        if detail is not None:
            rows = {max(1, round(each[0] / size)) for each in sizes.get(name, ())}
            found[name] = [Point(name, (count,), detail) for count in sorted(rows)]
            counted[name, detail] = size
    moved: Mapping[str, float] = moved_for_a_parameter(recipe)  # type: ignore[assignment]
    for name in STATES:
        if moved[name]:
            found[name] = [Point(name, (count,), _layer(model)) for count in _state_sizes(model, ranks)]
            counted[name, _layer(model)] = moved[name]
    found |= _links(sizes, ranks) if ranks > 1 else {}
    found["memory_copy"] = [Point("memory_copy", (size,)) for size in COPY_BYTES]
    counted["memory_copy", ()] = 1.0
    found["launch"] = [Point("launch", (1,))]
    found |= _layers(model, sizes) | _shared_layers(model, sizes, sequence_parallel=recipe.sequence_parallel)
    found |= _pipelines(model, sizes) if ranks % 2 == 0 else {}
    return {name: points for name, points in found.items() if points}, counted


def host_copies() -> Candidates:
    """Pinned copies between a host and its GPU, both directions."""
    return {name: [Point(name, (size,)) for size in HOST_COPY_BYTES] for name in HOST_COPIES}


def merged(several: Iterable[Candidates]) -> Candidates:
    """The points of several models together, each once, the smallest first."""
    found: dict[str, set[Point]] = {}
    for one in several:
        for name, points in one.items():
            found.setdefault(name, set()).update(points)
    return {name: sorted(points, key=lambda point: (point.sizes, point.detail)) for name, points in found.items()}


def that_fit(found: Candidates, bytes_of: Callable[[Point], float], limit_bytes: float) -> Candidates:
    """The points whose tensors a rank has memory for. Raises ProfilerError where an operator has none."""
    fitting = {name: [point for point in points if bytes_of(point) <= limit_bytes] for name, points in found.items()}
    for name, points in fitting.items():
        if not points:
            least = min(found[name], key=bytes_of)
            message = (
                f"{least} is the smallest that is to be measured and takes {bytes_of(least) / 2**30:,.1f} GiB, a rank "
                f"has {limit_bytes / 2**30:,.1f} GiB for it: give a smaller --seq-len or model, or fewer --ranks"
            )
            raise ProfilerError(message)
    return fitting


def reference(found: Mapping[str, Sequence[Point]]) -> Point:
    """A product of middling size, which says whether the device is as fast as at its best."""
    products = found["gemm_forward"]
    return products[len(products) // 2]


def _whole(sizes: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(max(1, round(size)) for size in sizes)


def _attention(name: str, model: ModelSpec, sizes: tuple[float, ...]) -> Point:
    whole = _whole(sizes)
    return Point(name, whole, (max(1, model.kv_heads * whole[1] // model.heads),))


def _detail(name: str, model: ModelSpec, sizes: Sizes) -> tuple[int, ...] | None:
    """What a row of a memory-bound operator is made of; None for operators that are not measured by rows."""
    kind = name.removesuffix("_forward").removesuffix("_backward")
    length = max((each[2] for each in sizes.get("attention_forward", ())), default=float(model.max_seq_len))
    details = {
        "norm": (model.hidden, int(model.norm == "layernorm")),
        "activation": (model.ffn, int(model.gated_mlp)),
        "rotary": (model.heads, model.kv_heads, model.head_dim, int(length)),
        "residual": (model.hidden,),
        "loss": (model.vocab,),
        "embedding": (model.hidden, model.vocab),
    }
    return details.get(kind)


def _layer(model: ModelSpec) -> tuple[int, ...]:
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    return model.hidden, query, key, 1 + model.gated_mlp, model.ffn


def _state_sizes(model: ModelSpec, ranks: int) -> list[int]:
    """Parameters of a shard of a layer, of a layer, and so on up to the whole model."""
    smallest = max(SMALLEST_PARAMETERS, layer_parameters(model, model.layer_kinds[0]) // ranks)
    return _steps(smallest, parameters(model))


def _layers(model: ModelSpec, sizes: Sizes) -> dict[str, list[Point]]:
    """Whole layers of every micro-batch, nothing shared out; none of models whose layers have experts."""
    return _of_own_layers(LAYERS, model, sizes)


def _pipelines(model: ModelSpec, sizes: Sizes) -> dict[str, list[Point]]:
    """The same layers on each of two neighbours."""
    return _of_own_layers(PIPELINES, model, sizes)


def _of_own_layers(names: Iterable[str], model: ModelSpec, sizes: Sizes) -> dict[str, list[Point]]:
    batches = {(batch, length) for batch, length, _ in _micro_batches(model, sizes)}
    in_a_row = (*layer_shape(model), LAYERS_IN_A_ROW)
    points = [((batch * length,), (*in_a_row, length)) for batch, length in sorted(batches)]
    return {name: [Point(name, *each) for each in points] for name in names} if points else {}


def _shared_layers(model: ModelSpec, sizes: Sizes, *, sequence_parallel: bool) -> dict[str, list[Point]]:
    """The same for every number of ranks that share layers, if each of them has key and value heads of its own."""
    of_shared = sorted(each for each in _micro_batches(model, sizes) if 1 < each[2] <= model.kv_heads)
    in_a_row = (*layer_shape(model), LAYERS_IN_A_ROW)
    points = [
        ((batch * length,), (*in_a_row, length, ranks, int(sequence_parallel))) for batch, length, ranks in of_shared
    ]
    return {name: [Point(name, *each) for each in points] for name in SHARED_LAYERS} if points else {}


def _micro_batches(model: ModelSpec, sizes: Sizes) -> set[tuple[int, int, int]]:
    """Sequences of a micro-batch, their length and the ranks that share heads, of layers that have no experts."""
    attentions = () if model.moe else sizes.get("attention_forward", ())
    whole = (_whole(each) for each in attentions if each[2] == each[3])
    return {(batch, length, model.heads // heads) for batch, heads, length, *_ in whole}


def layer_shape(model: ModelSpec) -> tuple[int, ...]:
    """What tells a layer of one model from another's, as tensors are concerned."""
    gated, layernorm = int(model.gated_mlp), int(model.norm == "layernorm")
    return model.hidden, model.heads, model.kv_heads, model.head_dim, model.ffn, gated, layernorm


def _links(sizes: Sizes, ranks: int) -> dict[str, list[Point]]:
    """Collectives of every group size, and hops, from the smallest to the largest tensor of all."""
    largest = max((each[0] for name in COLLECTIVES for each in sizes.get(name, ())), default=float(SMALLEST_BYTES))
    every = _steps(SMALLEST_BYTES, max(SMALLEST_BYTES, round(largest)))
    groups = [size for size in range(2, ranks + 1) if ranks % size == 0]
    found = {name: [Point(name, (size, group)) for group in groups for size in every] for name in COLLECTIVES}
    return {**found, "send": [Point("send", (size, 2)) for size in every]}


def _steps(first: int, last: int) -> list[int]:
    """From the first to the last at factors of at most STEP."""
    found = [first]
    while found[-1] * STEP < last:
        found.append(found[-1] * STEP)
    return [*found, last] if last > found[-1] else found

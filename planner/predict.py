"""Rows of (layout, stage, option) -> seconds and bytes: the cost expressions, bound to one request's hardware."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cost_models import communication, kernels, overlap
from cost_models.columns import CHUNK_ROWS, distinct, evaluate, evaluate_distinct, evaluate_once
from cost_models.lowered import Lowered, Parted, rebound
from cost_models.lowered_costs import (
    lowered_exchange,
    lowered_micro_batch,
    lowered_pipeline_exchange,
    lowered_stage,
)
from cost_models.specs.parameters import padded_vocab
from cost_models.vocabulary import RECOMPUTE_MODULES, recompute_flag
from planner.request import PlanRequest
from planner.space import OFFLOADS, RECOMPUTE_SETS, head_position, is_sliced, known_values, take

if TYPE_CHECKING:
    from planner.layout_costs import LayoutCosts

__all__ = [
    "ATTENTION_OUTPUTS",
    "MICRO_BATCH_OUTPUTS",
    "OUTPUTS",
    "TIME_OUTPUTS",
    "CostModel",
    "constants",
    "unit_seconds",
]

Array = NDArray[np.float64]

MICRO_BATCH_OUTPUTS = ("forward_s", "input_grad_s", "weight_grad_s")
# Of forward and backward, the attention that grows from slice to slice.
ATTENTION_OUTPUTS = ("forward_attention_s", "backward_attention_s")
# What a row names of its costs; and what tells rows apart of which the column `stage` numbers the stages.
ROW_KEYS = ("layout", "zero", "recompute")
# What else it names where the passes for the pipeline's sake count (planner/passes.py).
PASS_KEYS = ("position", "chunk", "layers", "head_rank")
STAGE_KEYS = ("stage", "zero", "recompute", "recompute_ends", *OFFLOADS)
TIME_OUTPUTS = (*MICRO_BATCH_OUTPUTS, "first_s", "last_s", "global_s")
# Groups of outputs that are asked for together; "all" is every output of the stage expressions.
OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "times": TIME_OUTPUTS,
    "chunk": MICRO_BATCH_OUTPUTS,
    "global": ("global_s",),
    "device": ("device_bytes", "host_bytes"),
    "option": (*TIME_OUTPUTS, "device_bytes"),
    "phases": ("device_bytes", "saved_bytes", "waiting_bytes", "buffer_bytes", "transient_bytes", "optimizer_bytes"),
    "all": (),
}


def unit_seconds(micro_batch: Mapping[str, Array]) -> dict[str, Array]:
    """Seconds of one micro-batch in a layer, the embedding and the head: forward and backward, no state exchange.

    And those of the forward alone, in `layer_forward`.
    """
    both = {
        unit: np.asarray(sum(micro_batch[f"{unit}_{part}"] for part in MICRO_BATCH_OUTPUTS))
        for unit in ("layer", "embedding", "head")
    }
    return {**both, "layer_forward": micro_batch["layer_forward_s"]}


def constants(request: PlanRequest) -> dict[str, float]:
    """What the expressions read that is one value for the whole request."""
    model, workload, moe, mla = request.model, request.workload, request.model.moe, request.model.mla
    values: dict[str, float] = {
        name: getattr(model, name) for name in ("hidden", "ffn", "heads", "kv_heads", "head_dim", "position_rows")
    }
    values |= {name: getattr(workload, name) for name in ("seq_len", "expert_imbalance", "document_mask_imbalance")}
    if moe:
        values |= {name: getattr(moe, name) for name in ("experts", "top_k", "expert_ffn", "shared_ffn")}
    if mla:
        values |= {name: getattr(mla, name) for name in ("query_rank", "kv_rank", "rope_head_dim")}
        values["value_head_dim"] = mla.value_head_dim
    values["quantised"] = float(workload.precision == "fp8")
    return values


def _counted(body: Callable[..., Any], share: Callable[..., Any]) -> Callable[..., Any]:
    """The body's seconds, with those of them that are measured as the imaginary part."""
    return lambda *sizes: body(*sizes) * (1.0 + 1j * share(*sizes))


def _complex(lowered: Lowered, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of expressions that are bound to counted bodies; `evaluate` would drop the imaginary parts."""
    return lowered({name: np.asarray(columns[name], dtype=np.float64) for name in lowered.inputs})


def _uncounted(body: Callable[..., Any]) -> Callable[..., Any]:
    """The body's seconds, none of them measured, whatever those are that it is given."""
    return lambda *sizes: body(*map(np.real, sizes)) + 0j


class CostModel:
    """The lowered cost expressions of one request.

    `micro_batch` and `exchange` give the dear parts once a layout; `stages` combines them for rows that name a layout,
    a stage (or one chunk of it) and an option. All columns are float64, seconds and bytes.
    """

    def __init__(
        self,
        request: PlanRequest,
        *,
        offload: bool = False,
        sliced: bool | None = None,
        recompute_shares: Sequence[Mapping[str, float]] | None = None,
    ) -> None:
        """With `sliced` the expressions know slices; where it is left open, if the request asks for such schedules.

        `recompute_shares` are the recompute sets that rows name by index, as shares of each module; without them
        those of the search.
        """
        self.request = request
        self.offload = offload
        self.sliced = is_sliced(request) if sliced is None else sliced
        self._stages: dict[str, Parted] = {}
        self.constants = constants(request)
        self._shares = recompute_shares

    @cached_property
    def known(self) -> Mapping[str, int]:
        """What rules read of the request beside a layout's columns."""
        return known_values(self.request)

    @cached_property
    def functions(self) -> Mapping[str, Any]:
        """Numpy bodies of every opaque operator, bound to the request's device, links and recipe."""
        request = self.request
        cluster, precision = request.cluster, request.workload.precision
        compute = kernels.bind(cluster.gpu, request.profile, request.recipe, precision, cluster.nodes)
        exchanges = communication.bind(cluster, request.profile, request.recipe.expert_dispatcher)
        return {**compute, **exchanges, **overlap.bind(request.profile)}

    def relief(self, world: NDArray[Any]) -> Array:
        """Seconds of a pass on `world` ranks over those on all of the cluster, which the operators are bound to.

        Fewer nodes wait for a slower one among them: a layout that leaves nodes idle is not held up by these.
        """
        cluster, profile = self.request.cluster, self.request.profile
        nodes = np.minimum(-(-np.asarray(world) // cluster.gpus_per_node), cluster.nodes)
        counts, which = np.unique(nodes, return_inverse=True)
        whole = profile.sustained_on(cluster.nodes)
        return np.array([whole / profile.sustained_on(count) for count in counts.tolist()])[which.reshape(-1)]

    @cached_property
    def coverage(self) -> Mapping[str, Any]:
        """For kernels and links, which take the same sizes: 1.0 where their seconds rest on measurements, else 0.0."""
        request = self.request
        covered = kernels.coverage(request.cluster.gpu, request.profile, request.workload.precision)
        return covered | communication.coverage(request.cluster, request.profile, request.recipe.expert_dispatcher)

    @cached_property
    def measured_functions(self) -> Mapping[str, Any]:
        """The same bodies, whose seconds have those that rest on measurements as their imaginary part.

        Sums keep it, and a maximum takes that of the larger. What overlapping leaves is measured where the profile's
        run measured how streams interfere.
        """
        request = self.request
        covered = self.coverage
        counted = {name: _counted(self.functions[name], share) for name, share in covered.items()}
        others = {name: body for name, body in self.functions.items() if name not in covered}
        interferes = request.profile.gpu == request.cluster.gpu.name and request.profile.is_measured("interference")
        kept = {"exposed_s"} if interferes else set()  # its body is linear piece by piece: it takes them as they are
        return counted | {name: body if name in kept else _uncounted(body) for name, body in others.items()}

    def measured_micro_batch(self, layouts: Mapping[str, NDArray[Any]], recompute: int = 0) -> dict[str, Array]:
        """The seconds of `micro_batch` that rest on measured kernels and links, for each layout."""
        written = lowered_micro_batch(self.request.model, self.request.recipe, sliced=self.sliced)
        lowered = rebound(written, self.measured_functions)
        counted = _complex(lowered, {**self._with_flags(recompute), **self._completed(layouts)})
        return {name: np.broadcast_to(np.imag(values), len(layouts["tp"])) for name, values in counted.items()}

    def measured_global_s(self, costs: "LayoutCosts", rows: Mapping[str, NDArray[Any]]) -> Array:
        """Seconds of the global part of a step that rest on measured kernels and links; rows as in `stages`."""
        request = self.request
        exchange = rebound(lowered_exchange(request.model, request.recipe), self.measured_functions)
        layouts = {name: column[rows["layout"]] for name, column in costs.layouts.items()}
        counted = _complex(exchange, {**self.constants, **self._exchange_columns(layouts)})
        lowered = self._lowered("global").rebound(self.measured_functions)
        columns = {**costs.gather(lowered.early.inputs, rows), **counted}
        early = lowered.early({name: columns[name] for name in lowered.early.inputs})
        late = {name: np.asarray(rows.get(name, 0.0), dtype=np.float64) for name in lowered.late.inputs}
        return np.asarray(np.imag(lowered.late(late | early)["global_s"]))

    @cached_property
    def _micro_batch(self) -> Lowered:
        lowered = lowered_micro_batch(self.request.model, self.request.recipe, sliced=self.sliced)
        return rebound(lowered, self.functions)

    @cached_property
    def _exchange(self) -> Lowered:
        return rebound(lowered_exchange(self.request.model, self.request.recipe), self.functions)

    @cached_property
    def _pipeline_exchange(self) -> Lowered:
        return rebound(lowered_pipeline_exchange(self.request.model, self.request.recipe), self.functions)

    def _lowered(self, outputs: str) -> Parted:
        """The stage expressions of a group of outputs, lowered once."""
        if outputs not in self._stages:
            request = self.request
            context = request.profile.context_bytes
            names = OUTPUTS[outputs] + (ATTENTION_OUTPUTS if self.sliced and outputs == "times" else ())
            lowered = lowered_stage(
                request.model, request.recipe, context, offload=self.offload, sliced=self.sliced, outputs=names
            )
            self._stages[outputs] = lowered.rebound(self.functions)
        return self._stages[outputs]

    def operations(self, outputs: str) -> int:
        """Size of the stage expressions of a group of outputs, after common parts are shared."""
        return self._lowered(outputs).operations

    @cached_property
    def recompute_modules(self) -> frozenset[str]:
        """Entries of the recompute vocabulary that free memory of this model under its recipe."""
        model, recipe = self.request.model, self.request.recipe
        frees = {
            "norm": True,
            "activation": True,
            "core_attention": not recipe.flash_attention,
            "mla_up_proj": model.mla is not None,
            "mlp": any(not kind.moe for kind in model.layer_kinds),
            "moe": model.moe is not None,
            "shared_experts": bool(model.moe and model.moe.shared_ffn),
            "full": True,
        }
        return frozenset(module for module, does in frees.items() if does)

    @cached_property
    def recompute_sets(self) -> tuple[int, ...]:
        """Indices of RECOMPUTE_SETS that differ for this model: the first of those that come to the same modules."""
        if self._shares is not None:
            return tuple(range(len(self._shares)))
        first: dict[frozenset[str], int] = {}
        for index, modules in enumerate(RECOMPUTE_SETS):
            first.setdefault(self.recompute_modules.intersection(modules), index)
        return tuple(sorted(first.values()))

    def micro_batch(self, layouts: Mapping[str, NDArray[Any]], recompute: int = 0) -> dict[str, Array]:
        """Costs of one micro-batch in one layer, the embedding and the head, for each layout and one recompute set."""
        columns = self._completed(layouts)
        return evaluate_distinct(self._micro_batch, columns, len(columns["tp"]), self._with_flags(recompute))

    def micro_batch_table(self, layouts: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Array], NDArray[np.int64]]:
        """Costs of one micro-batch, float[distinct, recompute sets] by name, and which distinct row each layout is."""
        inputs, completed, sets = self._micro_batch.inputs, self._completed(layouts), self.recompute_sets
        first, which = distinct(inputs, completed, len(layouts["tp"]))
        count = len(first)
        columns = {name: np.repeat(completed[name][first], len(sets)) for name in inputs if name in completed}
        flags = [self._flags(index) for index in sets]
        columns |= {name: np.tile([one[name] for one in flags], count) for name in flags[0]}
        values = evaluate(self._micro_batch, {**self.constants, **columns}, count * len(sets))
        # Sets that are never asked for have the costs of the first.
        place = [sets.index(index) if index in sets else 0 for index in range(len(self._shares or RECOMPUTE_SETS))]
        return {name: column.reshape(count, len(sets))[:, place] for name, column in values.items()}, which

    def exchange_table(self, layouts: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Array], NDArray[np.int64]]:
        """Costs of gathering parameters and reducing gradients, and parameters on one rank; and each layout's row."""
        columns = self._exchange_columns(layouts)
        return evaluate_once(self._exchange, columns, len(columns["tp"]), self.constants)

    def _exchange_columns(self, layouts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The columns that exchanges of states read."""
        columns = self._completed(layouts)
        columns["dp_shard"] = columns["dp_shard"] * columns["cp"]
        # Where both ends are shared out, every rank holds the same rows of them.
        columns["ends_apart"] = (head_position(columns) > 0) & (columns["spread"] == 0)
        return columns

    def pipeline_exchange_table(
        self, layouts: Mapping[str, NDArray[Any]]
    ) -> tuple[dict[str, Array], NDArray[np.int64]]:
        """What pipeline ranks exchange to share out slices, and each layout's row; nothing without slices."""
        rows = len(layouts["tp"])
        if not self.sliced:
            return {}, np.zeros(rows, dtype=np.int64)
        return evaluate_once(self._pipeline_exchange, self._completed(layouts), rows, self.constants)

    def stages(
        self, costs: "LayoutCosts", rows: Mapping[str, NDArray[Any]], outputs: str = "times"
    ) -> dict[str, Array]:
        """Stage costs of each row. A row names `layout` (index), `zero`, `recompute` (indices) and the stage's counts.

        `outputs` is a key of OUTPUTS.
        """
        count = len(rows["layout"])
        results = {name: np.empty(count) for name in self._lowered(outputs).late.outputs}
        for start in range(0, count, CHUNK_ROWS):
            window = slice(start, min(start + CHUNK_ROWS, count))
            part = take(rows, window)
            for name, values in self.prepared(costs, part, outputs)(part).items():
                results[name][window] = values
        return results

    def prepared(
        self, costs: "LayoutCosts", rows: Mapping[str, NDArray[Any]], outputs: str = "times"
    ) -> Callable[[Mapping[str, NDArray[Any]]], dict[str, Array]]:
        """A function that gives `stages` of rows that differ from these, if at all, in columns of LATE.

        Rows that are one stage under one option but for these, which a column `stage` says, are costed once.
        """
        lowered, count = self._lowered(outputs), len(rows["layout"])
        every: Any = slice(None)
        first, which = distinct(STAGE_KEYS, rows, count) if "stage" in rows else (every, every)
        keys = (*ROW_KEYS, *lowered.early.inputs, *(() if self.request.recipe.host_runs_ahead else PASS_KEYS))
        few = {name: rows[name][first] for name in dict.fromkeys(keys) if name in rows}
        shared = evaluate(lowered.early, costs.gather(lowered.early.inputs, few), len(few["layout"]))
        columns = {name: column[which] for name, column in shared.items()}
        changing = tuple(name for name in lowered.late.inputs if name not in columns)

        def late(rows: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
            own = {name: np.asarray(rows.get(name, 0.0), dtype=np.float64) for name in changing}
            # What overlapping hides is a difference: where all is hidden, rounding can leave a hair below zero.
            return {name: np.maximum(values, 0.0) for name, values in lowered.late(columns | own).items()}

        return late

    def _with_flags(self, recompute: int) -> dict[str, float]:
        """The constants and the flags of a recompute set."""
        return self.constants | self._flags(recompute)

    def _flags(self, recompute: int) -> dict[str, float]:
        """The flags of a recompute set."""
        shares = self._shares[recompute] if self._shares is not None else dict.fromkeys(RECOMPUTE_SETS[recompute], 1.0)
        return {recompute_flag(module): shares.get(module, 0.0) for module in RECOMPUTE_MODULES}

    def _completed(self, layouts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The layouts with the vocabulary as it is padded, and the length of a slice where there are several."""
        vocab, multiple = layouts.get("vocab", self.request.model.vocab), self.request.recipe.vocab_multiple
        columns = {**layouts, "padded_vocab": padded_vocab(vocab, multiple, layouts["tp"])}
        if self.sliced:
            columns["slice_len"] = self.request.workload.seq_len / layouts["slices"]
        return columns

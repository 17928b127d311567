"""The cost model once more, written by hand in plain Python for one row: what the lowered expressions must equal.

Branches where the expressions multiply by flags, a loop of events where overlap has a closed form, sums over tensors
spelt out. Only powers of two as degrees, on eight-GPU nodes.
"""

import math
from dataclasses import dataclass

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.recipe import FrameworkRecipe
from tests.cost_models.engines_by_hand import boundary_tensors, optimizer_bytes, stranded_bytes

Row = dict[str, float]
Passes = tuple[float, float, float]  # forward, input-grad and weight-grad seconds


@dataclass(frozen=True)
class ByHand:
    """Seconds and bytes of one row for a model under a recipe on some hardware, bf16."""

    model: ModelSpec
    recipe: FrameworkRecipe
    cluster: ClusterSpec
    profile: HardwareProfile
    context_bytes: float

    # kernels
    def gemm(self, rows: float, columns: float, inner: float, output_bytes: float = 2) -> float:
        gpu, constants = self.cluster.gpu, self.profile.gemm["bf16"]
        peak = gpu.peak_flops["bf16"] * constants.peak_fraction * self.profile.sustained_fraction
        bandwidth = gpu.memory_bandwidth_bytes_per_s * constants.bandwidth_fraction
        traffic = 2 * rows * inner + 2 * inner * columns + output_bytes * rows * columns
        return max(2 * rows * columns * inner / peak, traffic / bandwidth) + constants.launch_s

    def linear(self, tokens: float, inputs: float, outputs: float) -> Passes:
        accumulate = 2 * self.recipe.gradient_bytes if self.recipe.fused_gradient_accumulation else 2
        return (
            self.gemm(tokens, outputs, inputs),
            self.gemm(tokens, inputs, outputs),
            self.gemm(outputs, inputs, tokens, accumulate),
        )

    def moved(self, traffic: float) -> float:
        constants = self.profile.elementwise
        rate = self.cluster.gpu.memory_bandwidth_bytes_per_s * constants.bandwidth_fraction
        return traffic / rate + constants.launch_s if traffic else 0.0

    def flash(self, row: Row) -> tuple[float, float]:
        """Forward and backward of all the kernels of a rank: one, or in a ring one for each rank's keys."""
        constants, gpu = self.profile.attention, self.cluster.gpu
        groups = row["cp"] / row["cp_heads"]
        kernels = groups if row["cp_ring"] else 1
        heads, queries = row["heads"] / row["tp"] / row["cp_heads"], row["seq_len"] / groups
        keys = row["seq_len"] / kernels
        flops = 2 * row["micro_batch_size"] * heads * queries * keys * row["head_dim"]
        share = constants.peak_fraction * keys / (keys + constants.half_length)
        tiles = row["micro_batch_size"] * heads * queries / constants.tile_rows
        share *= min(1, tiles / (constants.tiles_per_multiprocessor * gpu.streaming_multiprocessors))
        seconds = flops / (gpu.peak_flops["bf16"] * self.profile.sustained_fraction * share)
        launch = self.profile.gemm["bf16"].launch_s
        kernels *= row["document_mask_imbalance"] if row["cp"] > 1 else 1
        return kernels * (seconds + launch), kernels * (2.5 * seconds / constants.backward_fraction + launch)

    # links
    def gather(self, size: float, ranks: float, stride: float) -> float:
        if ranks == 1 or size == 0:
            return 0.0
        node, network = self.cluster.tiers
        inside = min(ranks, max(1, 8 // stride))
        seconds_per_byte = latency = 0.0
        if inside > 1:
            rate = node.bandwidth_bytes_per_s * self.profile.link_fraction["nvlink"]
            seconds_per_byte, latency = (ranks - 1) / ranks / rate, (inside - 1) * node.latency_s
        if ranks > inside:
            rate = network.bandwidth_bytes_per_s * self.profile.link_fraction["network"]
            seconds_per_byte = max(seconds_per_byte, (ranks - inside) / ranks / (inside * rate))
            latency += math.log2(ranks / inside) * network.latency_s
        return size * seconds_per_byte + latency + self.profile.collective_base_latency_s

    def reduce(self, size: float, ranks: float, stride: float) -> float:
        return 2 * self.gather(size, ranks, stride)

    def switch(self, held: float, ranks: float, stride: float) -> float:
        """An all-to-all: equal parts of what a rank holds to each other rank."""
        if ranks == 1:
            return 0.0
        node, network = self.cluster.tiers
        inside = min(ranks, max(1, 8 // stride))
        rate = node.bandwidth_bytes_per_s * self.profile.link_fraction["nvlink"]
        seconds, latency = (held * (ranks - 1) / ranks / rate, node.latency_s) if inside > 1 else (0.0, 0.0)
        if ranks > inside:
            rate = network.bandwidth_bytes_per_s * self.profile.link_fraction["network"]
            seconds = max(seconds, held * (ranks - inside) / ranks / rate)
            latency += network.latency_s
        return seconds + latency + self.profile.collective_base_latency_s

    def exposed(self, compute: float, communication: float) -> float:
        """Both run, each slowed by its factor, until one ends; not overlapped where that would take longer."""
        slow, slow_link = self.profile.overlap.compute_slowdown, self.profile.overlap.communication_slowdown
        if compute * slow <= communication * slow_link:
            together = compute * slow + communication - compute * slow / slow_link
        else:
            together = communication * slow_link + compute - communication * slow_link / slow
        return min(together - compute, communication)

    # one micro-batch in a layer
    def layer(self, row: Row) -> dict[str, float]:
        t, sp = row["tp"], row["sequence_parallel"]
        tokens = row["micro_batch_size"] * row["seq_len"] / row["cp"]
        h, f = row["hidden"], row["ffn"] / t
        query, key = row["heads"] * row["head_dim"] / t, max(row["kv_heads"] / t, 1) * row["head_dim"]
        x = 2 * tokens * h
        local = x / t if sp else x
        matrices = 2 if self.model.gated_mlp else 1
        norm = (self.moved(2 * local), self.moved(3 * local), 0.0)
        residual = (self.moved(3 * local), self.moved(3 * local), 0.0)
        up, down = self.linear(tokens, h, matrices * f), self.linear(tokens, f, h)
        qkv, out = self.linear(tokens, h, query + 2 * key), self.linear(tokens, query, h)
        act = (self.moved(2 * tokens * (matrices + 1) * f), self.moved(2 * tokens * (2 * matrices + 1) * f), 0.0)
        rope_s = self.moved(4 * tokens * (query + key)) if self.model.positions == "rope" else 0.0
        ag, ar = self.gather(x, t, 1), self.reduce(x, t, 1)
        leave = (ag, ag, 0.0) if sp else (ar, 0.0, 0.0)
        core, core_kernels = self.core_attention(row)
        context = self.context(row, core)
        launched = 1 if t > 1 else 0
        # seconds of the three passes, forward launches, the recompute modules that run it again
        operators: list[tuple[Passes, float, set[str]]] = [
            (norm, 1, {"norm"}),
            (self.enter(ag, ar, sp, qkv[1]), launched, set()),
            (qkv, 1, set()),
            ((rope_s, rope_s, 0.0), 2 if rope_s else 0, set()),
            *((passes, kernels, {"core_attention"}) for passes, kernels in context),
            (core, core_kernels, {"core_attention"}),
            (out, 1, set()),
            (leave, launched, set()),
            (residual, 1, set()),
            (norm, 1, {"norm"}),
            (self.enter(ag, ar, sp, up[1]), launched, {"mlp"}),
            (up, 1, {"mlp"}),
            (act, 1, {"activation", "mlp"}),
            (down, 1, {"mlp"}),
            (leave, launched, {"mlp"}),
            (residual, 1, set()),
        ]
        tensor_parallel = 2 * sum(leave) + sum(self.enter(ag, ar, sp, qkv[1])) + sum(self.enter(ag, ar, sp, up[1]))
        chosen = {name for name in ("norm", "activation", "core_attention", "mlp", "full") if row[f"recompute_{name}"]}
        stop = 13 if self.recipe.recompute_stops_early else len(operators)  # the last is then the activation
        again = [
            part
            for index, part in enumerate(operators)
            if ("full" in chosen and index < stop + len(context) - 1) or part[2] & chosen
        ]
        return {
            **self.passes("layer", [part[0] for part in operators], sum(part[1] for part in operators), 4),
            "layer_tensor_parallel_s": tensor_parallel,
            "layer_context_parallel_s": sum(sum(passes) for passes, _ in context),
            "layer_expert_parallel_s": 0.0,
            "layer_recompute_s": max(sum(part[0][0] for part in again), self.host(sum(part[1] for part in again))),
        }

    def enter(self, gather: float, reduce: float, sequence_parallel: float, input_grad: float) -> Passes:
        if sequence_parallel:
            return gather, gather + self.exposed(input_grad, gather), 0.0
        return 0.0, reduce, 0.0

    def context(self, row: Row, core: Passes) -> list[tuple[Passes, float]]:
        """Switch of heads for sequence, then gather of keys and values, or what their ring does not hide."""
        t, c, inner = row["tp"], row["cp"], row["cp_heads"]
        tokens, groups = row["micro_batch_size"] * row["seq_len"] / c, c / inner
        query, key = row["heads"] * row["head_dim"] / t, max(row["kv_heads"] / t, 1) * row["head_dim"]
        switch = self.switch(2 * tokens * (2 * query + 2 * key), inner, t)
        pair = self.gather(2 * tokens * c * 2 * key / inner, groups, t * inner)
        switched: tuple[Passes, float] = ((switch, switch, 0.0), 4 if inner > 1 else 0)
        if row["cp_ring"]:
            hidden = (self.exposed(core[0], pair), self.exposed(core[1], 3 * pair), 0.0)
            return [switched, (hidden, groups - 1)]
        return [switched, ((pair, 2 * pair, 0.0), 2 if groups > 1 else 0)]

    def core_attention(self, row: Row) -> tuple[Passes, float]:
        if self.recipe.flash_attention:
            return (*self.flash(row), 0.0), row["cp"] / row["cp_heads"] if row["cp_ring"] else 1
        rows = row["micro_batch_size"] * row["heads"] / row["tp"] * row["seq_len"] / row["cp"]
        s, d = row["seq_len"], row["head_dim"]
        products = self.gemm(rows, s, d) + self.gemm(rows, d, s)
        forward, backward = (9, 11) if self.recipe.dropout else (4, 6)
        passes = (products + self.moved(forward * rows * s), 2 * products + self.moved(backward * rows * s), 0.0)
        return passes, 4 if self.recipe.dropout else 3

    def passes(self, unit: str, operators: list[Passes], kernels: float, products: float) -> dict[str, float]:
        forward, input_grad, weight_grad = (sum(part[index] for part in operators) for index in range(3))
        backward = max(input_grad + weight_grad, self.host(kernels + products))
        return {
            f"{unit}_forward_s": max(forward, self.host(kernels)),
            f"{unit}_input_grad_s": backward - weight_grad,
            f"{unit}_weight_grad_s": weight_grad,
        }

    def host(self, kernels: float) -> float:
        return 0.0 if self.recipe.cuda_graphs else kernels * self.profile.host_launch_s

    # one micro-batch at the ends of the model
    def ends(self, row: Row) -> dict[str, float]:
        t, sp, v = row["tp"], row["sequence_parallel"], row["padded_vocab"] / row["tp"]
        tokens = row["micro_batch_size"] * row["seq_len"] / row["cp"]
        x = 2 * tokens * row["hidden"]
        local = x / t if sp else x
        ag, ar = self.gather(x, t, 1), self.reduce(x, t, 1)
        leave = (ag, ag, 0.0) if sp else (ar, 0.0, 0.0)
        rows_bytes = (2 + 2 * self.recipe.gradient_bytes) * tokens * row["hidden"]
        lookup = (self.moved(2 * x), 0.0, self.moved(rows_bytes))
        product = self.linear(tokens, row["hidden"], v)
        enter = self.enter(ag, ar, sp, product[1])
        scalars = 3 * self.reduce(4 * tokens, t, 1)
        loss = (self.moved(10 * tokens * v), self.moved(6 * tokens * v), 0.0)
        norm = (self.moved(2 * local), self.moved(3 * local), 0.0)
        launched = 1 if t > 1 else 0
        head = [norm, enter, product, loss, (scalars, 0.0, 0.0)]
        return {
            **self.passes("embedding", [lookup, leave], 1 + launched, 1),
            **self.passes("head", head, 8 + 4 * launched, 1),
            "embedding_tensor_parallel_s": sum(leave),
            "head_tensor_parallel_s": sum(enter) + scalars,
            "embedding_recompute_s": 0.0,
            "head_recompute_s": 0.0,
        }

    # a stage, from the costs of its units
    def stage_seconds(self, row: Row, part: Row) -> dict[str, float]:
        held = {"layer": row["layers"], "embedding": row["has_embedding"], "head": row["has_head"]}
        again = {"layer": row["recompute_layers"]}
        again |= {unit: held[unit] if row["recompute_ends"] else 0.0 for unit in ("embedding", "head")}
        share = self.shares(row, part)
        every_gather = bool(row["shard_weights"] and row["reshard"])
        forward_exchange = backward_exchange = recompute = 0.0
        for unit, count in held.items():
            gather = share[unit] * part[f"{unit}_gather_s"] if every_gather else 0.0
            reduce = share[unit] * part[f"{unit}_reduce_s"] if row["shard_gradients"] else 0.0
            backward = part[f"{unit}_input_grad_s"] + part[f"{unit}_weight_grad_s"]
            longer = backward + part[f"{unit}_recompute_s"]
            forward_exchange += count * self.beside_forward(part[f"{unit}_forward_s"], gather)
            backward_exchange += (count - again[unit]) * self.beside_backward(backward, gather, reduce)
            backward_exchange += again[unit] * self.beside_backward(longer, gather, reduce)
            recompute += again[unit] * part[f"{unit}_recompute_s"]
        groups = ("tensor_parallel_s", "context_parallel_s", "expert_parallel_s")
        total = {
            name: sum(count * part[f"{unit}_{name}"] for unit, count in held.items())
            for name in ("forward_s", "input_grad_s", "weight_grad_s", *groups)
        }
        return {
            **total,
            "forward_s": total["forward_s"] + forward_exchange,
            "input_grad_s": total["input_grad_s"] + recompute + backward_exchange,
            "weight_grad_s": total["weight_grad_s"] + self.accumulation(row, part, held),
            "first_s": self.first(row, part, share),
            "last_s": self.last(row, part, share),
            "global_s": self.closing(row, part, share),
            "recompute_s": recompute,
            "exchange_s": forward_exchange + backward_exchange,
        }

    def accumulation(self, row: Row, part: Row, held: Row) -> float:
        """Kernels that add up gradients, where products do not and no micro-batch reduces its own."""
        if self.recipe.fused_gradient_accumulation or row["shard_gradients"]:
            return 0.0
        moved = 2 + 2 * min(self.recipe.gradient_bytes, 4)
        parameters = {unit: part[f"{unit}_parameters"] + part[f"{unit}_expert_parameters"] for unit in held}
        return sum(count * self.moved(moved * parameters[unit]) for unit, count in held.items())

    def shares(self, row: Row, part: Row) -> dict[str, float]:
        """How much of each unit's states is exchanged: of a head without its tied matrix, the rest."""
        whole = {"layer": 1.0, "embedding": 1.0, "head": 1.0}
        if self.model.tie_embeddings and row["has_embedding"]:
            parameters = part["head_parameters"] + part["head_expert_parameters"]
            whole["head"] = (parameters - row["padded_vocab"] * row["hidden"] / row["tp"]) / parameters
        return whole

    def beside_forward(self, compute: float, gather: float) -> float:
        return self.exposed(compute, gather) if self.recipe.overlap_parameter_gather else gather

    def beside_backward(self, compute: float, gather: float, reduce: float) -> float:
        if self.recipe.overlap_gradient_reduce and self.recipe.overlap_parameter_gather:
            return self.exposed(compute, gather + reduce)
        reduced = self.exposed(compute, reduce) if self.recipe.overlap_gradient_reduce else reduce
        return reduced + self.beside_forward(compute, gather)

    def first(self, row: Row, part: Row, share: Row) -> float:
        if not row["shard_optimizer"]:
            return 0.0
        units = ["embedding"] if row["has_embedding"] else []
        units += ["layer"] * int(row["layers"]) + (["head"] if row["has_head"] else [])
        if row["shard_weights"] and row["reshard"]:  # what the first unit was taken to hide
            gather = part[f"{units[0]}_gather_s"]
            return gather - self.beside_forward(part[f"{units[0]}_forward_s"], gather)
        if not row["shard_weights"] and not self.recipe.overlap_parameter_gather:
            return 0.0  # gathered at the end of the step
        compute = [0.0] + [part[f"{unit}_forward_s"] for unit in units[:-1]]
        return sum(
            self.beside_forward(beside, share[unit] * part[f"{unit}_gather_s"])
            for unit, beside in zip(units, compute, strict=True)
        )

    def last(self, row: Row, part: Row, share: Row) -> float:
        units = ["head"] if row["has_head"] else []
        units += ["layer"] * int(row["layers"]) + (["embedding"] if row["has_embedding"] else [])
        backward = {u: part[f"{u}_input_grad_s"] + part[f"{u}_weight_grad_s"] for u in ("layer", "embedding", "head")}
        overlaps = self.recipe.overlap_gradient_reduce
        if row["shard_gradients"]:
            reduce = part[f"{units[-1]}_reduce_s"]
            return reduce - (self.exposed(backward[units[-1]], reduce) if overlaps else reduce)
        kind = "reduce_s" if row["shard_optimizer"] else "all_reduce_s"
        beside = [backward[unit] for unit in units[1:]] + [0.0]
        reduces = [share[unit] * part[f"{unit}_{kind}"] for unit in units]
        return sum(
            self.exposed(compute, reduce) if overlaps else reduce
            for compute, reduce in zip(beside, reduces, strict=True)
        )

    def closing(self, row: Row, part: Row, share: Row) -> float:
        recipe = self.recipe
        owned = self.owned(row, part, bool(row["shard_optimizer"]))
        moved = recipe.gradient_bytes + 2 * recipe.master_bytes + 2 * recipe.moment_bytes
        moved += recipe.weight_bytes if recipe.master_bytes else 2 * recipe.weight_bytes
        seconds = self.moved(recipe.gradient_bytes * owned) + self.moved(moved * owned)
        seconds += part["gradient_norm_reduce_s"] + part["tied_reduce_s"]
        if row["shard_optimizer"] and not row["shard_weights"] and not recipe.overlap_parameter_gather:
            held = {"layer": row["layers"], "embedding": row["has_embedding"], "head": row["has_head"]}
            seconds += sum(count * share[unit] * part[f"{unit}_gather_s"] for unit, count in held.items())
        return seconds

    def stage_parameters(self, row: Row, part: Row, kind: str) -> float:
        total = row["layers"] * part[f"layer_{kind}"]
        total += part[f"embedding_{kind}"] if row["has_embedding"] else 0
        total += part[f"head_{kind}"] if row["has_head"] else 0
        if kind == "parameters" and self.model.tie_embeddings and row["has_embedding"] and row["has_head"]:
            total -= row["padded_vocab"] * row["hidden"] / row["tp"]
        return total

    def owned(self, row: Row, part: Row, sharded: bool) -> float:
        """Parameters whose states a rank owns; experts are sharded over ranks of their own."""
        dense, expert = (self.stage_parameters(row, part, kind) for kind in ("parameters", "expert_parameters"))
        return dense / row["dp_shard"] + expert / row["expert_shard"] if sharded else dense + expert

    def stage_memory(self, row: Row, part: Row) -> dict[str, float]:
        """Allocated bytes as the larger of three phases, each added up by itself, with the causes of the largest."""
        recipe = self.recipe
        parameters = self.owned(row, part, False)
        of = {u: part[f"{u}_parameters"] + part[f"{u}_expert_parameters"] for u in ("layer", "embedding", "head")}
        units = [of["layer"]] + [of[unit] for unit in ("embedding", "head") if row[f"has_{unit}"]]
        wider = math.ceil(row["layers"] / row["vpp"])
        chunk = parameters - (row["layers"] - wider) * of["layer"]
        states = {
            "weights": recipe.weight_bytes * self.owned(row, part, bool(row["shard_weights"])),
            "gradients": recipe.gradient_bytes * self.owned(row, part, bool(row["shard_gradients"])),
            "master_weights": recipe.master_bytes * self.owned(row, part, bool(row["shard_optimizer"])),
            "moments": recipe.moment_bytes * self.owned(row, part, bool(row["shard_optimizer"])),
        }
        gathered = unsharded = 0.0
        if row["shard_weights"]:
            gathered = recipe.parameter_gather_bytes * (2 * max(units) if row["reshard"] else parameters)
        if row["shard_gradients"]:
            of_unit = row["shard_weights"] or recipe.reduces_in_buckets
            unsharded = recipe.gradient_bytes * (max(units) if of_unit else chunk)
        live, again = row["live_layers"], row["live_recompute_layers"]
        activations = (live - again) * part["layer_saved_bytes"] + again * part["layer_recomputed_saved_bytes"]
        kept = "recomputed_saved_bytes" if row["recompute_ends"] else "saved_bytes"
        for end in ("embedding", "head"):
            activations += (row[f"live_{end}"] - row[f"waiting_{end}"]) * part[f"{end}_{kept}"]
            activations += row[f"waiting_{end}"] * part[f"{end}_saved_bytes"]
        if recipe.split_keeps_graph:
            waiting = {"layer": "layers", "embedding": "embedding", "head": "head"}
            activations += sum(row[f"waiting_{of}"] * part[f"{unit}_gradient_bytes"] for unit, of in waiting.items())
        kept_bytes = 4 * max(row["live_head"] - row["waiting_head"] - 1, 0) + 2 * row["waiting_head"]
        waiting = kept_bytes * part["logits_bytes"] / recipe.loss_bytes_per_logit
        buffers = boundary_tensors(recipe, row) * part["boundary_bytes"]
        restored = part["layer_restored_bytes"] if row["recompute_layers"] else 0.0
        loss = part["logits_bytes"] if row["has_head"] else 0.0
        backward = part["layer_workspace_bytes"] + restored + unsharded
        phases = {
            "loss": {"logits_and_loss": waiting + loss},
            "backward": {"logits_and_loss": waiting, "workspace": backward},
        }
        for phase in phases.values():
            phase |= {"activations": activations, "pipeline_buffers": buffers}
        temporaries = optimizer_bytes(recipe, row, part, self.owned(row, part, bool(row["shard_optimizer"])))
        phases["optimizer"] = {"workspace": temporaries}
        peak = max(phases.values(), key=lambda phase: sum(phase.values()))
        peak["workspace"] = peak.get("workspace", 0.0) + recipe.library_bytes
        stranded = stranded_bytes(recipe, activations + waiting + buffers, backward, loss, temporaries)
        return self.device_memory(row, states, gathered, peak, stranded)

    def device_memory(self, row: Row, states: Row, gathered: float, peak: Row, stranded: float) -> dict[str, float]:
        allocated = sum(states.values()) + gathered + sum(peak.values())
        none = dict.fromkeys(("activations", "logits_and_loss", "workspace", "pipeline_buffers"), 0.0)
        communicators = self.recipe.communicator_bytes * row["communicators"]
        reserved = allocated * (1 + self.recipe.fragmentation_fraction) + stranded
        context = self.context_bytes + self.recipe.kernel_bytes
        return {
            **none,
            **states,
            **peak,
            "gathered_parameters": gathered,
            "offload_buffers": 0.0,
            "communicators": communicators,
            "context": context,
            "fragmentation": reserved - allocated,
            "allocated_bytes": allocated,
            "reserved_bytes": reserved,
            "device_bytes": reserved + communicators + context,
            "host_bytes": 0.0,
        }

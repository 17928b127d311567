"""Every legal layout of a small job, by plain loops from the definitions; it shares no code with the planner's."""

from collections.abc import Iterator
from itertools import product
from math import lcm

from planner.request import PlanRequest

Row = dict[str, int]

SCHEDULES = (
    "1f1b",
    "interleaved",
    "gpipe",
    "breadth-first",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
    "terapipe",
    "seq1f1b",
    "slimpipe",
)
SLIMPIPE = SCHEDULES.index("slimpipe")
LEAST_SLICE = 1024
LONG_SEQUENCE = 16_384


def divisors(value: int) -> list[int]:
    """All divisors, ascending."""
    return [d for d in range(1, value + 1) if value % d == 0]


def legal_layouts(request: PlanRequest) -> list[Row]:
    """Every layout of the job: degrees, ways to split context and experts, schedule, chunks, order, shard group."""
    found = []
    gpus = range(1, request.cluster.gpus + 1)
    for tp, cp, pp, dp in product(gpus, repeat=4):
        if tp * cp * pp * dp > len(gpus) or request.workload.global_batch % dp:
            continue
        if _tensor_parallel(request, tp) and _context_parallel(request, tp, cp):
            degrees = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
            found += [_layout(request, {**degrees, **rest}) for rest in _rest(request, tp, cp, pp, dp)]
    return found


def _domain(request: PlanRequest) -> int:
    """GPUs of the innermost network tier."""
    return request.cluster.tiers[0].domain_gpus or request.cluster.gpus


def _tensor_parallel(request: PlanRequest, tp: int) -> bool:
    model, domain = request.model, _domain(request)
    inside = tp <= domain and (domain % tp == 0 or request.cluster.gpus <= domain)
    whole = all(size % tp == 0 for size in (model.heads, model.ffn, request.workload.seq_len))
    return inside and whole and (model.kv_heads % tp == 0 or tp % model.kv_heads == 0)


def _context_parallel(request: PlanRequest, tp: int, cp: int) -> bool:
    """Only long sequences are split: each rank holds two pieces, which tensor parallelism splits once more."""
    seq_len = request.workload.seq_len
    return cp == 1 or seq_len % (cp * (lcm(2, tp) if request.recipe.sequence_parallel else 2)) == 0


def _rest(request: PlanRequest, tp: int, cp: int, pp: int, dp: int) -> Iterator[Row]:
    """What a layout has beside its mesh."""
    per_rank = request.workload.global_batch // dp
    experts = request.model.moe is not None
    ways = [(*context, *expert) for context in _contexts(request, tp, cp) for expert in _experts(request, tp, cp * dp)]
    orders = (0, 1) if pp > 1 and dp > 1 and not experts else (0,)
    for (cp_heads, cp_ring, ep, etp), order, size in product(ways, orders, divisors(per_rank)):
        stride = tp * cp * (pp if order else 1)
        for shard in {dp} if experts else _shard_groups(request, dp, stride):
            whole = [(*way, 1) for way in _schedules(request, pp, per_rank // size)]
            for vpp, schedule, group, slices in [*whole, *(_sliced(request, tp, cp, pp) if size == 1 < pp else ())]:
                yield {
                    "cp_heads": cp_heads,
                    "cp_ring": cp_ring,
                    "ep": ep,
                    "etp": etp,
                    "vpp": vpp,
                    "dp_shard": shard,
                    "dp_replicate": dp // shard,
                    "rank_order": order,
                    "micro_batch_size": size,
                    "num_microbatches": per_rank // size,
                    "schedule": schedule,
                    "group_size": group,
                    "slices": slices,
                }


def _contexts(request: PlanRequest, tp: int, cp: int) -> Iterator[tuple[int, int]]:
    """(ranks that exchange heads, ring or not): gathered, ring, heads exchanged by all, and by those of a domain."""
    yield 1, 0
    if cp == 1:
        return
    yield 1, 1
    heads, kv_heads = request.model.heads, request.model.kv_heads
    inside = [d for d in divisors(cp) if d * tp <= _domain(request)] or [1]
    every = inside if "groups" in request.search else inside[-1:]
    for switched, ring in ((cp, 0), *((d, 1) for d in every)):
        hierarchical_is_one_of_the_others = ring and switched in (1, cp)
        if not hierarchical_is_one_of_the_others and heads % (tp * switched) == 0 == kv_heads % (tp * switched):
            yield switched, ring


def _experts(request: PlanRequest, tp: int, others: int) -> Iterator[tuple[int, int]]:
    """(ep, etp) that share out the ranks of a stage."""
    moe = request.model.moe
    if moe is None:
        yield 1, 1
        return
    slices = {1, tp}
    if "groups" in request.search:
        slices |= set(range(1, min(_domain(request), request.cluster.gpus) + 1))
    for ep, etp in product(divisors(moe.experts), slices):
        if moe.expert_ffn % etp == 0 and tp * others % (ep * etp) == 0:
            yield ep, etp


def _schedules(request: PlanRequest, pp: int, m: int) -> Iterator[tuple[int, int, int]]:
    """(chunks, schedule, size of groups where it is not the usual one)."""
    layers, wanted = request.model.layer_pattern.repeats, request.schedules
    # Embedding and head may each have a chunk of their own.
    several = [vpp for vpp in range(2, layers + 3) if vpp * pp <= layers + 2]
    for index, name in enumerate(SCHEDULES):
        if name == "interleaved" and pp > 1:
            yield from ((vpp, index, group) for vpp in several for group in _groups(request, pp, m))
        if name not in wanted or (pp == 1 and name != "1f1b") or pp > layers:
            continue
        if name in ("1f1b", "gpipe", "zb-h1", "zb-h2"):
            yield 1, index, 0
        elif name == "breadth-first":
            yield from ((vpp, index, 0) for vpp in several)
        elif (
            name not in ("interleaved", "terapipe", "seq1f1b", "slimpipe")
            and 2 in several
            and (name != "dualpipe-v" or m >= 2 * pp)
        ):
            yield 2, index, 0


def _sliced(request: PlanRequest, tp: int, cp: int, pp: int) -> Iterator[tuple[int, int, int, int]]:
    """Slices are a few times pp for SlimPipe, which cannot share out ends that hold layers, else powers of two."""
    model, seq_len = request.model, request.workload.seq_len
    pattern = model.layer_pattern
    of_ranks = tp * (2 * cp if cp > 1 else 1)
    for name, slices in product(("terapipe", "seq1f1b", "slimpipe"), range(2, 8 * pp + 1)):
        fits = seq_len // slices >= LEAST_SLICE and seq_len % (slices * of_ranks) == 0 and pp <= pattern.repeats
        if name not in request.schedules or not fits:
            continue
        index = SCHEDULES.index(name)
        if name != "slimpipe":
            yield from [(1, index, 0, slices)] * (slices & (slices - 1) == 0)
        elif slices / pp in (1, 2, 4, 8) and not (pattern.leading or pattern.trailing or model.mtp_layers):
            yield from ((vpp, index, 0, slices) for vpp in range(1, pattern.repeats // pp + 1))


def _groups(request: PlanRequest, pp: int, m: int) -> list[int]:
    """Micro-batches in a row: as many as ranks (0), and with "flexible" more, up to the first that hides all hops."""
    flexible = "flexible" in request.schedules
    groups = [0] if m % pp == 0 and (flexible or "interleaved" in request.schedules) else []
    if flexible and m < pp:
        return [0]
    for group in range(pp + 1, m + 1) if flexible else ():
        if m % group == 0 or m % group >= pp:
            groups.append(group)
            if group >= 2 * pp:
                break
    return groups


def _shard_groups(request: PlanRequest, dp: int, stride: int) -> set[int]:
    """All of dp, and the most that stays inside each tier."""
    groups = {dp}
    for tier in request.cluster.tiers:
        inside = [d for d in divisors(dp) if d > 1 and d * stride <= (tier.domain_gpus or request.cluster.gpus)]
        groups |= {max(inside)} if inside else set()
    if "groups" in request.search:
        groups |= {d for d in divisors(dp) if d > 1}
    return groups


def _layout(request: PlanRequest, chosen: Row) -> Row:
    """The layout with the distances in rank numbers between neighbours of its groups."""
    tp, cp, pp, dp = (chosen[name] for name in ("tp", "cp", "pp", "dp"))
    dp_stride, pp_stride = (tp, tp * cp * dp) if chosen["rank_order"] == 0 else (tp * pp, tp * cp)
    return {
        **chosen,
        "sequence_parallel": int(tp > 1 and request.recipe.sequence_parallel),
        "dp_stride": dp_stride,
        "replicate_stride": dp_stride * cp * chosen["dp_shard"],
        "pp_stride": pp_stride,
        "expert_shard": tp * cp * dp // (chosen["ep"] * chosen["etp"]),
        "expert_stride": chosen["ep"] * chosen["etp"],
        "world": tp * cp * pp * dp,
        "spread": int(chosen["schedule"] == SLIMPIPE and pp > 1),
    }


def head_rank(layout: Row) -> int:
    """The rank that holds the head, as its last chunk: the last one, or the first where the layers come back to it."""
    return 0 if SCHEDULES[layout["schedule"]] in ("zb-v", "v-half", "v-min", "dualpipe-v") else layout["pp"] - 1

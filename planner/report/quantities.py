"""Numbers as people read them: the only place where seconds become ms and bytes become GiB."""

from planner.document import Offload, Parallelism, Recompute, Stage, zero_summary

GIB = 2.0**30

# Tables have no room for the full names; these are what launchers and papers shorten them to.
SHORT_MODULES = {
    "core_attention": "attn",
    "activation": "act",
    "mla_up_proj": "mla",
    "shared_experts": "shared",
}
SHORT_CONTEXT = {"all_gather": "ag", "ring": "ring", "ulysses": "a2a", "hierarchical": "mix"}
SHORT_OFFLOAD = {"weights": "WO", "gradients": "GO", "optimizer": "OO", "activations": "AO"}


def gib(amount_bytes: float) -> str:
    """Bytes as GiB with one decimal, without the unit."""
    return f"{amount_bytes / GIB:.1f}"


def digits(value: float) -> str:
    """A number with four digits, more before the point when it has them: `0.1392`, `15.62`, `123,457`."""
    value = float(f"{value:.4g}") if abs(value) < 1e4 else value
    return f"{value:,.{max(0, 4 - len(str(int(value))))}f}"


def duration(time_s: float) -> str:
    """A time with four digits and its unit: `15.62 s`, `139.2 ms`."""
    rounded_s = float(f"{time_s:.4g}")  # 999.96 ms is 1.000 s
    if rounded_s >= 1 or rounded_s == 0:
        return f"{digits(time_s)} s"
    if rounded_s >= 1e-3:
        return f"{digits(time_s * 1e3)} ms"
    return f"{digits(time_s * 1e6)} us"


def percent(fraction: float, decimals: int = 1) -> str:
    """A fraction as `45.7 %`."""
    return f"{100 * fraction:.{decimals}f} %"


def words(key: str) -> str:
    """A key of the document as words: `tensor_parallel` is `tensor parallel`."""
    return key.replace("_", " ")


def degrees(layout: Parallelism, zero: str) -> str:
    """The degrees on one line: `TP 4 + SP, PP 4 x VPP 5, DP 16 (ZeRO 1)`. CP and EP only where they are used."""
    parts = [
        f"TP {layout.tp}" + " + SP" * layout.sequence_parallel,
        f"PP {layout.pp}" + f" x VPP {layout.vpp}" * (layout.vpp > 1),
    ]
    if layout.cp > 1:
        parts.append(f"CP {layout.cp} ({words(layout.cp_type)})")
    if layout.ep > 1:
        parts.append(f"EP {layout.ep}" + f" x ETP {layout.etp}" * (layout.etp > 1))
    shards = f" = {layout.dp_shard} shard x {layout.dp_replicate} replicate" * (layout.dp_replicate > 1)
    parts.append(f"DP {layout.dp}{shards} (ZeRO {zero})")
    return ", ".join(parts)


def batch(layout: Parallelism) -> str:
    """The batch split and its schedule: `micro-batch 1 x 32, interleaved in groups of 4`."""
    groups = f" in groups of {layout.group_size}" * bool(layout.group_size)
    slices = f", {layout.slices} slices" * (layout.slices > 1)
    return f"micro-batch {layout.micro_batch_size} x {layout.num_microbatches}, {layout.schedule}{groups}{slices}"


def zero(stages: tuple[Stage, ...]) -> str:
    """The ZeRO level, and whether gathered parameters are freed: `1`, `3, resharded`."""
    resharded = any(stage.zero_stage == 3 and stage.reshard_after_forward for stage in stages)
    return zero_summary(stages) + ", resharded" * resharded


def offload(parts: Offload) -> str:
    """What is kept on the host: `optimizer 50 %, activations 25 %`, or `none`."""
    kept = [f"{name} {percent(fraction, 0)}" for name, fraction in parts if fraction > 0]
    return ", ".join(kept) or "none"


def short_recompute(recompute: Recompute) -> str:
    """What a stage recomputes, for a table: `attn+mlp 10`, or nothing."""
    return short_modules(f"{'+'.join(recompute.set)} {recompute.layers}") if recompute.set else ""


def short_modules(text: str) -> str:
    """A text with the recompute modules shortened."""
    for module, short in SHORT_MODULES.items():
        text = text.replace(module, short)
    return text


def short_offload(parts: Offload) -> str:
    """What a stage keeps on the host, for a table: `OO 50% AO 25%`, or nothing."""
    return " ".join(f"{SHORT_OFFLOAD[name]} {100 * fraction:.0f}%" for name, fraction in parts if fraction > 0)

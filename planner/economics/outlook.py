"""What a run of a plan comes to: tokens a day, days, GPU-hours, money, energy, failures and checkpoints."""

from math import inf

from pydantic import Field

from cost_models.specs.base import Flag, PositiveFloat
from planner.document.record import Bytes, Count, Fraction, Record, Seconds
from planner.economics.assumptions import DAY_S, HOUR_S, Economy
from planner.economics.reliability import best_interval_s, goodput, spares
from planner.summary import PlanSummary

__all__ = ["Economics", "economics"]

MILLION = 1e6


class Economics(Record):
    """What a run comes to. Figures of the whole run are None without a token budget, those in dollars without a price.

    `_per_million_tokens` counts the time lost to failures and checkpoints, too.
    """

    goodput: Fraction = Field(description="share of the wall time that goes into steps which count")
    tokens_per_day: PositiveFloat = Field(description="tokens of the whole job in a day, losses counted")
    gpu_hours_per_million_tokens: PositiveFloat
    cost_usd_per_million_tokens: PositiveFloat | None = None
    energy_kwh_per_million_tokens: PositiveFloat
    power_w: PositiveFloat = Field(description="power of the site for this job, W")
    steps: Count | None = Field(default=None, description="optimizer steps of the run")
    days: PositiveFloat | None = None
    gpu_hours: PositiveFloat | None = None
    cost_usd: PositiveFloat | None = None
    energy_kwh: PositiveFloat | None = None
    interruptions: PositiveFloat | None = Field(default=None, description="expected in the run; None without failures")
    meets_deadline: Flag | None = Field(default=None, description="None without a deadline or a budget")
    interruptions_per_day: float = Field(ge=0, description="expected")
    checkpoint_bytes: Bytes
    checkpoint_write_s: Seconds = Field(description="to write a checkpoint, or to read it")
    checkpoint_every_steps: Count = Field(description="steps between checkpoints")
    checkpoint_every_s: Seconds = Field(description="seconds of training between checkpoints")
    restart_s: Seconds = Field(description="from an interruption to the first step again, reading the checkpoint too")
    spare_nodes: Count = Field(description="nodes that replace those under repair")


def economics(plan: PlanSummary, economy: Economy) -> Economics:
    """What a run of a plan comes to under the assumptions. All GPUs of the cluster count, those left idle too."""
    per_day = economy.failures_per_gpu_day * plan.gpus
    mtbf_s = DAY_S / per_day if per_day else inf
    write_s = _write_s(plan, economy)
    stall_s, restart_s = economy.checkpoint_stall * write_s, economy.restart_s + write_s
    every = _checkpoint_steps(plan, economy, write_s, mtbf_s)
    share = goodput(every * plan.step_time_s, stall_s, restart_s, mtbf_s)
    tokens_per_s = plan.tokens_per_s * share
    down = per_day * economy.node_loss_share * economy.repair_s / DAY_S
    spare_nodes = spares(down, economy.spare_confidence)
    gpus = plan.gpus + spare_nodes * plan.gpus_per_node * economy.pay_for_spares
    power_w = gpus * plan.gpu_power_w * economy.node_power_factor * economy.pue
    hours = MILLION / tokens_per_s / HOUR_S
    price = economy.price_of(plan.gpu)
    return Economics(
        goodput=share,
        tokens_per_day=tokens_per_s * DAY_S,
        gpu_hours_per_million_tokens=gpus * hours,
        cost_usd_per_million_tokens=None if price is None else gpus * hours * price,
        energy_kwh_per_million_tokens=power_w / 1e3 * hours,
        power_w=power_w,
        **_of_run(plan, economy, hours, gpus, price, power_w, per_day),
        interruptions_per_day=per_day,
        checkpoint_bytes=plan.checkpoint_bytes,
        checkpoint_write_s=write_s,
        checkpoint_every_steps=every,
        checkpoint_every_s=every * plan.step_time_s,
        restart_s=restart_s,
        spare_nodes=spare_nodes,
    )


def _write_s(plan: PlanSummary, economy: Economy) -> float:
    """Seconds to write a checkpoint: every node its share, all of them as fast as storage takes it."""
    together = plan.nodes * economy.storage_bandwidth_bytes_per_s_per_node
    return plan.checkpoint_bytes / min(together, economy.storage_bandwidth_bytes_per_s)


def _checkpoint_steps(plan: PlanSummary, economy: Economy, write_s: float, mtbf_s: float) -> int:
    """Whole steps between checkpoints: as asked, else those that lose least; a checkpoint is written before the next.

    Without failures one a day.
    """
    stall_s = economy.checkpoint_stall * write_s
    wanted = economy.checkpoint_every_s
    if wanted is None:
        wanted = DAY_S if mtbf_s == inf else max(best_interval_s(stall_s, mtbf_s), write_s)
    return max(1, round(wanted / plan.step_time_s))


def _of_run(
    plan: PlanSummary, economy: Economy, hours: float, gpus: int, price: float | None, power_w: float, per_day: float
) -> dict[str, float | bool | None]:
    """The figures of the whole run, of `hours` for a million tokens; nothing without a token budget."""
    if economy.tokens is None:
        return {}
    run_hours = hours * economy.tokens / MILLION
    days = run_hours * HOUR_S / DAY_S
    return {
        "steps": -(-economy.tokens // plan.tokens),
        "days": days,
        "gpu_hours": gpus * run_hours,
        "cost_usd": None if price is None else gpus * run_hours * price,
        "energy_kwh": power_w / 1e3 * run_hours,
        "interruptions": per_day * days or None,
        "meets_deadline": None if economy.days is None else days <= economy.days,
    }

"""A plan document as a page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cost_models.specs.profile import HardwareProfile
from planner.capacity import Capacity
from planner.document import PlanDocument, dumps
from planner.economics import Economy, economics
from planner.recipe_parts import loss_of
from planner.report import quantities
from planner.report.economics import run_rows
from planner.report.html.alternatives import alternatives, time_and_memory
from planner.report.html.fields import Fields
from planner.report.html.frontier import frontier
from planner.report.html.groups import sharings
from planner.report.html.job import embedded, facts, listed
from planner.report.html.lanes import lanes
from planner.report.html.launchers import exports, launcher_rows, refused_by_all
from planner.report.html.page import rendered
from planner.report.html.priced import priced_changes
from planner.report.html.stages import memory_chart, stage_rows
from planner.report.html.times import waterfall
from planner.report.html.words import certificate, reasons
from planner.report.quantities import duration, gib, percent
from planner.summary import PlanSummary

if TYPE_CHECKING:
    from planner.remedies import Remedy

__all__ = ["plan_page"]

VERDICTS = {"yes": "fits", "borderline": "may not fit", "no": "does not fit"}


def plan_page(
    document: PlanDocument,
    changes: Mapping[str, Sequence["Remedy"]] | None = None,
    capacity: Capacity | None = None,
    economy: Economy | None = None,
    profile: HardwareProfile | None = None,
) -> str:
    """The page. `changes` are priced ones by their heading, `capacity` the answer that the plan belongs to.

    With `economy`, the assumptions of a whole run, it tells what that comes to. `profile` times the timeline, else the
    document's own.

    Raises RequestError where jinja2 is not installed.
    """
    fields = Fields(document)
    bundles, refused = exports(document)
    return rendered(
        "plan.html",
        title=f"{document.model.name} on {document.cluster.gpus:,} {document.cluster.gpu.name}",
        document=document,
        told=_told(document, fields),
        capacity=frontier(capacity) if capacity is not None else None,
        run=run_rows(economics(PlanSummary.of(document), economy)) if economy is not None else (),
        run_assumptions=economy.sentences() if economy is not None else (),
        tiles=_tiles(document, fields),
        reasons=reasons(document, fields),
        certificate=certificate(document, fields),
        sharings=sharings(document, fields),
        stages=stage_rows(document, fields),
        memory=memory_chart(document, fields),
        time=waterfall(document, fields),
        timeline=lanes(document, profile),
        alternatives=alternatives(document, fields),
        scatter=time_and_memory(document),
        recipes=_recipes(document, fields),
        uneven=_uneven(document, fields),
        changes=priced_changes(changes or {}, document.predicted.step_time_s),
        launchers=launcher_rows(document, fields),
        refused_by_all=refused_by_all(document),
        exports=bundles,
        refused=refused,
        env_text="\n".join(f"{name}={value}" for name, value in document.env.items()),
        assumptions=[listed(text) for text in dict.fromkeys(document.assumptions)],
        facts=facts(document),
        source=embedded(dumps(document)),
    )


def _told(document: PlanDocument, fields: Fields) -> dict[str, Any]:
    """The plan in its own terms: layout, batch, job."""
    layout = document.parallelism
    return {
        "layout": quantities.degrees(layout, quantities.zero(document.stages)),
        "batch": quantities.batch(layout),
        "gpus": fields("cluster.gpus"),
        "nodes": document.cluster.nodes,
        "sequences": fields("workload.global_batch"),
        "tokens": fields("workload.seq_len"),
    }


def _tiles(document: PlanDocument, fields: Fields) -> dict[str, Any]:
    """The figures that a reader looks for first."""
    peak = document.predicted.peak_memory_bytes
    return {
        "step": fields("predicted.step_time_s", duration),
        "low": fields("predicted.step_time_low_s", duration),
        "high": fields("predicted.step_time_high_s", duration),
        "throughput": fields("predicted.tokens_per_s_per_gpu", lambda rate: f"{rate:,.0f}"),
        "mfu": fields("predicted.mfu", percent),
        "mfu_full": fields("predicted.mfu_full_attention", percent),
        "memory": fields("predicted.peak_memory_bytes.device", gib),
        "memory_low": fields("predicted.peak_memory_bytes.low", gib),
        "memory_high": fields("predicted.peak_memory_bytes.high", gib),
        "capacity": fields("predicted.peak_memory_bytes.capacity", gib),
        "verdict": VERDICTS[document.predicted.verdict],
        "verdict_kind": "good" if document.predicted.verdict == "yes" else "bad",
        "filled": 100 * min(peak.device / peak.capacity, 1.0) if peak.capacity else 100.0,
        "gap": fields("certificate.gap", lambda gap: percent(gap, 2)),
        "bound": fields("certificate.bound_s", duration),
        "optimal": document.certificate.status == "OPTIMAL",
        "host": fields("predicted.host_memory_bytes", gib) if document.predicted.host_memory_bytes else None,
    }


def _recipes(document: PlanDocument, fields: Fields) -> list[dict[str, Any]]:
    """The variants of the recipe that were searched, a row each."""
    own = (document.workload.precision, document.workload.optimizer, loss_of(document.recipe))
    step_s = document.predicted.step_time_s
    return [
        {
            "variant": each,
            "own": own == (each.precision, each.optimizer, each.loss),
            "step": fields(f"recipes[{index}].step_time_s", duration),
            "slower": f"{100 * (each.step_time_s / step_s - 1.0):+.1f} %",
            "memory": fields(f"recipes[{index}].device_bytes", gib),
        }
        for index, each in enumerate(document.recipes)
    ]


def _uneven(document: PlanDocument, fields: Fields) -> dict[str, Any] | None:
    """The faster pipeline of stages of different sizes, where one was found."""
    found = document.heterogeneous
    if found is None:
        return None
    names = ("gpus", "tp", "dp", "micro_batch_size", "layers", "zero_stage", "recompute_layers")
    rows = [
        [fields(f"heterogeneous.stages[{rank}].{name}") for name in names]
        + [fields(f"heterogeneous.stages[{rank}].device_bytes", gib)]
        for rank in range(len(found.stages))
    ]
    return {
        "rows": rows,
        "micro_batches": fields("heterogeneous.num_microbatches"),
        "step": fields("heterogeneous.step_time_s", duration),
        "gain": fields("heterogeneous.faster_by", lambda by: percent(by, 2)),
    }

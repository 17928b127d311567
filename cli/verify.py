"""`plan verify PLAN`: the shape of a plan on a few local ranks, against one process."""

import math

from cli.extras import require_torch
from cli.output import print_json, print_text
from cli.show import document_in

AGREES, DIFFERS = 0, 1


def finite(number: float) -> float | None:
    """The number; none for one that JSON lacks."""
    return number if math.isfinite(number) else None


def verify(file: str, *, timeout_s: float, as_json: bool) -> int:
    """Prints how far the ranks are from one process; the exit code, 1 when they differ.

    Raises PlannerError or RuntimeFault.
    """
    document = document_in(file)
    require_torch("verify")
    from planner.document.job import job_of
    from runtime.support import check
    from runtime.verify import TOLERANCE
    from runtime.verify import verify as verified

    job = job_of(document)
    check(job)
    found = verified(job, timeout_s)
    holds = all(one.holds for one in found)
    if as_json:
        runs = [
            {"parallelism": one.job.layout.model_dump(mode="json"), "layers": one.job.model.layers}
            | {"holds": one.holds, "loss": finite(one.agreement.loss), "gradient": finite(one.agreement.gradient)}
            | {"tensor": one.agreement.tensor}
            for one in found
        ]
        print_json({"holds": holds, "tolerance": TOLERANCE, "runs": runs})
    else:
        for one in found:
            layout = one.job.layout
            print_text(
                f"{layout.gpus_used} ranks: TP {layout.tp}, PP {layout.pp} x {layout.vpp}, "
                + f"CP {layout.cp}, " * (layout.cp > 1)
                + f"DP {layout.dp_replicate} x {layout.dp_shard}, {layout.schedule}, "
                f"{layout.num_microbatches} micro-batches, {one.job.model.layers} layers\n"
                f"  losses differ by {one.agreement.loss:.1e}, gradients by {one.agreement.gradient:.1e} "
                f"({one.agreement.tensor})\n"
            )
        print_text(f"{'agrees' if holds else 'DIFFERS'}: float64 against one process, {TOLERANCE:.0e} allowed\n")
    return AGREES if holds else DIFFERS

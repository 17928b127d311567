"""A priced change, made as its flags and its configuration say: what a user who follows the advice asks for."""

from typing import Any

from planner.proposal import Proposal, of_text
from planner.remedies import Remedy
from planner.request import PlanRequest, build_request

HARDWARE = ("gpu", "mem", "cluster")


def with_flags(remedy: Remedy, job: dict[str, Any]) -> PlanRequest:
    """The job with the flags of a change in place of those of the same name; a GPU replaces a cluster, GPUs nodes."""
    changed = dict(job)
    for flag, value in remedy.flags.items():
        if flag == "--set":
            changed["overrides"] = [*changed.get("overrides", []), value]
            continue
        name = flag.removeprefix("--").replace("-", "_")
        if name == "gpus":
            changed.pop("nodes", None)
        if name in HARDWARE:
            changed.pop("cluster", None)
        changed[name] = value
    return build_request(**changed)


def again(remedy: Remedy, job: dict[str, Any], text: str) -> Proposal:
    """The configuration after the change: the one it names, or the old one on the changed job."""
    return of_text(remedy.setting or text, with_flags(remedy, job))

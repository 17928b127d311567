"""What a run of one plan comes to, for people and programs; and which question a command line asks."""

from collections.abc import Mapping
from typing import Any

from cli.output import console, print_rendered, print_text
from planner.document import PlanDocument
from planner.document.files import rounded
from planner.economics import Economy, economics
from planner.errors import RequestError
from planner.report.economics import economics_report
from planner.summary import PlanSummary

__all__ = ["CLUSTER_QUESTIONS", "asked", "economics_data", "economy_of", "print_economics"]

CLUSTER_QUESTIONS = ("one_more_node", "best_upgrade", "cheapest")
HARDWARE = ("gpus", "nodes", "gpu", "cluster", "mem", "profile")


def economy_of(money: Mapping[str, Any] | None) -> Economy | None:
    """The assumptions that flags ask for; None where none of them is given. Raises RequestError or SpecError."""
    if money is None or not any(value is not None and value != () for value in money.values()):
        return None
    return Economy.of(**money)


def asked(questions: Mapping[str, Any], flags: Mapping[str, Any], economy: Economy | None) -> str | None:
    """The question about a cluster that is asked, None for a plan. Raises RequestError where another is asked, too.

    A budget, a deadline and prices without any hardware ask for the cheapest cluster.
    """
    given = [name for name, value in questions.items() if value not in (None, False)]
    about_cluster = [name for name in given if name in CLUSTER_QUESTIONS]
    if about_cluster and len(given) > 1:
        names = " and ".join("--" + name.replace("_", "-") for name in given)
        message = f"{names} are questions of their own: ask one at a time"
        raise RequestError(message)
    if about_cluster:
        return about_cluster[0]
    bare = not given and all(flags.get(name) is None for name in HARDWARE)
    complete = economy is not None and economy.tokens and economy.days and economy.price_usd_per_gpu_hour
    return "cheapest" if bare and complete else None


def economics_data(document: PlanDocument, economy: Economy | None) -> dict[str, Any]:
    """What a run comes to and what that rests on, as plain data; nothing where it was not asked for."""
    if economy is None:
        return {}
    found = economics(PlanSummary.of(document), economy)
    return {"economics": rounded(found.model_dump(mode="json")), "economics_assumptions": list(economy.sentences())}


def print_economics(document: PlanDocument, economy: Economy | None) -> None:
    """Prints what a run comes to; nothing where it was not asked for."""
    if economy is None:
        return
    print_text("\n")
    print_rendered(economics_report(economics(PlanSummary.of(document), economy), economy), console())

"""This project's own runtime: it reads the plan itself."""

from planner.document import PlanDocument, dumps
from planner.export.bundle import Bundle
from planner.export.launch import torchrun

__all__ = ["FILE", "bundle"]

FILE = "plan.json"


def bundle(document: PlanDocument) -> Bundle:
    """The document, and the command that runs it on every node."""
    return Bundle(
        launcher="runtime",
        versions=f"meshplan {document.tool_version}",
        files={FILE: dumps(document)},
        command=torchrun(document.configuration, f"-m cli.main run {FILE}"),
        env=dict(document.env),
    )

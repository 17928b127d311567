"""The answer to a check for the terminal: what is wrong, whether it fits, what would help."""

from rich.console import Group, RenderableType
from rich.text import Text

from planner.check import Checked
from planner.report import quantities
from planner.report.quantities import duration, gib
from planner.report.remedies import remedies_report
from planner.report.sections import body, heading
from planner.report.terminal import VERDICTS

__all__ = ["check_report"]


def check_report(found: Checked) -> RenderableType:
    """Rules broken, shortages, the step and the memory, notes, changes that would fit."""
    sections: list[RenderableType] = [_headline(found)]
    sections += [body(Text(f"- {fault.message} ({fault.id})")) for fault in found.faults]
    sections += [body(Text(f"- {shortage}")) for shortage in found.shortages]
    sections += [body(line) for line in _figures(found)]
    sections += [body(Text(note)) for note in found.notes]
    if found.remedies:
        assert found.figures is not None
        sections += [
            heading("What would help"),
            body(remedies_report(found.remedies, found.figures.step_time_s)),
        ]
    elif found.figures is not None and not found.figures.fits:
        sections.append(body(Text("No single change that was tried makes it fit.")))
    return Group(*sections)


def _headline(found: Checked) -> Text:
    request, count = found.proposal.request, len(found.faults)
    said = f"{count} rule{'s' * (count != 1)} broken" if count else "no rule broken"
    job = f"{request.model.name} on {request.cluster.gpus:,} x {request.cluster.gpu.name}"
    target = "" if request.target == "any" else f", {request.target}"
    return Text.assemble((job, "bold"), f"{target}: {said}")


def _figures(found: Checked) -> list[Text]:
    if found.figures is None or found.document is None:
        return [Text("Not costed: no such run exists.")]
    figures, document = found.figures, found.document
    layout = quantities.degrees(document.parallelism, quantities.zero(document.stages))
    peak = document.predicted.peak_memory_bytes
    band = f"band {gib(peak.low)} to {gib(peak.high)}"
    host = f", host memory {gib(figures.host_bytes)} GiB of each node" if figures.host_bytes else ""
    return [
        Text(f"{layout}; {quantities.batch(document.parallelism)}"),
        Text(f"step {duration(figures.step_time_s)}, MFU {quantities.percent(document.predicted.mfu)}"),
        Text(f"memory {gib(peak.device)} of {gib(peak.capacity)} GiB, {band}: {VERDICTS[figures.verdict]}{host}"),
    ]

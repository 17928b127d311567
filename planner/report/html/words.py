"""A plan in words: what it is, where time and memory go, why not another one, and how far that is proven.

Sentences hold numbers as the document has them; what is concluded is only what the document says.
"""

from collections.abc import Iterator

from markupsafe import Markup

from planner.document import Alternative, PlanDocument
from planner.report import quantities
from planner.report.html.fields import Fields, Number
from planner.report.quantities import duration, gib, percent, words

__all__ = ["certificate", "reasons"]

# Parts of less than this are not worth a sentence.
WORTH_TELLING = 0.005
TOLD = 3
# The end of the memory band that decides, and what follows.
VERDICTS = {
    "yes": ("high", "The upper end of its band, {} GiB, fits, too."),
    "borderline": ("high", "The upper end of its band, {} GiB, is more than there is: it may not fit."),
    "no": ("low", "The lower end of its band, {} GiB, is more than there is: it does not fit."),
}


def reasons(document: PlanDocument, fields: Fields) -> list[tuple[str, Markup]]:
    """(what it is about, what there is to say) of a plan, the most important first."""
    return [
        ("Time", _time(fields)),
        ("Memory", _memory(document, fields)),
        *([("Why not another", _others(document, fields))] if document.alternatives else []),
        ("How sure", _sure(document, fields)),
    ]


def certificate(document: PlanDocument, fields: Fields) -> Markup:
    """What the certificate says, and what it does not."""
    bound, gap = fields("certificate.bound_s", duration), fields("certificate.gap", lambda gap: percent(gap, 2))
    layouts, rows = fields("certificate.layouts"), fields("certificate.rows")
    looked = Markup("{} layouts and {} options of their stages were looked at").format(layouts, rows)
    scope = Markup(
        "The bound holds under the same predictions: it proves the search, not the predictions. "
        "What the search leaves out is listed under the assumptions."
    )
    if document.certificate.status == "OPTIMAL":
        return Markup(
            "No plan of the search takes less than {}: none is faster than this one by more than {}. {}. {}"
        ).format(bound, gap, looked, scope)
    return Markup(
        "A limit stopped the search: this is the best plan so far. One may be up to {} faster, none takes less "
        "than {}. {}. {}"
    ).format(gap, bound, looked, scope)


def _time(fields: Fields) -> Markup:
    table = "predicted.time_breakdown_s"
    causes = sorted(fields.value(table).items(), key=lambda item: -item[1])
    whole = fields.value("predicted.step_time_s")
    told = [cause for cause, time_s in causes if time_s >= WORTH_TELLING * whole][:TOLD]
    first, rest = told[0], told[1:]
    lead = Markup("Of a step of {} the largest part is {}: {}, {} of it").format(
        fields("predicted.step_time_s", duration), _cause(first), *_part(fields, f"{table}.{first}")
    )
    more = [Markup("{} with {} ({})").format(_cause(each), *_part(fields, f"{table}.{each}")) for each in rest]
    return lead + Markup("; then come ") * bool(more) + _listed(more) + Markup(".")


def _cause(cause: str) -> str:
    names = {"compute": "the work of its kernels", "pipeline_bubble": "waiting in the pipeline"}
    return names.get(cause, words(cause))


def _part(fields: Fields, field: str) -> tuple[Number, Number]:
    return fields(field, duration), fields.share(field, "predicted.step_time_s")


def _memory(document: PlanDocument, fields: Fields) -> Markup:
    peak = document.predicted.peak_memory_bytes
    stages = [stage.predicted.device_bytes for stage in document.stages]
    fullest = stages.index(max(stages))
    causes = sorted(peak.breakdown.items(), key=lambda item: -item[1])[:TOLD]
    breakdown = "predicted.peak_memory_bytes.breakdown"
    of = [Markup("{} {} GiB").format(words(cause), fields(f"{breakdown}.{cause}", gib)) for cause, _ in causes]
    who = f"The fullest, a GPU of stage {fullest}," if len(stages) > 1 else "Each GPU"
    end, verdict = VERDICTS[document.predicted.verdict]
    holds = Markup("{} holds {} of the {} GiB that are usable: ").format(
        who,
        fields("predicted.peak_memory_bytes.device", gib),
        fields("predicted.peak_memory_bytes.capacity", gib),
    )
    edge = fields(f"predicted.peak_memory_bytes.{end}", gib)
    return holds + _listed(of) + Markup(". ") + Markup(verdict).format(edge)


def _others(document: PlanDocument, fields: Fields) -> Markup:
    nearest = document.alternatives[0]
    slower = fields("alternatives[0].slower_by", percent)
    text = Markup("The nearest other layout, {}, takes {} longer").format(_layout(nearest), slower)
    ties = sum(each.tie for each in document.alternatives)
    if ties:
        count = len(document.alternatives)
        which = "it" if count == 1 else f"{ties} of the {count} nearest" if ties < count else f"all {count} nearest"
        told = ". Predictions of this kind cannot tell {} from the plan: measure before you choose among them"
        text += Markup(told).format(which)
    text += Markup(".")
    return text + Markup("").join(_frugal(document, fields))


def _frugal(document: PlanDocument, fields: Fields) -> Iterator[Markup]:
    """What the alternative that needs least memory costs, where that is less than the plan's."""
    least = min(range(len(document.alternatives)), key=lambda index: document.alternatives[index].device_bytes)
    each = document.alternatives[least]
    if each.device_bytes < document.predicted.peak_memory_bytes.device:
        held = fields(f"alternatives[{least}].device_bytes", gib)
        slower = fields(f"alternatives[{least}].slower_by", percent)
        yield Markup(" {} needs least memory of them: {} GiB, at {} longer.").format(_layout(each), held, slower)


def _sure(document: PlanDocument, fields: Fields) -> Markup:
    return Markup(
        "Four of five measured steps lie inside such a band: {} to {}. {} of the step rests on measured kernels and "
        "links, the rest on rooflines with fitted constants."
    ).format(
        fields("predicted.step_time_low_s", duration),
        fields("predicted.step_time_high_s", duration),
        fields("predicted.measured_share", lambda share: percent(share, 0)),
    )


def _layout(other: Alternative) -> str:
    return quantities.degrees(other.parallelism, other.zero_stage)


def _listed(parts: list[Markup]) -> Markup:
    """The parts with commas, and `and` before the last."""
    if len(parts) < 2:
        return Markup("").join(parts)
    return Markup(", ").join(parts[:-1]) + Markup(" and ") + parts[-1]

"""What a page is about: the job in words, the facts of it, and texts that pages list."""

from typing import Any, Protocol

from markupsafe import Markup

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.report.html.fields import Fields
from planner.report.quantities import digits

__all__ = ["Job", "embedded", "facts", "listed"]

# A text that lists at least so many things, one after the other, is shown as a list.
MANY = 4


class Job(Protocol):
    """What a document and a request have in common."""

    @property
    def model(self) -> ModelSpec: ...
    @property
    def cluster(self) -> ClusterSpec: ...
    @property
    def workload(self) -> WorkloadSpec: ...
    @property
    def recipe(self) -> FrameworkRecipe: ...


def embedded(text: str) -> Markup:
    """JSON text that can stand in a script element: no string in it can end the element."""
    return Markup(text.replace("<", "\\u003c"))


def listed(text: str) -> tuple[str, tuple[str, ...]]:
    """A text as what it begins with and what it lists; nothing is listed where it is one sentence.

    >>> listed("Not searched: a; b; c; d.")
    ('Not searched', ('a', 'b', 'c', 'd'))
    >>> listed("Of 5 layouts 3 do not fit.")
    ('Of 5 layouts 3 do not fit.', ())
    """
    lead, colon, rest = text.partition(": ")
    parts = tuple(rest.removesuffix(".").split("; "))
    return (lead, parts) if colon and len(parts) >= MANY else (text, ())


def facts(job: Job) -> list[tuple[str, Any]]:
    """What is to be trained on what, as name and value."""
    model, cluster, workload, fields = job.model, job.cluster, job.workload, Fields(job)
    found: list[tuple[str, Any]] = [
        ("Model", model.name),
        ("Layers", fields("model.layers")),
        ("Hidden width", fields("model.hidden")),
        ("Heads", Markup("{} query, {} key-value").format(fields("model.heads"), fields("model.kv_heads"))),
        ("Vocabulary", fields("model.vocab")),
    ]
    if model.moe is not None:
        experts = Markup("{} routed, {} of them a token")
        found.append(("Experts", experts.format(fields("model.moe.experts"), fields("model.moe.top_k"))))
    return [
        *found,
        ("GPU", cluster.gpu.name),
        ("GPUs", fields("cluster.gpus")),
        ("GPUs of a node", fields("cluster.gpus_per_node")),
        ("Network", _network(cluster)),
        ("Sequences of a step", fields("workload.global_batch")),
        ("Tokens of a sequence", fields("workload.seq_len")),
        ("Precision", workload.precision),
        ("Optimizer", workload.optimizer),
        ("Recipe", job.recipe.name),
    ]


def _network(cluster: ClusterSpec) -> str:
    """The tiers from the innermost outwards."""
    return "; ".join(
        f"{tier.name}: {'all' if tier.domain_gpus is None else f'{tier.domain_gpus:,}'} GPUs, "
        f"{digits(tier.bandwidth_bytes_per_s / 1e9)} GB/s a GPU each way"
        for tier in cluster.tiers
    )

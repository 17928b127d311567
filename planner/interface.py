"""Planning from Python: names or typed specs in, plan documents and pandas frames out.

from planner import plan, what_if
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.model import ModelSpec
from planner.document import PlanDocument
from planner.economics import Economy
from planner.errors import RequestError
from planner.mixed import plan_groups, requests_of
from planner.request import Progress
from planner.study.run import MOST_UNASKED, Backend, StudyProgress, WhatIf
from planner.study.run import what_if as studied
from planner.study.sweep import axis

__all__ = ["plan", "what_if"]


def plan(
    model: str | ModelSpec,
    gpus: int | None = None,
    mem: str | None = None,
    *,
    cluster: str | ClusterSpec | None = None,
    jobs: int = 1,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> PlanDocument:
    """The fastest plan that fits, as `plan --model MODEL --gpus GPUS ...` finds it.

    `options` are the other keywords of `planner.request.build_request`, which are the command's flags: gpu, nodes,
    seq_len, global_batch, recipe, target, schedule, precision, overrides ... More than one of `jobs` are spawned: a
    script that asks for them guards its main module.

    Raises RequestError or SpecError for what cannot be planned, InfeasibleError when nothing fits (`messages` says what
    lacks), LimitReached at `time_limit_s` with the best plan so far.

    >>> document = plan("llama3-8b", gpus=8, mem="80GB", global_batch=128)
    >>> document.parallelism.gpus_used, document.certificate.status
    (8, 'OPTIMAL')
    """
    keywords = {"gpus": gpus, "mem": mem, "cluster": cluster, **_checked(options)}
    return plan_groups(requests_of({"model": model, **keywords}), progress, jobs=jobs)


def what_if(
    model: str | ModelSpec,
    sweep: Mapping[str, str | Sequence[Any]],
    *,
    tokens: str | int | None = None,
    days: float | None = None,
    price: str | float | Mapping[str, float] | None = None,
    assume: Mapping[str, Any] | None = None,
    jobs: int | None = 1,
    backend: Backend = "loky",
    keep: str | Path | None = None,
    unasked: int | None = MOST_UNASKED,
    progress: Callable[[StudyProgress], None] | None = None,
    **options: Any,
) -> WhatIf:
    """Every value of the swept inputs with every other, each planned as by itself: see `WhatIf` for what comes back.

    `sweep` names inputs as `--sweep` does, with values or the text of a range; `options` hold for all scenarios.
    `tokens`, `days`, `price` (dollars for an hour of a GPU, one for all or by GPU) and `assume` are those of
    `planner.economics.Economy`. With `keep`, a folder, finished scenarios stay there and the study goes on from them.

    Raises RequestError or SpecError, which name the key, the value and what is allowed.

    >>> found = what_if("llama3-8b", {"gpus": [8, 16]}, gpu="h100-sxm", global_batch=128, price=2.5)
    >>> found.frame()[["sweep:gpus", "status", "pareto"]].values.tolist()
    [['8', 'planned', True], ['16', 'planned', True]]
    >>> found.document(0).cluster.gpus
    8
    """
    economy = Economy.of(tokens=tokens, days=days, price=price, assume=assume or {})
    axes = [axis(key, values) for key, values in sweep.items()]
    return studied(
        {"model": model, **_checked(options)},
        axes,
        economy=economy,
        jobs=jobs,
        backend=backend,
        folder=None if keep is None else Path(keep),
        progress=progress,
        unasked=unasked,
    )


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options. Raises RequestError for one that planning does not have."""
    from inspect import signature

    from cost_models.specs.errors import did_you_mean
    from planner.request import build_request

    allowed = tuple(signature(build_request).parameters)
    for name in options:
        if name not in allowed:
            message = f"planning has no option {name!r}{did_you_mean(name, allowed)}; it has {', '.join(allowed)}"
            raise RequestError(message)
    return dict(options)

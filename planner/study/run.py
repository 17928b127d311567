"""A study: scenarios planned beside each other, each once, each exactly as `plan` alone would."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from cost_models.specs.errors import SpecError
from planner.document import PlanDocument, loads
from planner.economics import Economy, economics
from planner.errors import Interrupted, PlannerError, RequestError
from planner.feasibility import least_states_bytes
from planner.request import PlanRequest, build_request
from planner.study.answers import Answer, Kept, answered, digest_of
from planner.study.result import ScenarioResult, Study, SweptInput, with_front
from planner.study.sweep import KEYS, Axis, count, scenarios

if TYPE_CHECKING:
    import pandas

__all__ = ["BACKENDS", "MOST_UNASKED", "Backend", "StudyProgress", "WhatIf", "conduct", "what_if"]

Backend = Literal["loky", "dask", "ray"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
MOST_UNASKED = 1000
"""Scenarios that are planned without being asked."""
# An estimate of one plan, to say how long a large study would take: llama3-70b on a few hundred GPUs.
TYPICAL_PLAN_S = 1.5
# Scenarios a process that are planned before their answers come, where they do not come one by one.
AT_ONCE = 4


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is: scenarios that are finished, of which some were kept from before, and all of them."""

    finished: int
    kept: int
    total: int


@dataclass(frozen=True)
class _Scenario:
    """One scenario that can be asked, or why it cannot."""

    inputs: dict[str, str]
    request: PlanRequest | None
    digest: str
    reason: str = ""


@dataclass
class WhatIf:
    """A study and the plan documents behind it. `interrupted`: stopped before all scenarios were finished."""

    study: Study
    answers: Kept
    interrupted: bool = False

    def text(self, number: int) -> str:
        """The plan document of a scenario as `plan` writes it; empty where there is no plan."""
        scenario = self.study.scenarios[number]
        found = self.answers.get(scenario.digest) if scenario.plan is not None else None
        return "" if found is None else found.text

    def document(self, number: int) -> PlanDocument | None:
        """The plan document of a scenario; None where there is no plan."""
        text = self.text(number)
        return loads(text, f"scenario {number}") if text else None

    def frame(self) -> "pandas.DataFrame":
        """One row a scenario: swept inputs, status, plan, economics; see `planner.study.files.frame`."""
        from planner.study.files import frame

        return frame(self.study)

    @property
    def best(self) -> ScenarioResult | None:
        """The scenario whose tokens cost least; None where none has a plan."""
        found = [each for each in self.study.planned if each.pareto]
        return min(found, key=_cost_of, default=None)


def _cost_of(scenario: ScenarioResult) -> tuple[float, int]:
    found = scenario.economics
    assert found is not None
    cost = found.cost_usd_per_million_tokens
    return (cost if cost is not None else found.gpu_hours_per_million_tokens), scenario.number


def what_if(
    flags: Mapping[str, Any],
    axes: Sequence[Axis],
    *,
    economy: Economy | None = None,
    jobs: int | None = 1,
    backend: Backend = "loky",
    folder: str | Path | None = None,
    progress: Callable[[StudyProgress], None] | None = None,
    unasked: int | None = MOST_UNASKED,
) -> WhatIf:
    """The study of every value of the axes with every other; `flags` are the keywords of `build_request` they share.

    So many `jobs` at once, None for as many as the back end has processors. Finished scenarios are kept in `folder`
    (None: in memory) and read from there another time. Equal scenarios are planned once. Where an interrupt stops it,
    the rest is `open`. Raises RequestError: no axes, more than `unasked` scenarios, a back end that is not installed; a
    scenario that cannot be asked is `invalid` in the result.
    """
    total = count(axes)
    if not axes:
        message = "--sweep is missing: give one or several, such as --sweep gpus=64,128,256"
        raise RequestError(message)
    if not flags.get("model") and not any(each.key == "model" for each in axes):
        message = "the model is missing: give --model NAME, or --sweep model=A,B; `plan models` lists them"
        raise RequestError(message)
    if unasked is not None and total > unasked:
        hours = total * TYPICAL_PLAN_S / 3600 / max(jobs or 1, 1)
        message = (
            f"--sweep makes {total:,} scenarios, about {max(hours, 0.1):,.1f} hours of planning; give --yes to run "
            f"more than {unasked:,}, or fewer values"
        )
        raise RequestError(message)
    answers = Kept(None if folder is None else Path(folder))
    asked = [_scenario(inputs, keywords) for inputs, keywords in scenarios(axes, flags)]
    by_digest = {each.digest: each.request for each in asked if each.request is not None}
    interrupted = conduct(by_digest, answers, jobs=jobs, backend=backend, progress=progress)
    study = _study(flags, axes, asked, answers, economy or Economy())
    return WhatIf(study, answers, interrupted)


def _scenario(inputs: dict[str, str], keywords: Mapping[str, Any]) -> _Scenario:
    try:
        request = build_request(**keywords)
    except (PlannerError, SpecError) as error:
        return _Scenario(inputs, None, "", str(error))
    return _Scenario(inputs, request, digest_of(request))


def conduct(
    requests: Mapping[str, PlanRequest],
    answers: Kept,
    *,
    jobs: int | None = 1,
    backend: Backend = "loky",
    progress: Callable[[StudyProgress], None] | None = None,
) -> bool:
    """Whether an interrupt came before every request, by digest, had its answer; those that came are kept.

    Raises PlannerError where another process was ended.
    """
    pending = {digest: request for digest, request in requests.items() if answers.get(digest) is None}
    kept = len(requests) - len(pending)
    if progress is not None:
        progress(StudyProgress(kept, kept, len(requests)))
    # What hardly fits takes longest: it comes first, so that no process is left alone with it at the end.
    ordered = sorted(pending, key=lambda digest: -_pressure(pending[digest]))
    try:
        found = _in_parallel([(digest, pending[digest]) for digest in ordered], jobs, backend)
        for finished, (digest, answer) in enumerate(found, kept + 1):
            answers.put(digest, answer)
            if progress is not None:
                progress(StudyProgress(finished, kept, len(requests)))
    except (KeyboardInterrupt, Interrupted):
        return True
    except BrokenProcessPool as error:
        many = f"{jobs} " if jobs else ""
        message = f"one of the {many}processes of --jobs was ended, perhaps for want of memory; what finished is kept"
        raise PlannerError(message) from error
    return False


def _pressure(request: PlanRequest) -> float:
    """How tight memory is: states alone over what the GPUs have, and as the larger share the more GPUs there are."""
    return least_states_bytes(request) / request.capacity_bytes * request.cluster.gpus


def _in_parallel(
    tasks: Sequence[tuple[str, PlanRequest]], jobs: int | None, backend: Backend
) -> Iterator[tuple[str, Answer]]:
    """The answers as they come, by digest."""
    if backend == "loky" and (jobs == 1 or len(tasks) <= 1):
        yield from (_of(*task) for task in tasks)
        return
    import joblib

    _register(backend)
    calls = [joblib.delayed(_of)(*task) for task in tasks]
    with joblib.parallel_config(backend=backend):
        jobs = jobs or joblib.effective_n_jobs(-1)
        if joblib.parallel.get_active_backend()[0].supports_return_generator:
            yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(calls)
            return
        # Ray's gives all answers at once: a few at a time, so that these are kept.
        with ExitStack() as stack:
            try:
                parallel = stack.enter_context(joblib.Parallel(n_jobs=jobs, batch_size=1))
            except ValueError as error:  # a cluster of fewer processors than that
                message = f"--backend {backend} cannot start --jobs {jobs}: {error}"
                raise RequestError(message) from error
            for start in range(0, len(calls), AT_ONCE * jobs):
                yield from parallel(calls[start : start + AT_ONCE * jobs])


def _of(digest: str, request: PlanRequest) -> tuple[str, Answer]:
    return digest, answered(request)


def _register(backend: Backend) -> None:
    """None; a back end of another package is there. Raises RequestError where it is not installed or has no cluster."""
    if backend == "loky":
        return
    package = {"dask": "distributed", "ray": "ray"}[backend]
    try:
        if backend == "ray":
            _connect_ray()
        else:
            _connect_dask()
    except ImportError:
        message = f"--backend {backend} needs the package {package}, which is not installed: pip install {package}"
        raise RequestError(message) from None


def _connect_ray() -> None:
    """None; this process is on the cluster that RAY_ADDRESS names, or on one that was started for it.

    Raises ImportError without the package, RequestError where no cluster answers.
    """
    import ray
    from ray.util.joblib import register_ray

    register_ray()
    if ray.is_initialized():
        return
    try:
        ray.init(log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        message = f"--backend ray cannot reach its cluster (RAY_ADDRESS): {str(error).splitlines()[0]}"
        raise RequestError(message) from error


def _connect_dask() -> None:
    """None; this process has a client of a cluster: the one it had, or of the scheduler that Dask is told of.

    Raises ImportError without the package, RequestError where no scheduler is told or none answers.
    """
    import dask
    from distributed import Client

    try:
        Client.current()
    except ValueError:
        address = dask.config.get("scheduler-address", None)
        if address is None:
            message = (
                "--backend dask needs a cluster to work on: set DASK_SCHEDULER_ADDRESS to the address of its "
                "scheduler, such as tcp://host:8786"
            )
            raise RequestError(message) from None
        try:
            Client(address)
        except (OSError, ValueError) as error:
            message = f"--backend dask cannot reach the scheduler at {address} (DASK_SCHEDULER_ADDRESS): {error}"
            raise RequestError(message) from None


def _study(
    flags: Mapping[str, Any], axes: Sequence[Axis], asked: Sequence[_Scenario], answers: Kept, economy: Economy
) -> Study:
    """The results of all scenarios, in order."""
    found = tuple(_result(number, each, answers, economy) for number, each in enumerate(asked))
    priced = bool(economy.price_usd_per_gpu_hour)
    cost_unit: Literal["USD", "GPU-hours"] = "USD" if priced else "GPU-hours"
    return Study(
        tool_version=version("meshplan"),
        common=_common(flags),
        swept=tuple(SweptInput(key=each.key, values=each.values) for each in axes),
        cost_unit=cost_unit,
        assumptions=economy.sentences(),
        notes=_notes(found, economy),
        scenarios=with_front(found, cost_unit),
    )


def _result(number: int, scenario: _Scenario, answers: Kept, economy: Economy) -> ScenarioResult:
    if scenario.request is None:
        return ScenarioResult(number=number, inputs=scenario.inputs, status="invalid", reasons=(scenario.reason,))
    answer = answers.get(scenario.digest)
    if answer is None:
        return ScenarioResult(number=number, inputs=scenario.inputs, status="open", digest=scenario.digest)
    return ScenarioResult(
        number=number,
        inputs=scenario.inputs,
        status=answer.status,
        reasons=answer.reasons,
        plan=answer.plan,
        economics=None if answer.plan is None else economics(answer.plan, economy),
        digest=scenario.digest,
    )


def _common(flags: Mapping[str, Any]) -> dict[str, str]:
    """The flags that all scenarios share, as they were written; those left out have no value."""
    names = {keyword: key for key, keyword in KEYS.items()}
    given = {names[keyword]: value for keyword, value in flags.items() if keyword in names and value is not None}
    told = {key: str(getattr(value, "name", value)) for key, value in given.items()}
    return told | {text.partition("=")[0]: text.partition("=")[2] for text in flags.get("overrides", ())}


def _notes(found: Sequence[ScenarioResult], economy: Economy) -> tuple[str, ...]:
    notes = [
        "Every scenario is planned as by itself. The front is of seconds against cost of a token, losses to failures "
        "and checkpoints counted, among scenarios of the same model and sequence length."
    ]
    gpus = {each.plan.gpu for each in found if each.plan is not None}
    if not economy.price_usd_per_gpu_hour and len(gpus) > 1:
        notes.append("Without --price an hour of every GPU counts the same, whatever the GPU.")
    missing = sorted(gpu for gpu in gpus if economy.price_usd_per_gpu_hour and economy.price_of(gpu) is None)
    if missing:
        notes.append(f"No price is given for {', '.join(missing)}: they have no cost and are not on the front.")
    return tuple(notes)

"""`plan profile`: this machine, measured into a profile."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from cli.extras import require_torch
from cli.output import print_json, print_text
from planner.errors import DocumentError, RequestError

# What is measured where nothing is named: on a processor models whose layers fit it.
DEFAULT_MODELS = {"cuda": ("llama3.2-1b",), "cpu": ("small-llama", "small-gpt")}
SMALL_STEP = ("256", 8)
# What the runtime keeps, copies and overlaps; on GPUs it is as torchtitan without compilation.
RECIPES = {"cpu": "runtime-cpu", "cuda": "torchtitan-eager"}
BUDGETS_S: dict[str, float] = {"quick": 60.0, "full": 600.0}
# Of a rank's memory, what a point may take: sets of buffers, the system and other processes need some, too.
MEMORY_SHARE = 0.4
JOURNAL = "{path}.measured"


def measure(
    output: str | None,
    *,
    device: str | None,
    full: bool,
    models: Sequence[str],
    ranks: int | None,
    seq_len: str | None,
    global_batch: int | str | None,
    as_json: bool,
) -> int:
    """Measures and writes or prints a profile; the exit code. Raises PlannerError, SpecError or ProfilerError."""
    require_torch("profile")
    from cost_models.specs.measured_profile import check_writable, dumps, write

    if output:
        check_writable(output)
    method: Literal["quick", "full"] = "full" if full else "quick"
    journal = JOURNAL.format(path=output) if output else None
    kind = _kind(device)
    files = [model_file(name) for name in models or DEFAULT_MODELS[kind]]
    if all(file not in models for file in files):  # all are made for measuring
        seq_len, global_batch = seq_len or SMALL_STEP[0], global_batch or SMALL_STEP[1]
    measured = measured_profile(
        files,
        device=device,
        method=method,
        budget_s=BUDGETS_S[method],
        ranks=ranks,
        seq_len=seq_len,
        global_batch=global_batch,
        journal=journal,
    )
    if measured is None:  # a rank of torchrun that is not the first
        return 0
    if output:
        write(measured, output)
        if journal and os.path.exists(journal):
            os.unlink(journal)
        if as_json:
            print_json({"profile": output, "device": measured.cluster.gpu.name, "ranks": measured.cluster.gpus})
        else:
            print(f"plan: wrote {output}; use it with --profile {output}", file=sys.stderr)
    else:
        print_text(dumps(measured))
    return 0


def model_file(name: str) -> str:
    """A model that is made for measuring, by its file; any other by its name."""
    from cost_models.specs.catalog import data_folder

    path = data_folder() / "loop" / f"{name}.toml"
    return str(path) if path.exists() else name


def measured_profile(
    models: Sequence[str],
    *,
    device: str | None,
    method: Literal["quick", "full"],
    budget_s: float,
    ranks: int | None,
    seq_len: str | None = None,
    global_batch: int | str | None = None,
    journal: str | None = None,
) -> Any:
    """The MeasuredProfile of this machine for the layouts of some models; None on a rank that only follows."""
    import time

    from cli.in_place import with_layers
    from profiler.candidates import reference, that_fit
    from profiler.device import check, facts_of, used_bytes
    from profiler.profile import About, profile_of
    from profiler.session import Session
    from profiler.work import most_bytes
    from runtime.alone_table import MAKERS

    began = time.monotonic()
    kind = _kind(device)
    ranks = ranks or _usual_ranks(kind)
    check(kind, ranks)
    facts = facts_of(kind, ranks)
    found, counted = _candidates(models, ranks, kind, seq_len, global_batch)
    found = that_fit(found, partial(most_bytes, makers=MAKERS), MEMORY_SHARE * facts.memory_bytes)
    about = {"device": facts.name, "ranks": ranks, "models": list(models), "seq_len": seq_len, "batch": global_batch}
    finished = _finished(journal, about)
    taken = used_bytes() if kind == "cuda" else 0
    with _crew(kind, ranks) as crew, _live(budget_s) as tell:
        if crew is None:
            return None
        set_aside = _set_aside(crew, kind, taken)
        session = Session(
            crew,
            found,
            budget_s=budget_s - (time.monotonic() - began),
            finished=finished,
            keep=partial(_keep, journal, about),
            tell=tell,
            reference=reference(found),
        )
        measured = session.run()
    notes = _notes(kind, ranks, finished, models)
    duration_s = time.monotonic() - began
    profile = profile_of(
        measured,
        counted,
        About(facts, kind, ranks, method, budget_s, duration_s, notes=notes, **set_aside, **_known(kind, facts)),
    )
    if kind == "cuda":  # what the host does between operators hides behind the device's work
        return profile
    requests = partial(_request, kind=kind, seq_len=seq_len, global_batch=global_batch)
    return with_layers(profile, measured, [partial(requests, name) for name in models])


def _request(name: str, ranks: int, *, kind: str, seq_len: Any, global_batch: Any) -> Any:
    """What is asked of a model on so many ranks, of whatever device: the layouts that the runtime can run."""
    from planner.request import build_request

    return build_request(
        name,
        ranks,
        gpu="h100-sxm",  # any would do: no seconds are asked for on it, and nothing is dropped for its memory
        gpus_per_node=ranks,
        seq_len=seq_len,
        global_batch=global_batch,
        target="runtime",
        recipe=RECIPES[kind],
    ).replaced(fixed={"cp": 1})


def _set_aside(crew: Any, kind: str, taken: int) -> dict[str, Any]:
    """Bytes of a GPU that a context takes, and a communicator; `taken` were taken before there was any."""
    if kind == "cpu":
        return {}
    from profiler.device import used_bytes
    from profiler.points import Point

    crew.measure(Point("launch", (1,)), 0.03)
    context = used_bytes()
    found = {"context_bytes": max(0, context - taken)}
    if crew.ranks > 1:
        crew.measure(Point("all_reduce", (1024, crew.ranks)), 0.03)
        found["communicator_bytes"] = max(0, used_bytes() - context)
    return found


def _known(kind: str, facts: Any) -> dict[str, Any]:
    """What a catalog knows of a GPU; nothing of a processor."""
    if kind == "cpu":
        return {}
    from cost_models.specs import catalog

    tokens = facts.name.split("-")
    named = [name for name in catalog.names("gpus") if name.split("-")[0] in tokens]

    def distance(name: str) -> tuple[bool, int]:
        on_card = ("pcie" in name) != ("pcie" in tokens)
        return on_card, abs(catalog.load_gpu(name).usable_memory_bytes - facts.memory_bytes)

    nearest = min(named, key=distance, default=None)
    return {"known": catalog.default_cluster(nearest, 1)} if nearest else {}


def _kind(device: str | None) -> Literal["cpu", "cuda"]:
    if device is None:
        import torch

        return "cuda" if torch.backends.cuda.is_built() and torch.cuda.device_count() else "cpu"
    if device not in ("cpu", "cuda"):
        message = f"--device must be cpu or cuda, got {device!r}"
        raise RequestError(message)
    return "cuda" if device == "cuda" else "cpu"


def _usual_ranks(kind: str) -> int:
    """The ranks of torchrun, else one for each GPU or each core."""
    if "WORLD_SIZE" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    if kind == "cuda":
        import torch

        return int(torch.cuda.device_count())
    return len(os.sched_getaffinity(0))


def _candidates(
    models: Sequence[str], ranks: int, kind: str, seq_len: str | None, global_batch: int | str | None
) -> Any:
    """Points of all models, and what memory-bound operators are counted with."""
    from planner.operator_sizes import bytes_of_a_token, operator_sizes
    from profiler import beside, streams
    from profiler.candidates import IN_PLACE, candidates, host_copies, merged

    each: list[Any] = []
    counted: dict[Any, float] = {}
    for name in models:
        request = _request(name, ranks, kind=kind, seq_len=seq_len, global_batch=global_batch)
        sizes = operator_sizes(request)
        points, of_model = candidates(request.model, request.recipe, sizes, bytes_of_a_token(request), ranks)
        each.append(points)
        counted |= of_model
    found = merged(each)
    if kind == "cuda":  # nothing of layers in place is asked for there
        found = {name: points for name, points in found.items() if name not in IN_PLACE} | host_copies()
    for point in beside.points(streams.names_of(kind, ranks)):
        found[point.operator] = [point]
    return found, counted


@contextmanager
def _crew(kind: str, ranks: int) -> Iterator[Any]:
    """The ranks that measure; None on a rank of torchrun that has followed the first to the end."""
    from profiler.crew import forked, joined
    from profiler.work import measure_with
    from runtime.alone_table import MAKERS
    from runtime.host_memory import keep_freed_memory

    measure = measure_with(MAKERS, prepare=keep_freed_memory)
    if "RANK" not in os.environ:
        with forked(ranks, measure, on_gpus=kind == "cuda") as crew:
            yield crew
        return
    with joined(measure, on_gpus=kind == "cuda") as crew:
        if int(os.environ["RANK"]):
            crew.follow()
            yield None
            return
        yield crew
        crew.finish()


def _finished(journal: str | None, about: dict[str, Any]) -> list[Any]:
    """Measurements that an interrupted run has kept. Raises JournalError."""
    from profiler.points import loads

    if journal is None or not os.path.exists(journal):
        return []
    try:
        with open(journal, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        message = f"cannot read {journal}: {error.strerror}"
        raise DocumentError(message) from error
    found = loads(text, about, journal)
    print(f"plan: {len(found)} finished measurements of {journal} are used", file=sys.stderr)
    return found


def _keep(journal: str | None, about: dict[str, Any], measured: Sequence[Any]) -> None:
    """Puts finished measurements where a later run goes on. Raises DocumentError: a full disk, no permission."""
    if journal is None:
        return
    from planner.document.files import write_text
    from profiler.points import dumps

    write_text(dumps(measured, about), journal)


@contextmanager
def _live(budget_s: float) -> Iterator[Callable[[Any], None]]:
    """A function that shows how far a measurement is, on stderr where that is a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from cli.progress import live_console

    console = live_console()
    if console is None:
        yield lambda _: None
        return
    columns = (TextColumn("measuring"), BarColumn(), TextColumn("{task.fields[done]} points"), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[doing]}"), console=console, transient=True) as bar:
        task = bar.add_task("measuring", total=budget_s, done=0, doing="")

        def tell(progress: Any) -> None:
            bar.update(task, completed=progress.spent_s, done=progress.done, doing=progress.doing)

        yield tell


def _notes(kind: str, ranks: int, finished: Sequence[Any], models: Sequence[str]) -> tuple[str, ...]:
    """What a reader of the profile has to know."""
    cores = len(os.sched_getaffinity(0))
    named = ", ".join(os.path.basename(model).removesuffix(".toml") for model in models)
    notes = [f"Shapes of {named} in all layouts of {ranks} ranks."]
    if finished:
        notes.append(f"{len(finished)} points were measured by an earlier run that was interrupted.")
    if kind == "cpu" and ranks > cores:
        notes.append(f"{ranks} ranks share {cores} cores: operators were timed with all of them at work.")
    return tuple(notes)

"""Plans of Mist's search space by this project's solvers, under the mirror of its model.

The space is that of the released tuner: one micro-batch size, data-parallel size and mesh for all stages, micro-batches
a power of two, layers within two of an even split; ZeRO stage, recomputed layers and offload of each stage by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from solver import dynamic_program, milp, pareto
from solver.assignment import AssignmentProblem, Path
from solver.chain import ChainProblem
from tests.oracles.mist.gpt import Gpt
from tests.oracles.mist.hardware import Array, Card
from tests.oracles.mist.plan import Stage, positions, step_seconds
from tests.oracles.mist.stage import IntArray, Options, Position, StageModel

BATCHES = (1, 2, 4)
WEIGHT_SHARES = (0.0, 0.25, 0.375, 0.5, 0.75, 1.0)  # of gradients as well
STATE_SHARES = (0.0, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)  # of optimizer states and activations
LAYERS_ABOUT_EVEN = 2
ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Job:
    """What is to be planned: a model on the GPUs of one node."""

    model: Gpt
    card: Card
    gpus: int
    global_batch: int


@dataclass(frozen=True)
class Setting:
    """What is one value for the whole pipeline."""

    stages: int
    batch: int
    micro_batches: int


@dataclass(frozen=True)
class Rows:
    """Undominated options of all stages that fit, one a row."""

    stage: IntArray
    layers: IntArray
    recomputed: IntArray
    option: IntArray
    stable_s: Array
    delta_s: Array


@dataclass(frozen=True)
class Tuned:
    """The best plan found."""

    step_s: float
    setting: Setting
    stages: tuple[Stage, ...]


def settings(job: Job) -> Iterator[Setting]:
    """Every pipeline whose micro-batches use up the global batch."""
    for stages, batch in product(range(1, job.model.layers + 1), BATCHES):
        micro_batches, rest = divmod(job.global_batch * stages, job.gpus * batch)
        if job.gpus % stages == 0 and rest == 0 and micro_batches >= stages and micro_batches.bit_count() == 1:
            yield Setting(stages, batch, micro_batches)


def every_option(dp: int) -> Options:
    """Every way to keep states and activations; weights go to the host only with gradients, as in the tuner."""
    zeros = (1, 2, 3) if dp > 1 else (1,)
    shares = product(zeros, WEIGHT_SHARES, WEIGHT_SHARES, STATE_SHARES, STATE_SHARES)
    columns = np.array([row for row in shares if row[2] > 0 or row[1] == 0]).T
    return Options(columns[0].astype(np.int64), *columns[1:])


def undominated(costs: StageModel, position: Position, stage: int, layer_counts: range) -> list[Rows]:
    """Options of one stage that fit, one entry a number of layers."""
    found = []
    for layers in layer_counts:
        recomputed = np.arange(layers + 1)[:, None]
        held = np.full_like(recomputed, layers), recomputed
        fits = costs.fits(*held, position)
        seconds = [np.broadcast_to(column, fits.shape) for column in costs.seconds(*held, position)]
        # Mist's slowdowns let more work take less time; its program has no room for edges that come out below zero.
        fits = fits & (seconds[1] > -ROUNDING_S)
        many, option = np.nonzero(fits)
        stable_s, delta_s = seconds[0][fits], np.maximum(seconds[1][fits], 0.0)
        kept = pareto.front(np.stack([stable_s, delta_s], axis=1))
        found.append(
            Rows(
                np.full(len(kept), stage),
                np.full(len(kept), layers),
                many[kept],
                option[kept],
                stable_s[kept],
                delta_s[kept],
            )
        )
    return found


def rows_of(job: Job, setting: Setting) -> tuple[Rows, Options]:
    """Rows of all stages, and the options that they name."""
    gpus, even = job.gpus // setting.stages, round(job.model.layers / setting.stages)
    about = LAYERS_ABOUT_EVEN if setting.micro_batches > 1 else 0
    counts = range(max(even - about, 1), min(even + about, job.model.layers - setting.stages + 1) + 1)
    options = every_option(gpus)
    costs = StageModel(job.model, job.card, options, 1, gpus, setting.batch, setting.micro_batches)
    parts = [
        part
        for stage, position in enumerate(positions(setting.stages, setting.micro_batches))
        for part in undominated(costs, position, stage, counts)
    ]
    return Rows(
        *(np.concatenate(column) for column in zip(*(vars(part).values() for part in parts), strict=True))
    ), options


def by_dynamic_program(rows: Rows, setting: Setting, layers: int, cutoff: float = inf) -> tuple[float, IntArray]:
    """Least seconds of a step below the cutoff and the row of each stage: a chain for each bound of the slowest."""
    best, choice = cutoff, np.empty(0, dtype=np.int64)
    repeats = setting.micro_batches - 1
    slowest = np.unique(rows.stable_s)
    least = [rows.stable_s[rows.stage == stage].min(initial=inf) for stage in range(setting.stages)]
    for bound_s in slowest[slowest >= max(least)]:
        if repeats * bound_s + sum(least) >= best:
            break
        kept = np.flatnonzero(rows.stable_s <= bound_s)
        stable_s = rows.stable_s[kept]
        chain = ChainProblem(
            stage=rows.stage[kept],
            units=rows.layers[kept],
            work=stable_s,
            pass_through=stable_s,
            edge=rows.delta_s[kept],
            num_stages=setting.stages,
            total_units=layers,
        )
        solution = dynamic_program.minimum_cost(chain, cutoff=best - repeats * bound_s)
        if solution.feasible:
            chosen = kept[solution.choice]
            step_s = step_seconds(rows.stable_s[chosen].tolist(), rows.delta_s[chosen].tolist(), setting.micro_batches)
            if step_s < best:
                best, choice = step_s, chosen
    return best, choice


def by_milp(rows: Rows, setting: Setting, layers: int, cutoff: float = inf) -> milp.MilpSolution:
    """The same by mixed-integer programming: a path for each slowest stage and each stage whose edges show."""
    paths = []
    for slowest, shown in product(range(setting.stages), repeat=2):
        weights = np.zeros((setting.stages, 2))
        weights[shown:, 0] = 1.0
        weights[slowest, 0] += setting.micro_batches - 1
        weights[shown, 1] = 1.0
        paths.append(Path(weights))
    problem = AssignmentProblem(
        stage=rows.stage,
        units=rows.layers,
        features=np.stack([rows.stable_s, rows.delta_s], axis=1),
        num_stages=setting.stages,
        total_units=layers,
        paths=tuple(paths),
    )
    return milp.minimum_path_cost(problem, cutoff=cutoff)


def tune(job: Job) -> Tuned | None:
    """The best plan for a job by dynamic programming; None when nothing fits."""
    best: Tuned | None = None
    for setting in settings(job):
        rows, options = rows_of(job, setting)
        cutoff = best.step_s if best else inf
        step_s, choice = by_dynamic_program(rows, setting, job.model.layers, cutoff)
        if len(choice):
            best = Tuned(step_s, setting, _stages(rows, options, choice))
    return best


def _stages(rows: Rows, options: Options, choice: NDArray[np.int64]) -> tuple[Stage, ...]:
    taken = options.take(rows.option[choice])
    shares = np.stack([taken.weights, taken.gradients, taken.optimizer, taken.activations], axis=1).tolist()
    columns = zip(
        rows.layers[choice].tolist(), rows.recomputed[choice].tolist(), taken.zero.tolist(), shares, strict=True
    )
    return tuple(Stage(layers, recomputed, zero, tuple(share)) for layers, recomputed, zero, share in columns)

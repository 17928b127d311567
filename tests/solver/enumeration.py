"""Assignments by enumeration, and random problems small enough for it: what the solvers are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import inf

import numpy as np

from solver.arrays import IntArray
from solver.assignment import AssignmentProblem, Path
from solver.chain import ChainProblem

Choice = tuple[int, ...]
AnyProblem = ChainProblem | AssignmentProblem


def feasible_choices(problem: AnyProblem) -> Iterator[Choice]:
    """Assignments that use up the totals, in the order of the rows."""
    rows = [np.flatnonzero(problem.stage == stage).tolist() for stage in range(problem.num_stages)]
    for choice in itertools.product(*rows):
        taken = list(choice)
        resource = 0 if problem.resource is None else problem.resource[taken].sum()
        if problem.units[taken].sum() == problem.total_units and resource == problem.total_resource:
            yield choice


def first_best(problem: AnyProblem, cost: Callable[[Choice], float]) -> tuple[Choice, float]:
    """First of the cheapest assignments and its cost; an empty one and infinity when there is none."""
    costs = {choice: cost(choice) for choice in feasible_choices(problem)}
    least = min(costs.values(), default=inf)
    return next((choice for choice, found in costs.items() if found <= least * (1 + 1e-12)), ()), least


def longest_walk(problem: ChainProblem, choice: Choice) -> tuple[float, int, int]:
    """Cost of a chain by its definition as walks: the longest, its stage of entry and its stage of return."""
    taken = list(choice)
    work, walk, edge = problem.work[taken], problem.pass_through[taken], problem.edge[taken]
    stages = range(problem.num_stages)
    return max(
        (float(edge[entry] + walk[entry:turn].sum() + work[turn]), entry, turn)
        for entry in stages
        for turn in stages
        if turn >= entry
    )


def path_of_walk(problem: ChainProblem, choice: IntArray) -> tuple[float, Path]:
    """Cost of a chain, and its longest walk as a path over (work, pass_through, edge)."""
    cost, entry, turn = longest_walk(problem, tuple(choice.tolist()))
    coefficients = np.zeros((problem.num_stages, 3))
    coefficients[turn, 0] = coefficients[entry, 2] = 1.0
    coefficients[entry:turn, 1] = 1.0
    return cost, Path(coefficients)


def random_chain(seed: int) -> ChainProblem:
    """A chain of up to 4 stages and 5 rows each: odd seeds have whole costs, so that ties are exact and frequent.

    Edges and resource come and go with the seed; rows are in no order; about a third of the problems are infeasible.
    """
    generator = np.random.default_rng(seed)
    stages = int(generator.integers(1, 5))
    stage = np.repeat(np.arange(stages), generator.integers(1, 6, stages))
    generator.shuffle(stage)
    rows = len(stage)

    def costs(high: int) -> np.ndarray:
        return generator.integers(0, high // 2, rows).astype(float) if seed % 2 else generator.random(rows) * high

    edge = costs(6) * (generator.random(rows) < 0.7) if seed % 3 else np.zeros(rows)
    with_resource = seed % 4 >= 2
    resource = 2 ** generator.integers(0, 2, rows) if with_resource else None
    return ChainProblem(
        stage=stage,
        units=generator.integers(0, 4, rows),
        work=costs(8),
        pass_through=costs(4),
        edge=edge,
        num_stages=stages,
        total_units=int(generator.integers(0, 2 * stages + 2)),
        resource=resource,
        total_resource=int(generator.integers(stages, 2 * stages + 1)) if with_resource else 0,
    )


def balanced_chain(seed: int, stages: int, rows: int, total_units: int) -> ChainProblem:
    """A chain as pipelines make them: work grows with the units, and cheap edges go with dear work."""
    generator = np.random.default_rng(seed)
    share = total_units / stages
    units = np.clip(np.round(share + generator.normal(0.0, share / 4, rows)), 1, None).astype(int)
    slowness = generator.uniform(0.9, 1.4, rows)
    return ChainProblem(
        stage=np.sort(generator.integers(0, stages, rows)),
        units=units,
        work=4 * stages * units * slowness,
        pass_through=units * slowness,
        edge=generator.uniform(0.0, 16.0, rows) * share * (1.5 - slowness),
        num_stages=stages,
        total_units=total_units,
    )

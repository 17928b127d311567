"""The mixed-integer program against the dynamic program and enumeration."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pulp
import pytest

from solver.assignment import AssignmentProblem, Path, SideConstraint, chain_assignment
from solver.dynamic_program import minimum_cost
from solver.errors import BackEndError
from solver.milp import AssignmentModel, minimum_path_cost
from tests.solver.enumeration import Choice, balanced_chain, first_best, longest_walk, random_chain

HANGS_S = 300.0  # a busy machine takes a minute to import PuLP
SOLVE_ONE = """
from solver.assignment import chain_assignment
from solver.chain import ChainProblem
from solver.milp import minimum_path_cost
two = ChainProblem([0, 0, 1, 1], [1, 2, 1, 2], [3.0, 5.0, 2.0, 4.0], [1.0] * 4, [0.5] * 4, 2, 3)
assert minimum_path_cost(chain_assignment(two)).status == "OPTIMAL"
"""


@pytest.mark.parametrize("first_seed", range(0, 300, 50))
def test_chain_by_program_by_passes_and_by_enumeration(first_seed: int) -> None:
    """Program over a chain's paths, dynamic program and enumeration have one optimum, in 300 problems."""
    for seed in range(first_seed, first_seed + 50):
        chain = random_chain(seed)
        choice, least = first_best(chain, lambda rows, chain=chain: longest_walk(chain, rows)[0])  # type: ignore[misc]
        solution = minimum_path_cost(chain_assignment(chain))
        assert solution.status == minimum_cost(chain).status == ("OPTIMAL" if choice else "INFEASIBLE")
        assert solution.objective == pytest.approx(least, rel=1e-7, abs=1e-9)
        assert minimum_cost(chain).objective == pytest.approx(least, rel=1e-9)
        assert solution.bound <= solution.objective
        assert solution.bound == pytest.approx(least, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_larger_chain_in_any_unit(scale: float) -> None:
    """Eight stages and 400 rows: the optimum of the dynamic program, whether costs are tiny or huge."""
    chain = balanced_chain(5, stages=8, rows=400, total_units=80)
    chain = replace(chain, work=chain.work * scale, pass_through=chain.pass_through * scale, edge=chain.edge * scale)
    solution = minimum_path_cost(chain_assignment(chain))
    assert solution.status == "OPTIMAL"
    assert solution.objective == pytest.approx(minimum_cost(chain).objective, rel=1e-7)
    assert solution.bound == pytest.approx(minimum_cost(chain).objective, rel=1e-7)


def random_assignment(seed: int) -> AssignmentProblem:
    """A small problem with arbitrary paths, a global value in two of three, and a side constraint in each."""
    generator = np.random.default_rng(seed)
    chain = random_chain(seed)
    rows = len(chain.stage)
    paths = tuple(Path(generator.normal(size=(chain.num_stages, 2)), float(generator.normal())) for _ in range(3))
    limit = float(generator.integers(0, 3 * chain.num_stages)) * 1e9
    sense = ("<=", ">=", "==")[seed % 3]
    return AssignmentProblem(
        stage=chain.stage,
        units=chain.units,
        features=generator.normal(size=(rows, 2)),
        num_stages=chain.num_stages,
        total_units=chain.total_units,
        paths=paths,
        global_value=generator.normal(size=rows) if seed % 3 else None,
        side_constraints=(SideConstraint(generator.integers(0, 5, rows) * 1e9, sense, limit),),
        resource=chain.resource,
        total_resource=chain.total_resource,
    )


def cost_with_constraints(problem: AssignmentProblem, choice: Choice) -> float:
    """Longest path plus greatest global value; infinity where a side constraint is broken."""
    rows = list(choice)
    for constraint in problem.side_constraints:
        used = constraint.coefficients[rows].sum()
        limit = constraint.right_hand_side
        if not {"<=": used <= limit, ">=": used >= limit, "==": used == limit}[constraint.sense]:
            return float("inf")
    terms = [path.constant + (path.coefficients * problem.features[rows]).sum() for path in problem.paths]
    return float(max(terms)) + (0.0 if problem.global_value is None else float(problem.global_value[rows].max()))


@pytest.mark.parametrize("first_seed", range(0, 120, 40))
def test_paths_globals_and_side_constraints_by_enumeration(first_seed: int) -> None:
    """With signed paths, constants, a greatest global value and a limit in bytes, the optimum is enumeration's."""
    feasible = 0
    for seed in range(first_seed, first_seed + 40):
        problem = random_assignment(seed)
        _, least = first_best(problem, lambda rows, problem=problem: cost_with_constraints(problem, rows))  # type: ignore[misc]
        solution = minimum_path_cost(problem)
        assert solution.status == ("OPTIMAL" if np.isfinite(least) else "INFEASIBLE")
        assert solution.objective == pytest.approx(least, rel=1e-7, abs=1e-7)
        assert solution.bound <= solution.objective
        feasible += solution.status == "OPTIMAL"
    assert 5 < feasible < 35


def test_cutoff_is_proven() -> None:
    """Nothing below the optimum: CUTOFF with the cutoff as the bound; a cutoff above it does not disturb."""
    chain = balanced_chain(1, stages=4, rows=80, total_units=32)
    least = minimum_cost(chain).objective
    below = minimum_path_cost(chain_assignment(chain), cutoff=0.99 * least)
    assert (below.status, below.bound, below.choice.tolist()) == ("CUTOFF", 0.99 * least, [])
    above = minimum_path_cost(chain_assignment(chain), cutoff=1.01 * least)
    assert (above.status, above.objective) == ("OPTIMAL", pytest.approx(least, rel=1e-7))


def test_out_of_time_is_never_optimal() -> None:
    """Without time the status is not OPTIMAL, and the bound is under the true optimum."""
    chain = balanced_chain(2, stages=8, rows=400, total_units=80)
    least = minimum_cost(chain).objective
    solution = minimum_path_cost(chain_assignment(chain), seconds=0.0)
    assert solution.status in ("UNKNOWN", "FEASIBLE")
    assert solution.bound <= least <= solution.objective


def test_added_paths_count() -> None:
    """A path added after a solve holds in the next one, as if it had been there from the start."""
    chain = balanced_chain(3, stages=4, rows=80, total_units=32)
    whole = chain_assignment(chain)
    model = AssignmentModel(replace(whole, paths=whole.paths[:1]))
    first = model.solve()
    for path in whole.paths[1:]:
        model.add_path(path)
    last = model.solve()
    assert first.objective < last.objective
    assert last.objective == pytest.approx(minimum_cost(chain).objective, rel=1e-7)


def test_same_problem_same_choice() -> None:
    """Two models of one problem give one answer, bound included."""
    problem = chain_assignment(balanced_chain(4, stages=6, rows=200, total_units=48))
    first, second = minimum_path_cost(problem), minimum_path_cost(problem)
    assert (first.choice.tolist(), first.bound) == (second.choice.tolist(), second.bound)


@pytest.mark.parametrize("closed", ["", " >&-"])
def test_nothing_reaches_standard_output(closed: str) -> None:
    """A process that solves prints nothing, and solves also where its standard output is closed."""
    command = f'exec "{sys.executable}" -W error -c "$0"{closed}'
    ran = subprocess.run(["/bin/sh", "-c", command, SOLVE_ONE], capture_output=True, check=False, timeout=HANGS_S)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_back_end_is_loaded_on_use_only() -> None:
    """Importing the package's modules loads neither PuLP nor HiGHS."""
    script = (
        "import sys, solver.cutting_planes, solver.dynamic_program, solver.pareto, solver.certificate;"
        "assert not {'pulp', 'highspy'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=HANGS_S).returncode == 0


def test_options_are_in_effect() -> None:
    """PuLP drops options that HiGHS does not know in silence: each one asked for is the one that HiGHS used."""
    model = AssignmentModel(chain_assignment(balanced_chain(0, stages=2, rows=20, total_units=8)))
    model.solve(relative_gap=0.0, seconds=50.0)
    names = ["mip_rel_gap", "mip_abs_gap", "threads", "parallel", "mip_allow_restart", "time_limit", "output_flag"]
    used = [model._pulp.solverModel.getOptionValue(name)[1] for name in names]
    assert used == [0.0, 0.0, 1, "off", False, 50.0, False]


def test_failures_of_the_back_end_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of PuLP comes out as one of this package, with its text."""

    def fail(*_: object) -> None:
        message = "no licence"
        raise pulp.PulpSolverError(message)

    monkeypatch.setattr(pulp.HiGHS, "actualSolve", fail)
    with pytest.raises(BackEndError, match="HiGHS must be installed and able to solve the model: no licence"):
        minimum_path_cost(chain_assignment(balanced_chain(0, stages=2, rows=20, total_units=8)))

"""One layout at a time: its options, bounds and best assignment against brute force."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

import numpy as np
import pytest
from numpy.typing import NDArray

from cost_models.schedules.critical_path import PathCoefficients
from planner.bounds import fullest_stage_bounds, layout_bounds, option_bounds
from planner.candidates import costed, tightened, under_cutoff
from planner.incumbent import Candidate, Search
from planner.layout_costs import LayoutCosts
from planner.options import positions, stage_options
from planner.pipeline import Pipeline
from planner.predict import ATTENTION_OUTPUTS, MICRO_BATCH_OUTPUTS, CostModel
from planner.pruning import can_fit
from planner.request import build_request
from planner.space import LAYOUT_FIELDS, layouts, meshes
from planner.windows import window
from solver.cutting_planes import cutting_planes
from solver.dynamic_program import minimum_cost
from tests.oracles.brute_force import BruteForce
from tests.oracles.spaces import (
    EVERY_SECOND_HAS_EXPERTS,
    LATENT,
    LEADING_DENSE,
    NO_OVERLAP,
    ODD_HEADS,
    SLOW_NETWORK,
    TIED,
    UNFUSED,
    WIDE_ENDS,
    WIDE_EXPERTS,
    WINDOWS,
    Space,
)

# Torch's split backwards, and what each hop, layer and split takes of a host that does not run ahead.
ON_A_PROCESSOR = (
    "recipe.splits_first_stage=false",
    "recipe.host_runs_ahead=false",
    "profile.hop_end_s=2e-5",
    'profile.beyond={"forward_s": 1e-5, "forward_token_s": 0, "backward_s": 2e-5, "backward_token_s": 0, '
    '"split_s": 3e-5}',
)
ANY = [
    Space(4, 4, 4, 0.25),
    Space(4, 5, 4, 0.6, gpus_per_node=1, changes=SLOW_NETWORK + NO_OVERLAP),
    Space(3, 6, 3, 0.4, changes=(*ODD_HEADS, "vocab=20000", "tie_embeddings=true", "positions=learned")),
    Space(2, 7, 4, 1.0, schedule="interleaved", seq_len="4k", changes=UNFUSED + NO_OVERLAP),
    Space(4, 2, 2, 0.3, gpus_per_node=4, changes=WIDE_EXPERTS),
    Space(2, 6, 4, 0.5, schedule="interleaved", changes=LATENT + LEADING_DENSE + NO_OVERLAP),
    Space(3, 7, 3, 0.3, gpus_per_node=1, changes=ODD_HEADS + EVERY_SECOND_HAS_EXPERTS),
    Space(4, 4, 1, 0.3, seq_len="16k", changes=SLOW_NETWORK + WINDOWS),
    Space(4, 6, 2, 0.5, schedule="slimpipe", seq_len="4k", changes=ODD_HEADS + SLOW_NETWORK),
    Space(4, 5, 2, 1.0, schedule="slimpipe", seq_len="8k", changes=TIED + NO_OVERLAP),
    Space(3, 6, 2, 0.5, schedule="seq1f1b", seq_len="8k", changes=ODD_HEADS + UNFUSED),
    Space(4, 4, 2, 0.5, target="runtime", seq_len="4k", gpus_per_node=1, changes=SLOW_NETWORK),
    Space(3, 6, 6, 0.5, schedule="zb-h1,zb-h2", changes=ODD_HEADS + UNFUSED),
    Space(3, 7, 6, 0.3, schedule="zb-v,v-half,v-min", gpus_per_node=1, changes=ODD_HEADS + WIDE_ENDS + SLOW_NETWORK),
    Space(3, 6, 6, 0.3, schedule="dualpipe-v,flexible,breadth-first", changes=ODD_HEADS + LEADING_DENSE + NO_OVERLAP),
    Space(3, 6, 6, 0.3, schedule="zb-h1,zb-v,dualpipe-v,interleaved", changes=ODD_HEADS + ON_A_PROCESSOR),
]
# Brute force takes seconds on each: the quick run takes every third space.
EACH = pytest.mark.parametrize(
    "space",
    [
        pytest.param(space, id=space.name, marks=[pytest.mark.slow] if index % 3 else [])
        for index, space in enumerate(ANY)
    ],
)


@dataclass(frozen=True)
class Case:
    """A layout, its best step by brute force and its pipeline with every option; None when a stage has none."""

    best_s: float
    bound_s: float
    pipeline: Pipeline | None


@lru_cache
def cases(space: Space) -> list[Case]:
    """Every layout of a space."""
    force = BruteForce(space.request())
    step, everything = layout_bounds(force.model, force.costs)
    costs = force.costs.with_columns(bound_s=step, global_bound_s=everything)
    found = []
    for index in range(len(costs)):
        one = can_fit(Search(force.model), costs.take([index]))
        pipelines = list(costed(Search(force.model), one)) if len(one) else []
        found.append(Case(force.best_of(index), float(step[index]), *pipelines or [None]))
    return found


def with_pipeline(space: Space) -> Iterator[tuple[Case, Pipeline]]:
    """The layouts of which every stage has options."""
    return ((case, case.pipeline) for case in cases(space) if case.pipeline is not None)


@EACH
def test_the_options_lose_nothing(space: Space) -> None:
    """Smallest recompute, fastest sets and fronts leave each layout its best assignment; cutting planes find it."""
    for case in cases(space):
        if case.pipeline is None:
            assert case.best_s == inf
            continue
        pipeline = case.pipeline
        solution = minimum_cost(pipeline.chain)
        if not solution.feasible:
            assert case.best_s == inf
            continue
        result = cutting_planes(pipeline.assignment(), pipeline.step_and_paths, start=solution.choice)
        assert result.objective == pytest.approx(case.best_s, rel=1e-7)
        assert result.bound <= case.best_s * (1 + 1e-8)


@EACH
def test_no_bound_of_a_layout_is_above_its_best_step(space: Space) -> None:
    """Before costing, from its options, from the dynamic program and from rounds of 1F1B."""
    checked = 0
    for case, pipeline in with_pipeline(space):
        most = case.best_s * (1 + 1e-9)
        assert case.bound_s <= most
        costs = pipeline.costs.take([pipeline.index])
        options = {**pipeline.options, "layout": np.zeros_like(pipeline.options["layout"])}
        from_options = float(option_bounds(pipeline.model, costs, options)[0])
        chain_s = minimum_cost(pipeline.chain).bound + pipeline.global_floor_s
        assert from_options <= min(most, chain_s * (1 + 1e-9))
        assert float(fullest_stage_bounds(pipeline.model, costs)[0]) <= most
        assert chain_s <= most
        assert pipeline.cycle_bound_s + pipeline.global_floor_s <= most
        checked += case.best_s < inf
    assert checked >= 3


@pytest.mark.parametrize("space", [ANY[0], ANY[3]], ids=lambda space: space.name)
def test_bounds_are_worth_having(space: Space) -> None:
    """Where hops are short, the dynamic program mostly comes within a few per cent of the best step."""
    ratios = [
        (minimum_cost(pipeline.chain).bound + pipeline.global_floor_s) / case.best_s
        for case, pipeline in with_pipeline(space)
        if case.best_s < inf
    ]
    assert np.median(ratios) > 0.9


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 7, 8])
def test_rounds_of_1f1b_hold_for_a_slow_first_stage(m: int) -> None:
    """With fewer micro-batches than ranks, or some left over, a first stage of any weight stays above the bound."""
    space = Space(3, 3, m, 1.0, schedule="1f1b", changes=ODD_HEADS + SLOW_NETWORK)
    checked = 0
    for case, pipeline in with_pipeline(space):
        if pipeline.layout["pp"] != 3:
            continue
        for slow, factor in ((0, 10.0), (1, 10.0), (2, 10.0), (0, 0.1)):
            weights = np.where(pipeline.options["position"] == slow, factor, 1.0)
            changed = {
                name: column * weights if name.endswith(("forward_s", "input_grad_s", "weight_grad_s")) else column
                for name, column in pipeline.options.items()
            }
            slowed = replace(pipeline, options=changed)
            choice = minimum_cost(slowed.chain).choice
            assert slowed.cycle_bound_s + slowed.global_floor_s <= slowed.step_s(choice) * (1 + 1e-9)
            checked += 1
        assert case.best_s < inf
    assert checked


@EACH
def test_chunks_add_up_to_the_stage(space: Space) -> None:
    """Seconds of a micro-batch are those of the chunks together, for every option.

    A backward that is whole on the first stage takes as long there as its two parts would.
    """
    for _, pipeline in with_pipeline(space):
        moved, kept = (
            [seconds[name] for name in MICRO_BATCH_OUTPUTS[1:]] for seconds in (pipeline.chunk_s, pipeline._own_chunk_s)
        )
        assert np.allclose(sum(moved), sum(kept), rtol=1e-12, atol=0)
        for name, seconds in pipeline._own_chunk_s.items():
            assert np.allclose(seconds.sum(axis=1), pipeline.options[name], rtol=1e-12, atol=0)
            if name in ATTENTION_OUTPUTS:
                continue
            assert np.allclose(seconds[:, 0], pipeline.options[f"first_chunk_{name}"], rtol=1e-12, atol=0)
            assert np.allclose(seconds[:, -1], pipeline.options[f"last_chunk_{name}"], rtol=1e-12, atol=0)


@EACH
def test_paths_are_bounds_for_all_and_the_first_is_tight_for_its_choice(space: Space) -> None:
    """Length plus the global part is the step of the choice they came from, or less, and at most that of any other."""
    rng = np.random.default_rng(7)
    for case, pipeline in with_pipeline(space):
        if case.best_s == inf:
            continue
        choice = minimum_cost(pipeline.chain).choice
        problem, (step_s, paths) = pipeline.assignment(), pipeline.step_and_paths(choice)
        assert step_s == pipeline.step_s(choice)
        length_s = problem.path_length(paths[0], choice) + problem.greatest_global(choice)
        assert length_s == pytest.approx(step_s, rel=1e-12)
        rows = [np.flatnonzero(pipeline.options["position"] == rank) for rank in range(pipeline.layout["pp"])]
        for _ in range(3):
            other = np.array([rng.choice(some) for some in rows])
            step_s = pipeline.step_s(other) * (1 + 1e-12)
            longest_s = max(problem.path_length(path, other) for path in paths)
            assert longest_s + problem.greatest_global(other) <= step_s
            assert pipeline.row_bound_s[other].max() <= step_s


@EACH
def test_paths_of_one_layout_bound_all_that_run_its_table(space: Space) -> None:
    """Whatever their stages and hops take: with them a layout's program ends where it ends without."""
    known: dict[tuple[int, ...], dict[bytes, PathCoefficients]] = {}
    checked = 0
    for case, pipeline in with_pipeline(space):
        before = known.setdefault(pipeline.table_fields, {})
        problem, start = pipeline.assignment(before.values()), minimum_cost(pipeline.chain)
        if not start.feasible:
            continue
        for choice in (start.choice, *drawn_choices(pipeline, 5)):
            longest = max(problem.path_length(path, choice) for path in problem.paths)
            assert longest + problem.greatest_global(choice) <= pipeline.step_s(choice) * (1 + 1e-9)
        result = cutting_planes(problem, pipeline.step_and_paths, start=start.choice)
        assert result.objective == pytest.approx(case.best_s, rel=1e-7)
        assert result.bound <= case.best_s * (1 + 1e-8)
        before.update({path.key: path for path in pipeline.replayed_paths})
        checked += 1
    assert checked


def test_a_search_keeps_the_paths_of_a_program_for_the_next_of_its_table() -> None:
    """The second of two layouts that differ in how ranks are numbered needs no program that the first has needed."""
    search, programs = Search(next(with_pipeline(ANY[1]))[1].model), {True: 0, False: 0}
    for case, pipeline in with_pipeline(ANY[1]):
        if case.best_s < inf:
            choice, known = minimum_cost(pipeline.chain).choice, pipeline.table_fields in search.paths
            fresh, learnt = replace(pipeline), search.paths.get(pipeline.table_fields, {}).values()
            for paths, shared in (((), False), (learnt, True)):
                again = replace(fresh)
                result = cutting_planes(again.assignment(paths), again.step_and_paths, start=choice)
                programs[shared] += known * result.iterations
            tightened(search, Candidate(pipeline, choice, 0.0, pipeline.step_s(choice)))
            assert search.paths[pipeline.table_fields]
    assert 0 < programs[True] < programs[False]


def drawn_choices(pipeline: Pipeline, count: int) -> list[NDArray[np.int64]]:
    """Some choices of one option a stage, whether or not their layers add up."""
    drawn = np.random.default_rng(0)
    of_stage = [np.flatnonzero(pipeline.options["position"] == rank) for rank in range(pipeline.layout["pp"])]
    return [np.array([drawn.choice(rows) for rows in of_stage]) for _ in range(count)]


@EACH
def test_without_the_options_over_a_cutoff_a_choice_costs_the_same(space: Space) -> None:
    """Options leave whose own bound is over the cutoff; the choice, renumbered, is the same plan."""
    for case, pipeline in with_pipeline(space):
        if case.best_s == inf:
            continue
        choice = minimum_cost(pipeline.chain).choice
        search = Search(pipeline.model)
        search.add(Candidate(pipeline, choice, 0.0, case.best_s))
        left = under_cutoff(search, Candidate(pipeline, choice, 0.0))
        assert left.pipeline.step_s(left.choice) == pipeline.step_s(choice)
        stay = pipeline.row_bound_s < search.cutoff_s
        stay[choice] = True
        assert left.pipeline.options["layers"].tolist() == pipeline.options["layers"][stay].tolist()


def test_a_context_form_is_left_out_only_for_one_as_good() -> None:
    """Every layout that goes has a rival, alike but for its context form, that is at most as dear in everything."""
    request = build_request("llama3-8b", 8, "80GB", seq_len="32k", global_batch=2)
    model = CostModel(request)
    everything = LayoutCosts.of(model, layouts(request, meshes(request)))
    kept = everything.best_context_forms()
    assert len(kept) < len(everything)
    alike = [name for name in LAYOUT_FIELDS if name not in ("cp_heads", "cp_ring")]
    rivals: dict[tuple[int, ...], list[int]] = {}
    for index, key in enumerate(zip(*(kept.layouts[name].tolist() for name in alike), strict=True)):
        rivals.setdefault(key, []).append(index)
    for index, key in enumerate(zip(*(everything.layouts[name].tolist() for name in alike), strict=True)):
        mine = everything.micro_batch_row[index]
        theirs = kept.micro_batch_row[rivals[key]]
        no_dearer = [np.all(column[theirs] <= column[mine], axis=1) for column in everything.micro_batch.values()]
        assert np.any(np.all(no_dearer, axis=0))


@EACH
def test_windows_under_a_cutoff_keep_what_is_under_it(space: Space) -> None:
    """With a cutoff just above a layout's best step, its window still holds that assignment."""
    checked = 0
    for case, pipeline in with_pipeline(space):
        if case.best_s == inf:
            continue
        costs = pipeline.costs.take([pipeline.index])
        budget_s = case.best_s * (1 + 1e-9) - costs.layouts["global_bound_s"]
        lower, upper, possible = window(pipeline.model, costs, budget_s)
        assert possible[0]
        options = stage_options(pipeline.model, costs, positions(lower, upper))
        narrowed = Pipeline(pipeline.model, costs, 0, options)
        assert minimum_cost(narrowed.chain, case.best_s * (1 + 1e-9)).feasible
        checked += 1
    assert checked

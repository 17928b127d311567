import numpy as np
import pytest

from planner.errors import RequestError
from planner.timeline.perturbation import Perturbation, parse_perturbation, perturbed
from tests.planner.timeline.cases import plan_timeline, two_ranks


def test_a_slow_rank_costs_what_it_works_longer_where_it_is_critical() -> None:
    """All 9 s of rank 1 are on the path: half as much again is 4.5 s; the path stays where it was."""
    (slow,) = perturbed(two_ranks(), [Perturbation(1, 1.5)])
    assert slow.step_s == 16.5
    assert slow.slower == pytest.approx(4.5 / 12)
    assert slow.path_moved == 0
    assert slow.path_by_rank_s == (3.0, 13.5)


def test_the_path_moves_to_a_rank_that_becomes_the_slowest() -> None:
    """Rank 0 works 3 s of the path as planned; once it is slow, 12 s, half of them new."""
    (slow,) = perturbed(two_ranks(), [Perturbation(0, 1.5)])
    assert slow.step_s == 15
    assert slow.path_moved == 0.5
    assert slow.path_by_rank_s == (12.0, 3.0)


def test_several_are_told_alone_and_together() -> None:
    """The last entry has all of them; factors of one rank multiply."""
    alone = perturbed(two_ranks(global_s=1.0), [Perturbation(0, 2.0), Perturbation(1, 2.0)])
    assert [one.perturbations for one in alone[:2]] == [(Perturbation(0, 2.0),), (Perturbation(1, 2.0),)]
    assert alone[2].step_s == 2 * 12 + 1
    twice = perturbed(two_ranks(), [Perturbation(1, 2.0), Perturbation(1, 1.5)])[2]
    assert twice.step_s == perturbed(two_ranks(), [Perturbation(1, 3.0)])[0].step_s


def test_nothing_asked_is_nothing_told() -> None:
    """Without a perturbation there is no scenario."""
    assert perturbed(two_ranks(), []) == []


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.3])
def test_a_kept_plan_obeys_the_sign_of_the_change(factor: float) -> None:
    """Slower ranks never shorten the step, faster ones never lengthen it, and the same ones leave it."""
    step = plan_timeline().step
    for one in perturbed(step, [Perturbation(rank, factor) for rank in range(step.ranks)]):
        assert np.sign(round(one.slower, 12)) in (0, np.sign(factor - 1))
        assert abs(one.slower) <= abs(factor - 1) + 1e-12


def test_the_text_of_a_perturbation() -> None:
    """`stage=RANK:FACTOR`."""
    assert parse_perturbation("stage=3:1.2", 4) == Perturbation(3, 1.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3:1.2", "must be stage=RANK:FACTOR"),
        ("stage=-1:1.2", "must be stage=RANK:FACTOR"),
        ("stage=4:1.2", "must be in 0..3, got 4"),
        ("stage=1:0", "must be a number > 0"),
        ("stage=1:-2", "must be a number > 0"),
        ("stage=1:nan", "must be a number > 0"),
        ("stage=1:inf", "must be a number > 0"),
        ("stage=1:fast", "must be a number > 0, got 'fast'"),
    ],
)
def test_a_wrong_perturbation_is_refused(text: str, message: str) -> None:
    """The message says what is allowed."""
    with pytest.raises(RequestError, match=message) as refused:
        parse_perturbation(text, 4)
    assert "\n" not in str(refused.value)


def test_a_pipeline_of_one_stage_has_stage_0_only() -> None:
    """The message does not speak of a range of one."""
    with pytest.raises(RequestError, match="must be 0, the only stage, got 1"):
        parse_perturbation("stage=1:2", 1)

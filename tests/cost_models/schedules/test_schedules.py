import inspect
import subprocess
import sys

import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.live import live_chunks
from cost_models.schedules.table import Kind
from tests.cost_models.schedules.cases import SHAPES


@pytest.mark.parametrize("name", schedules.NAMES)
def test_every_schedule_offers_the_members_of_the_protocol(name: str) -> None:
    """The modules are loaded by name, so that no type checker sees them."""
    schedule = schedules.schedule(name)
    assert name == schedule.NAME
    assert schedule.REQUIRES
    for member in ("legal", "actions", "closed_form_s", "lower_bound_s", "bound_terms"):
        expected = list(inspect.signature(getattr(schedules.Schedule, member)).parameters)[1:]
        given = inspect.signature(getattr(schedule, member)).parameters.values()
        assert [parameter.name for parameter in given if parameter.kind != parameter.KEYWORD_ONLY] == expected
        takes = {"slices": schedules.SLICED, "group_size": schedules.GROUPED}
        for size, takers in takes.items():
            if name in takers:
                assert size in [parameter.name for parameter in given]


def test_tables_are_had_by_name_and_kept() -> None:
    """The same schedule and sizes give the same table and the same live vectors."""
    table = schedules.actions("1f1b", 4, 1, 8)
    assert table is schedules.actions("1f1b", 4, 1, 8)
    assert table.schedule == "1f1b"
    assert np.array_equal(schedules.live_chunks("1f1b", 4, 1, 8), live_chunks(table))
    assert schedules.live_chunks("1f1b", 4, 1, 8) is schedules.live_chunks("1f1b", 4, 1, 8)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """The message names what is allowed."""
    with pytest.raises(IllegalScheduleError, match="one of gpipe, 1f1b, interleaved, .*, got 'pipe'"):
        schedules.actions("pipe", 2, 1, 2)


@pytest.mark.parametrize("name", [name for name in schedules.NAMES if name != "dualpipe"])
def test_the_placement_of_a_schedule_is_that_of_its_tables(name: str) -> None:
    """Whatever the sizes: round the ranks, or down and back, with both ends of the model on rank 0."""
    for p, v, m in SHAPES[name]:
        place, table = schedules.placement(name, p, v), schedules.actions(name, p, v, m)
        assert place is table.placement
        assert place.rank[-1] == (0 if name in schedules.V_SHAPED else p - 1)
        assert (place.rank[0], place.chunk[0], place.chunk[-1]) == (0, 0, v - 1)


def test_a_v_has_two_chunks() -> None:
    """Layers go down once and come back once."""
    with pytest.raises(IllegalScheduleError, match="zb-v has two chunks a rank, got 3"):
        schedules.placement("zb-v", 4, 3)


@pytest.mark.parametrize("name", schedules.NAMES)
def test_backwards_are_split_where_they_are_said_to_be(name: str) -> None:
    """A schedule has weight gradients of their own, or it has not."""
    is_split = [np.any(schedules.actions(name, *shape).kind == Kind.WEIGHT_GRAD) for shape in SHAPES[name]]
    assert is_split == [name in schedules.SPLIT] * len(is_split)


def test_slices_and_groups_are_given_to_the_schedules_that_have_them() -> None:
    """A sliced or grouped schedule has the members of any other; its tables are those of its module."""
    sliced = schedules.schedule("slimpipe", slices=8)
    assert sliced.actions(4, 2, 3) is schedules.actions("slimpipe", 4, 2, 3, slices=8)
    assert sliced.actions(4, 2, 3).slices == 8
    assert not sliced.legal(3, 2, 3)
    grouped = schedules.schedule("interleaved", group_size=6)
    assert grouped.legal(4, 2, 12)
    assert not grouped.legal(4, 2, 13)
    assert not np.array_equal(grouped.actions(4, 2, 12).chunk, schedules.actions("interleaved", 4, 2, 12).chunk)
    live = schedules.live_chunks("interleaved", 4, 2, 12, group_size=6)
    assert live.sum(axis=-1).max() == 6 + 2 * 3 + 1


def test_slices_and_groups_are_refused_by_the_others() -> None:
    """The message names the schedules that have them."""
    with pytest.raises(IllegalScheduleError, match="slices is for terapipe, seq1f1b, slimpipe, got 4 for 1f1b"):
        schedules.schedule("1f1b", slices=4)
    with pytest.raises(IllegalScheduleError, match="group_size is for interleaved, got 4 for slimpipe"):
        schedules.schedule("slimpipe", group_size=4)
    with pytest.raises(IllegalScheduleError, match="slimpipe needs .* micro-batches 3, slices 6"):
        schedules.actions("slimpipe", 4, 2, 3, slices=6)


def test_a_training_rank_loads_no_solver_or_symbolic_library() -> None:
    """Tables, simulator and bounds need numpy only; the package itself not even that."""
    modules = ["gpipe", "one_f_one_b", "interleaved", "zb_v", "v_half", "dualpipe", "simulate", "critical_path", "live"]
    modules += ["breadth_first", "terapipe", "seq_1f1b", "slimpipe", "slimpipe_memory", "user_table"]
    code = "\n".join(
        [
            "import sys, cost_models.schedules",
            "assert 'numpy' not in sys.modules",
            *(f"import cost_models.schedules.{module}" for module in modules),
            "heavy = {'sympy', 'pulp', 'highspy', 'pandas', 'networkx', 'pydantic', 'torch', 'scipy'}",
            "assert not heavy & set(sys.modules), heavy & set(sys.modules)",
        ]
    )
    subprocess.run([sys.executable, "-c", code], check=True)

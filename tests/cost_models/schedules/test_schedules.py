import inspect
import subprocess
import sys

import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.live import live_chunks


@pytest.mark.parametrize("name", schedules.NAMES)
def test_every_schedule_offers_the_members_of_the_protocol(name: str) -> None:
    """The modules are loaded by name, so that no type checker sees them."""
    schedule = schedules.schedule(name)
    assert name == schedule.NAME
    assert schedule.REQUIRES
    for member in ("legal", "actions", "closed_form_s", "lower_bound_s", "bound_terms"):
        expected = list(inspect.signature(getattr(schedules.Schedule, member)).parameters)[1:]
        assert list(inspect.signature(getattr(schedule, member)).parameters) == expected


def test_tables_are_had_by_name_and_kept() -> None:
    """The same schedule and sizes give the same table and the same live vectors."""
    table = schedules.actions("1f1b", 4, 1, 8)
    assert table is schedules.actions("1f1b", 4, 1, 8)
    assert table.schedule == "1f1b"
    assert np.array_equal(schedules.live_chunks("1f1b", 4, 1, 8), live_chunks(table))
    assert schedules.live_chunks("1f1b", 4, 1, 8) is schedules.live_chunks("1f1b", 4, 1, 8)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """The message names what is allowed."""
    with pytest.raises(IllegalScheduleError, match="one of gpipe, 1f1b, interleaved, got 'pipe'"):
        schedules.actions("pipe", 2, 1, 2)


def test_a_training_rank_loads_no_solver_or_symbolic_library() -> None:
    """Tables, simulator and bounds need numpy only; the package itself not even that."""
    modules = ["gpipe", "one_f_one_b", "interleaved", "simulate", "critical_path", "live"]
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

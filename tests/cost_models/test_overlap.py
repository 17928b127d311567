"""The closed form of overlap against its definition, event by event."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.overlap import bind
from cost_models.specs.profile import OverlapSlowdown
from tests.cost_models.setting import PROFILE

slowdowns = st.floats(1, 50)
seconds = st.floats(0, 10) | st.just(0.0)


def exposed(slow_compute, slow_communication):
    overlap = OverlapSlowdown(compute_slowdown=slow_compute, communication_slowdown=slow_communication)
    return bind(PROFILE.replaced(overlap=overlap))["exposed_s"]


def by_events(compute, communication, slow_compute, slow_communication):
    """Mist's loop: both run slowed until one ends, the other goes on alone; or one after the other if sooner."""
    end_compute, end_communication = compute * slow_compute, communication * slow_communication
    first = min(end_compute, end_communication)
    rest = (end_compute - first) / slow_compute + (end_communication - first) / slow_communication
    return min(first + rest, compute + communication)


@given(seconds, seconds, slowdowns, slowdowns)
def test_equals_the_loop_of_events(compute, communication, slow_compute, slow_communication):
    """Compute and what is exposed take as long as the two streams take together."""
    together = compute + exposed(slow_compute, slow_communication)(compute, communication)
    wanted = by_events(compute, communication, slow_compute, slow_communication)
    assert together == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@given(seconds, seconds, slowdowns, slowdowns)
def test_lies_between_the_longer_and_the_sum(compute, communication, slow_compute, slow_communication):
    """Overlapping is never shorter than either stream alone, never longer than one after the other."""
    added = float(exposed(slow_compute, slow_communication)(compute, communication))
    assert 0 <= added <= communication
    assert compute + added >= max(compute, communication) * (1 - 1e-12)


@given(seconds, seconds, seconds, slowdowns, slowdowns)
def test_more_work_never_takes_less(compute, communication, more, slow_compute, slow_communication):
    """Adding to either stream never shortens the whole; more compute never exposes more communication."""
    body = exposed(slow_compute, slow_communication)
    together = compute + body(compute, communication)
    assert compute + more + body(compute + more, communication) >= together * (1 - 1e-12)
    assert body(compute, communication + more) >= body(compute, communication)
    assert body(compute + more, communication) <= body(compute, communication)


def test_without_interference_the_longer_counts():
    """Factors of one hide all of the shorter stream."""
    body = exposed(1.0, 1.0)
    assert body(3.0, 2.0) == 0.0
    assert body(2.0, 3.0) == 1.0

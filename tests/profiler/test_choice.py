"""Which points are measured: grids that reach everywhere, then the places that interpolation meets badly."""

from profiler.choice import coarse, left_out_errors, most_uncertain
from profiler.points import Measured, Point

SIZES = [2**power for power in range(10, 27)]


def test_a_coarse_grid_has_both_ends_and_lies_apart() -> None:
    """Of many sizes the smallest and the largest come first, then those far from all others."""
    points = [Point("copy", (size,)) for size in SIZES]
    chosen = [point.sizes[0] for point in coarse(points, 3)]
    assert chosen[:2] == [SIZES[-1], SIZES[0]]
    assert 2**16 <= chosen[2] <= 2**20
    assert coarse(points, 100) == points


def test_a_power_of_the_sizes_is_met_when_left_out() -> None:
    """Seconds that are a power of the sizes interpolate without error; a step in them does not."""
    smooth = [_measured(size, 1e-9 * size) for size in SIZES]
    assert left_out_errors(smooth).max() < 1e-3
    stepped = [_measured(size, 1e-9 * size * (3.0 if size > 2**20 else 1.0)) for size in SIZES]
    errors = left_out_errors(stepped)
    assert errors.max() > 0.2


def test_the_next_point_is_where_seconds_bend() -> None:
    """Between two points that are met badly, not where a power holds."""
    known = SIZES[::2]
    measured = [_measured(size, 1e-9 * size * (4.0 if size > 2**20 else 1.0)) for size in known]
    found = most_uncertain([Point("copy", (size,)) for size in SIZES], measured)
    assert found is not None
    assert 2**18 <= found[0].sizes[0] <= 2**23


def test_nothing_is_left_where_all_is_measured() -> None:
    """A table whose candidates are all measured asks for no more."""
    measured = [_measured(size, 1e-9 * size) for size in SIZES]
    assert most_uncertain([one.point for one in measured], measured) is None


def _measured(size: int, seconds: float) -> Measured:
    return Measured(Point("copy", (size,)), seconds, 0.01, 10)

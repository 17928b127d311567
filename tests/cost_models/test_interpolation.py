"""Interpolation in logarithms: exact for powers, monotone, level beyond the lattice."""

import numpy as np
import pytest

from cost_models.interpolation import LogLattice, corners

AXES = ([2.0, 8.0, 32.0], [1.0, 3.0, 10.0, 100.0])


def powers(first, second):
    """A value that every interpolation in logarithms must meet."""
    return 5 * first**0.3 * second**-1.2


def test_powers_are_met_between_nodes():
    """A product of powers of the sizes comes out exactly, and arrays broadcast against scalars."""
    lattice = LogLattice(AXES, powers(*np.meshgrid(*AXES, indexing="ij")))
    first = np.array([2.0, 5.0, 31.0])
    assert lattice(first, 7.0) == pytest.approx(powers(first, 7.0))
    assert lattice(first[:, None], np.array([1.5, 90.0])).shape == (3, 2)
    assert float(lattice(8.0, 10.0)) == pytest.approx(powers(8.0, 10.0))


def test_the_border_holds_beyond_the_lattice():
    """Sizes outside, none at all among them, take the value of the nearest border."""
    lattice = LogLattice(AXES, powers(*np.meshgrid(*AXES, indexing="ij")))
    assert lattice(0.0, 1e9) == pytest.approx(powers(2.0, 100.0))
    assert lattice(1e9, 3.0) == pytest.approx(powers(32.0, 3.0))


def test_what_rises_from_node_to_node_rises_between():
    """Monotone nodes give a monotone function of every size."""
    rng = np.random.default_rng(1)
    nodes = np.exp(np.cumsum(np.cumsum(rng.random((3, 4)), axis=0), axis=1))
    lattice = LogLattice(AXES, nodes)
    first, second = 2 ** rng.uniform(0, 6, 2000), 10 ** rng.uniform(0, 3, 2000)
    value = lattice(first, second)
    assert np.all(lattice(first * 1.1, second) >= value * (1 - 1e-12))
    assert np.all(lattice(first, second * 1.1) >= value * (1 - 1e-12))


def test_corners_weigh_the_nodes_that_interpolation_reads():
    """Weights are shares of one, and the weighted logarithms of the nodes are the interpolated one."""
    rng = np.random.default_rng(2)
    values = rng.random((3, 4)) + 0.5
    sizes = [rng.uniform(1, 40, 50), rng.uniform(1, 150, 50)]
    nodes, weights = corners(AXES, sizes)
    assert nodes.shape == weights.shape == (50, 4)
    assert weights.sum(axis=1) == pytest.approx(1)
    assert np.all(weights >= 0)
    assert np.exp((np.log(values.ravel())[nodes] * weights).sum(axis=1)) == pytest.approx(
        LogLattice(AXES, values)(*sizes)
    )


def test_an_axis_of_one_node_holds_for_every_size():
    """Its size changes nothing, the others interpolate as without it; corners weigh the other axis alone."""
    rng = np.random.default_rng(4)
    values = rng.random(3) + 0.5
    line, plane = LogLattice(AXES[:1], values), LogLattice((AXES[0], [8.0]), values)
    sizes = rng.uniform(1, 40, 50)
    assert plane(sizes, rng.uniform(1, 100, 50)) == pytest.approx(line(sizes))
    nodes, weights = corners((AXES[0], [8.0]), [sizes, np.full(50, 3.0)])
    assert nodes.shape == (50, 2)
    assert np.exp((np.log(values)[nodes] * weights).sum(axis=1)) == pytest.approx(line(sizes))

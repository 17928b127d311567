"""Surfaces through measured shares: smooth through noise, monotone in time, honest on what they did not see."""

import numpy as np
import pytest

from cost_models import surface

AXES = (2.0 ** np.arange(8, 14), 2.0 ** np.arange(9, 14), 2.0 ** np.arange(9, 14))


def smooth(sizes):
    """Shares that rise with every size towards 0.8."""
    return 0.8 * np.prod([size / (size + 300.0) for size in sizes], axis=0)


def points(count, seed):
    """Sizes all over the lattice."""
    rng = np.random.default_rng(seed)
    return [2.0 ** rng.uniform(np.log2(axis[0]), np.log2(axis[-1]), count) for axis in AXES]


def test_a_surface_levels_noise_and_single_bad_points():
    """Through shares 5 % off at random, one in a hundred 40 % too low, the surface is 3 % off in the median."""
    sizes, rng = points(1500, 0), np.random.default_rng(1)
    noise = np.exp(rng.normal(0, 0.05, 1500)) * np.where(rng.random(1500) < 0.01, 0.6, 1.0)
    shares = smooth(sizes) * noise
    fitted = surface.fitted(AXES, sizes, shares, np.ones(1500))
    unseen = points(500, 2)
    error = np.abs(surface.at(AXES, fitted, unseen) / smooth(unseen) - 1)
    assert np.median(error) < 0.03
    assert fitted.max() <= shares.max()


def test_time_rises_along_every_axis_after_rounding():
    """Whatever the shares, more work takes longer from node to node, even with four digits."""
    rng = np.random.default_rng(3)
    shares = surface.monotone(AXES, rng.uniform(0.05, 0.9, [len(axis) for axis in AXES]))
    kept = np.array(surface.rounded(shares)).reshape(shares.shape)
    time = np.prod(np.meshgrid(*AXES, indexing="ij"), axis=0) / kept
    for axis in range(3):
        assert np.all(np.diff(time, axis=axis) > 0)


def test_shares_that_rise_properly_are_left_alone():
    """A surface whose time rises already is not changed."""
    shares = smooth(np.meshgrid(*AXES, indexing="ij"))
    assert surface.monotone(AXES, shares) == pytest.approx(shares)


def test_held_out_points_are_predicted_without_them():
    """Every point comes from a fit whose mask excludes it, and each fit sees about four fifths."""
    seen = []

    def fit(mask):
        seen.append(mask)
        return np.where(mask, 0.0, 1.0)

    assert surface.held_out(fit, 200).tolist() == [1.0] * 200
    assert len(seen) == surface.FOLDS
    assert np.sum(seen, axis=0).tolist() == [surface.FOLDS - 1] * 200


def test_a_surface_over_one_node_of_an_axis_is_that_of_the_others():
    """What was measured at one size only, such as one head size or a group of two ranks."""
    axes = (AXES[0], np.array([64.0]))
    rng = np.random.default_rng(5)
    sizes = (2.0 ** rng.uniform(8, 13, 60), np.full(60, 64.0))
    shares = 0.8 * sizes[0] / (sizes[0] + 300.0)
    fitted = surface.fitted(axes, sizes, shares, np.ones(60))
    assert fitted.shape == (6, 1)
    alone = surface.fitted(axes[:1], sizes[:1], shares, np.ones(60))
    assert fitted[:, 0] == pytest.approx(alone, rel=1e-6)

"""Up to four streams side by side: worked examples, the closed form of two, and monotonicity for any factors."""

import doctest
import tomllib
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from cost_models import interference, overlap
from cost_models.interference import SETS, STREAMS, Slowdowns, load_slowdowns, overlapped, raised, set_name
from cost_models.specs.catalog import data_folder, load_profile
from cost_models.specs.errors import SpecError, UnknownNameError

MEASURED = sorted(path.stem for path in (data_folder() / "interference").glob("*.toml"))
# Error of Mist's own fit on the same rows, in its own form and with its own line rates.
MIST_ERRORS = {"a100-40-sxm": 0.101, "l4": 0.112, "v100-16-sxm": 0.068, "v100-32-sxm": 0.104}

factor = st.one_of(st.just(1.0), st.floats(1, 4), st.floats(1, 60))
seconds = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))
four_seconds = st.tuples(seconds, seconds, seconds, seconds)


@st.composite
def slowdowns(draw: st.DrawFn) -> Slowdowns:
    """Draw any factors, for some of the sets, raised as far as the condition needs."""
    sets = draw(st.sets(st.sampled_from(SETS)))
    drawn = {set_name(streams): {stream: draw(factor) for stream in streams} for streams in sorted(sets)}
    return Slowdowns(gpu="drawn", factors=raised(drawn))


def overlapped_rows(alone: ArrayLike, spec: Slowdowns) -> NDArray[np.float64]:
    """Return the seconds of four streams given as one array, streams first."""
    compute, collective, host_to_device, device_to_host = np.asarray(alone)
    return overlapped(compute, collective, host_to_device, device_to_host, spec)


def random_factors(seed: int) -> dict[str, dict[str, float]]:
    """Return factors of all sets, many near 1 and some large."""
    generator = np.random.default_rng(seed)
    return {
        set_name(streams): {
            stream: 1 + float(generator.exponential(generator.choice([0.1, 1, 10]))) for stream in streams
        }
        for streams in SETS
    }


def unequal_factors(base: float) -> dict[str, dict[str, float]]:
    """Return factors that grow with the set, each stream's its own."""
    return {
        set_name(streams): {stream: base + len(streams) / 4 + STREAMS.index(stream) / 8 for stream in streams}
        for streams in SETS
    }


def test_two_streams_agree_with_the_closed_form() -> None:
    """Compute and a collective alone take what overlap.py says: compute and what the collective exposes."""
    profile = load_profile("a100-40-sxm")
    compute, collective = np.random.default_rng(1).exponential(size=(2, 5_000))
    pair = {"compute": profile.overlap.compute_slowdown, "collective": profile.overlap.communication_slowdown}
    together = overlapped(compute, collective, 0, 0, Slowdowns(gpu="any", factors={"compute+collective": pair}))
    exposed = overlap.bind(profile)["exposed_s"](compute, collective)
    np.testing.assert_allclose(together, compute + exposed, rtol=1e-12)


@given(factor, factor, seconds, seconds)
def test_a_pair_is_the_longer_stream_and_what_the_shorter_adds(f: float, g: float, x: float, y: float) -> None:
    """Any pair of factors gives max(x + min(1, g - g/f) y, y + min(1, f - f/g) x), worked out by hand."""
    spec = Slowdowns(gpu="any", factors={"collective+device_to_host": {"collective": f, "device_to_host": g}})
    by_hand = max(x + min(1, g - g / f) * y, y + min(1, f - f / g) * x)
    assert overlapped(0, x, 0, y, spec) == pytest.approx(by_hand, rel=1e-12)


def test_three_streams_by_hand() -> None:
    """Compute 1, collective 4, copy in 3 s: 2 s as three, then 2 s as two, then what is left of the collective."""
    factors = {
        "compute+collective+host_to_device": {"compute": 2.0, "collective": 4.0, "host_to_device": 2.0},
        "collective+host_to_device": {"collective": 1.6, "host_to_device": 1.0},
    }
    # After 2 s the compute is done, 3.5 s of the collective and 2 s of the copy are left. The copy ends 2 s later, when
    # the collective has done 2 / 1.6 = 1.25 s; 2.25 s of it are left.
    assert overlapped(1, 4, 3, 0, Slowdowns(gpu="any", factors=factors)) == pytest.approx(2 + 2 + 2.25)


def test_four_streams_by_hand() -> None:
    """Compute 1, collective 2, copies 3 and 4 s end one by one, each round with the factors of the set that is left."""
    factors = {
        "host_to_device+device_to_host": {"host_to_device": 1.25, "device_to_host": 1.25},
        "collective+host_to_device+device_to_host": {"collective": 1.5, "host_to_device": 2.0, "device_to_host": 2.0},
        "compute+collective+host_to_device+device_to_host": dict.fromkeys(STREAMS, 2.0),
    }
    # 2 s: compute done; 1, 2 and 3 s left. 1.5 s: collective done; 1.25 and 2.25 s left. 1.5625 s: copy in done, and
    # 1.25 s of the copy out; 1 s of it is left.
    assert overlapped(1, 2, 3, 4, Slowdowns(gpu="any", factors=factors)) == pytest.approx(2 + 1.5 + 1.5625 + 1)


@settings(max_examples=300, deadline=None)
@given(slowdowns(), four_seconds, st.sampled_from(range(4)), st.floats(1e-6, 1e3))
def test_adding_work_never_shortens_the_time(
    spec: Slowdowns, alone: tuple[float, ...], stream: int, added: float
) -> None:
    """Whatever the factors, more of one stream takes at least as long."""
    more = list(alone)
    more[stream] += added
    before, after = overlapped_rows(alone, spec), overlapped_rows(more, spec)
    assert before * (1 - 1e-12) <= after


@pytest.mark.parametrize("seed", range(40))
def test_adding_work_never_shortens_the_time_of_many_rows(seed: int) -> None:
    """Random factors, thousands of rows, small and large additions: none ends sooner."""
    generator = np.random.default_rng(seed)
    spec = Slowdowns(gpu="any", factors=raised(random_factors(seed)))
    alone = generator.exponential(size=(4, 3_000)) * 10 ** generator.uniform(-2, 2, size=(4, 3_000))
    before = overlapped_rows(alone, spec)
    for stream in range(4):
        more = alone.copy()
        more[stream] *= 1 + 10 ** generator.uniform(-4, 1, size=3_000)
        assert np.all(overlapped_rows(more, spec) >= before * (1 - 1e-12))


def test_the_condition_is_exact() -> None:
    """Factors a thousandth under the condition are refused; without it, more work can shorten the time."""
    names = [set_name(streams) for streams in SETS]
    factors = {name: dict.fromkeys(name.split("+"), 1.0) for name in names}
    factors["compute+collective"] = {"compute": 3.0, "collective": 3.0}
    triple = "compute+collective+host_to_device"
    with pytest.raises(SpecError, match="adding work would shorten the time"):
        Slowdowns(gpu="any", factors=factors)
    # Beside the copy both run at full speed, without it at a third: 1 s of copying takes 1 s off both. Without the copy
    # compute and collective of 1 s take 3 s; with 1 s of copying all end after 1 s.
    just_enough = raised(factors)
    almost = {**just_enough, triple: {stream: 0.999 * value for stream, value in just_enough[triple].items()}}
    with pytest.raises(SpecError, match=r"collective\+host_to_device must be at least 1\.001 times as large"):
        Slowdowns(gpu="any", factors=almost)
    table = interference.factor_table(Slowdowns(gpu="any", factors=just_enough)).copy()
    table[interference.cell(tuple(triple.split("+")))] = 1.0
    without, with_copy = interference.until_all_end(np.array([[1.0, 1], [1, 1], [0, 1], [0, 0]]), table)
    assert with_copy < without


def test_raised_changes_only_what_must_change() -> None:
    """Factors that satisfy the condition come back equal; raised twice is raised once; nothing is lowered."""
    fine = unequal_factors(1.0)
    assert raised(fine) == fine
    for seed in range(20):
        factors = random_factors(seed)
        once = raised(factors)
        twice = raised(once)
        for name, of_streams in factors.items():
            assert list(once[name].values()) == pytest.approx(list(twice[name].values()), rel=1e-12)
            assert all(once[name][stream] >= value for stream, value in of_streams.items())


@settings(max_examples=200, deadline=None)
@given(slowdowns(), four_seconds)
def test_the_time_is_between_the_longest_stream_and_the_sum(spec: Slowdowns, alone: tuple[float, ...]) -> None:
    """The streams together take at least the longest of them and at most one after another."""
    together = overlapped_rows(alone, spec)
    assert max(alone) <= together <= sum(alone) * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(slowdowns(), four_seconds, st.floats(1e-3, 1e3))
def test_the_time_scales_with_the_work(spec: Slowdowns, alone: tuple[float, ...], scale: float) -> None:
    """Everything twice as long alone takes twice as long together."""
    scaled = [scale * value for value in alone]
    assert overlapped_rows(scaled, spec) == pytest.approx(scale * overlapped_rows(alone, spec), rel=1e-9)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_streams_have_no_rank(order: tuple[int, ...]) -> None:
    """Exchanging streams and their factors alike changes nothing."""
    factors = raised(random_factors(3))
    renamed = dict(zip(STREAMS, (STREAMS[place] for place in order), strict=True))
    exchanged = {
        set_name(streams): {
            renamed[stream]: value for stream, value in factors[set_name(_originals(streams, renamed))].items()
        }
        for streams in SETS
    }
    alone = np.random.default_rng(4).exponential(size=(4, 200))
    moved = np.empty_like(alone)
    moved[list(order)] = alone
    together = overlapped_rows(alone, Slowdowns(gpu="any", factors=factors))
    np.testing.assert_allclose(overlapped_rows(moved, Slowdowns(gpu="any", factors=exchanged)), together, rtol=1e-12)


def test_an_idle_stream_plays_no_part() -> None:
    """A stream without work leaves the time to the factors of the others, and a vanishing one tends to that."""
    spec = load_slowdowns("v100-16-sxm")
    only_pair = {"compute+host_to_device": dict(spec.factors["compute+host_to_device"])}
    idle = overlapped(2.0, 0.0, 1.5, 0.0, spec)
    assert idle == overlapped(2.0, 0.0, 1.5, 0.0, Slowdowns(gpu="any", factors=only_pair))
    assert overlapped(2.0, 1e-9, 1.5, 1e-9, spec) == pytest.approx(idle, rel=1e-6)
    assert overlapped(0, 0, 0, 0, spec) == 0
    assert overlapped(0, 0, 7.0, 0, spec) == 7


def test_sets_that_are_not_given_take_the_worst_of_their_subsets() -> None:
    """One pair given is felt in every larger set, and no other pair interferes."""
    pair = {"compute": 1.5, "collective": 1.25}
    complete = raised({"compute+collective": pair})
    assert complete["compute+collective+device_to_host"] == {**pair, "device_to_host": 1.0}
    assert complete["compute+host_to_device"] == {"compute": 1.0, "host_to_device": 1.0}
    assert set(complete) == {set_name(streams) for streams in SETS}


def test_arguments_broadcast_and_nan_stays() -> None:
    """Shapes (2, 1) and (3,) give (2, 3), elementwise as scalars would; nan is not taken for an idle stream."""
    spec = load_slowdowns("l4")
    compute, copy = np.array([[1.0], [2.0]]), np.array([0.0, 1.0, 5.0])
    together = overlapped(compute, 0.5, copy, 0.0, spec)
    assert together.shape == (2, 3)
    assert together[1, 2] == overlapped(2.0, 0.5, 5.0, 0.0, spec)
    assert np.isnan(overlapped(1.0, np.nan, 0.0, 0.0, spec))
    assert overlapped(np.inf, 1.0, 0.0, 0.0, spec) == np.inf
    assert overlapped(np.empty(0), 1.0, 0.0, 0.0, spec).shape == (0,)


def test_rows_beyond_a_chunk_are_the_same() -> None:
    """A long column gives what its pieces give."""
    spec = load_slowdowns("a100-40-sxm")
    alone = np.random.default_rng(5).exponential(size=(4, 40_000))
    whole = overlapped_rows(alone, spec)
    np.testing.assert_array_equal(whole[30_000:], overlapped_rows(alone[:, 30_000:], spec))


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ({"compute+magic": {"compute": 1.0, "magic": 1.0}}, "one of compute\\+collective, .* got 'compute\\+magic'"),
        ({"collective+compute": {"compute": 1.0, "collective": 1.0}}, "got 'collective\\+compute'"),
        (
            {"compute+collective": {"compute": 1.0}},
            "factors.compute\\+collective must give compute, collective, got comp",
        ),
        ({"compute+collective": {"compute": 0.9, "collective": 1.0}}, "must be >= 1, got 0.9"),
        ({"compute+collective": {"compute": float("nan"), "collective": 1.0}}, "compute"),
        ({"compute+collective": {"compute": "2", "collective": 1.0}}, "must be a number"),
    ],
)
def test_wrong_factors_are_refused(factors: dict[str, dict[str, float]], message: str) -> None:
    """A message names the set, the value and what is allowed."""
    with pytest.raises(SpecError, match=message):
        Slowdowns(gpu="any", factors=factors)


def test_slowdowns_are_frozen_and_copied_with_changes() -> None:
    """Nothing inside changes; a changed copy is validated and has its own table; JSON and back is equal."""
    spec = load_slowdowns("l4")
    before = overlapped(1.0, 1.0, 0.0, 0.0, spec)
    with pytest.raises(TypeError):
        spec.factors["compute+collective"]["compute"] = 9.0  # type: ignore[index]
    free = spec.replaced(factors={})
    assert overlapped(1.0, 1.0, 0.0, 0.0, free) == 1.0 < before
    assert Slowdowns.model_validate_json(spec.model_dump_json()) == spec


def test_four_gpus_are_measured() -> None:
    """The data hold the four GPUs of Mist's artifact whose measurements describe interference."""
    assert set(MIST_ERRORS) <= set(MEASURED)


@pytest.mark.parametrize("gpu", MEASURED)
def test_measured_factors_load(gpu: str) -> None:
    """Each file loads, names its GPU and its source, gives all 28 factors and an error."""
    spec = load_slowdowns(gpu)
    assert spec.gpu == gpu
    assert sum(len(of_streams) for of_streams in spec.factors.values()) == 28
    assert "Apache-2.0" in spec.sources["factors"]
    fields = tomllib.loads((data_folder() / "interference" / f"{gpu}.toml").read_text(encoding="utf-8"))
    assert spec.host == fields["host"] != "not stated"


@pytest.mark.parametrize(("gpu", "mist"), MIST_ERRORS.items())
def test_factors_are_at_least_as_good_as_those_of_mist(gpu: str, mist: float) -> None:
    """Cross-validated over sweeps, the error is below that of Mist's own fit on the rows it was fitted to."""
    errors = load_slowdowns(gpu).errors
    assert errors["shipped"] <= errors["cross_validated"] <= mist


def test_a_gpu_that_was_not_measured_is_refused() -> None:
    """The message lists what was measured and the nearest name."""
    with pytest.raises(UnknownNameError, match="a100-40-sxm.*did you mean"):
        load_slowdowns("a100-40-sx")


def test_docstrings_hold() -> None:
    """The examples in the docstrings run."""
    result = doctest.testmod(interference)
    assert result.attempted > 0
    assert result.failed == 0


def _originals(streams: tuple[str, ...], renamed: dict[str, str]) -> tuple[str, ...]:
    """Return the set whose streams were renamed to these, in the order of STREAMS."""
    return tuple(stream for stream in STREAMS if renamed[stream] in streams)

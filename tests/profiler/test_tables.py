"""Measurements become tables that give the measured seconds back, bound as the planner binds them."""

from itertools import product

import pytest

pytest.importorskip("torch")

from cost_models import communication, kernels
from cost_models.specs.catalog import load_model, load_recipe
from profiler.candidates import Counted
from profiler.device import Facts
from profiler.points import Measured, Point
from profiler.profile import About, profile_of

RATE, BANDWIDTH, LINK = 4e11, 2e10, 3e9
RECIPE = load_recipe("runtime-cpu")
COUNTED: Counted = {("norm_forward", (512, 0)): 2048.0, ("memory_copy", ()): 1.0}
FACTS = Facts("cpu-hand-made", "hand-made", "none", 2**33, 2**34, 1, 1)


def test_tables_give_back_what_was_measured() -> None:
    """Products, attention, norms and gathers: within the surface's smoothing of half a per cent."""
    measured = _measured()
    found = profile_of(measured, COUNTED, About(FACTS, "cpu", 2, "quick", 60.0, 55.0))
    bodies = kernels.bind(found.cluster.gpu, found.profile, RECIPE, "bf16")
    bodies |= communication.bind(found.cluster, found.profile)
    for one in measured:
        name, sizes = one.point.operator, one.point.sizes
        if name in ("all_gather",):
            seconds = bodies["all_gather_s"](float(sizes[0]), float(sizes[1]), 1.0)
        elif name == "norm_forward":
            seconds = bodies["elementwise_norm_forward_s"](2048.0 * sizes[0])
        elif name in ("memory_copy", "launch", "send"):
            continue
        else:
            seconds = bodies[f"{name}_s"](*map(float, sizes))
        assert float(seconds) == pytest.approx(one.seconds, rel=0.005), one


def test_coverage_and_provenance_name_what_was_measured() -> None:
    """Parts that were measured are named with their points and spread; others are not."""
    found = profile_of(_measured(), COUNTED, About(FACTS, "cpu", 2, "quick", 60.0, 55.0, notes=("two words",)))
    provenance = found.profile.provenance
    assert provenance is not None
    assert provenance.tables["gemm"].points == 81
    assert provenance.tables["gemm"].spread == pytest.approx(0.02)
    assert "copies" not in provenance.tables
    assert provenance.notes == ("two words",)
    share = kernels.coverage(found.cluster.gpu, found.profile, "bf16")["gemm_forward_s"]
    assert (float(share(256.0, 512.0, 512.0)), float(share(1e6, 512.0, 512.0))) == (1.0, 0.0)


def test_a_disturbed_measurement_is_not_longer_than_a_larger_one() -> None:
    """Fewer bytes take no longer than more: a hop of a kilobyte that took a second takes what the next one took."""
    links = [Measured(Point("all_gather", (size, 2)), size / LINK + 1e-4, 0.02, 10) for size in (2**12, 2**16, 2**20)]
    links.append(Measured(Point("all_gather", (2**10, 2)), 1.0, 3.0, 10))
    products = [one for one in _measured() if one.point.operator != "all_gather"]
    found = profile_of([*products, *links], COUNTED, About(FACTS, "cpu", 2, "quick", 60.0, 55.0))
    seconds = communication.bind(found.cluster, found.profile)["all_gather_s"](1024.0, 2.0, 1.0)
    assert float(seconds) < 2 * (2**12 / LINK + 1e-4)


def _measured() -> list[Measured]:
    """A device of one rate, one bandwidth and one link, each with a fixed time."""
    sizes = (256, 512, 1024)
    found: dict[Point, float] = {}
    for layout in ("forward", "input_grad", "weight_grad"):
        for rows, columns, inner in product(sizes, repeat=3):
            found[Point(f"gemm_{layout}", (rows, columns, inner))] = 2.0 * rows * columns * inner / RATE + 2e-5
    for name, products in (("attention_forward", 2.0), ("attention_backward", 5.0)):
        for batch, length in product((1, 4), (256, 1024)):
            point = Point(name, (batch, 8, length, length, 64), (4,))
            found[point] = products * batch * 8 * length * length * 64 / (0.1 * RATE) + 1e-5
    for rows in (64, 256, 1024, 4096):
        found[Point("norm_forward", (rows,), (512, 0))] = 2048.0 * rows / BANDWIDTH + 1e-5
    for size in (2**12, 2**16, 2**20):
        found[Point("all_gather", (size, 2))] = size / LINK + 1e-4
        found[Point("memory_copy", (size,))] = size / BANDWIDTH
        found[Point("send", (size, 2))] = size / LINK + 5e-5
    found[Point("launch", (1,))] = 1e-6
    return [Measured(point, seconds, 0.02, 10) for point, seconds in found.items()]


def test_models_of_the_loop_load() -> None:
    """The models that plan loop trains are in the data, not in the catalog."""
    from cost_models.specs.catalog import data_folder, names

    for path in sorted((data_folder() / "loop").glob("*.toml")):
        assert load_model(str(path)).layers > 0
        assert path.stem not in names("models")

"""Tables of a measured profile as seconds: what was measured comes back, and only that counts as measured."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models import communication, kernels, overlap
from cost_models.specs.beyond import BeyondOperators
from cost_models.specs.catalog import load_profile, load_recipe
from cost_models.specs.measured_profile import MeasuredProfile
from cost_models.specs.profile import HardwareProfile
from cost_models.vocabulary import ELEMENTWISE_KINDS, elementwise_name
from tests.cost_models.specs import hand_made
from tests.cost_models.specs.hand_made import BANDWIDTH, BYTES, COPY, LATENCY_S, LINK, PEAK_FLOPS

MEASURED = hand_made.measured()
PROFILE, CLUSTER, GPU = MEASURED.profile, MEASURED.cluster, MEASURED.cluster.gpu
RECIPE = load_recipe("megatron")
COMPUTE = kernels.bind(GPU, PROFILE, RECIPE, "bf16")
LINKS = communication.bind(CLUSTER, PROFILE)
LAUNCH_S = 1e-5


def changed(**tables: Any) -> HardwareProfile:
    """The profile with other tables."""
    assert PROFILE.tables is not None
    return PROFILE.replaced(tables=PROFILE.tables.replaced(**tables))


def test_products_take_what_was_measured_in_every_layout() -> None:
    """The forward by its rows, input gradients at a factor of it, weight gradients by their own inner size."""
    rows, columns, inner = 512.0, 4096.0, 512.0
    flops = 2 * rows * columns * inner
    forward = flops / PEAK_FLOPS * (rows + 64) / rows
    assert COMPUTE["gemm_forward_s"](rows, columns, inner) == pytest.approx(forward + LAUNCH_S)
    assert COMPUTE["gemm_input_grad_s"](rows, columns, inner) == pytest.approx(forward / 0.9 + LAUNCH_S)
    weight_grad = flops / PEAK_FLOPS * (inner + 128) / inner
    assert COMPUTE["gemm_weight_grad_s"](rows, columns, inner) == pytest.approx(weight_grad + LAUNCH_S)


def test_attention_takes_what_was_measured_with_one_head_size() -> None:
    """An axis of one node holds for every size; forward and backward have rates of their own."""
    flops = 2.0 * 32 * 2048 * 2048 * 64  # 32 streams of 2,048 queries are the last node of rows and keys
    sizes = (4.0, 8.0, 2048.0, 2048.0, 64.0)
    assert COMPUTE["attention_forward_s"](*sizes) == pytest.approx(flops / PEAK_FLOPS / 0.4 + LAUNCH_S)
    assert COMPUTE["attention_backward_s"](*sizes) == pytest.approx(2.5 * flops / PEAK_FLOPS / 0.3 + LAUNCH_S)


@pytest.mark.parametrize("kind", ELEMENTWISE_KINDS)
def test_memory_bound_work_takes_what_its_kind_does(kind: str) -> None:
    """Its own table, else that of all others, else constants; nothing takes nothing, little as long as the least."""
    name = elementwise_name(kind)  # type: ignore[arg-type]
    body = COMPUTE[name]
    assert body(BYTES[2]) == pytest.approx(BYTES[2] / BANDWIDTH / 0.8)
    assert body(10.0) == body(BYTES[0]) == pytest.approx(BYTES[0] / BANDWIDTH / 0.01)
    assert body(0.0) == 0.0
    slower = {"axes": {"bytes": BYTES}, "shares": [0.005, 0.1, 0.2, 0.2]}
    assert PROFILE.tables is not None
    others = changed(elementwise={"other": slower})
    assert kernels.bind(GPU, others, RECIPE, "bf16")[name](BYTES[2]) == pytest.approx(BYTES[2] / BANDWIDTH / 0.2)
    constants = kernels.bind(GPU, changed(elementwise={}), RECIPE, "bf16")[name](BYTES[2])
    assert constants == pytest.approx(BYTES[2] / (0.8 * BANDWIDTH) + LAUNCH_S)


def test_links_take_what_was_measured() -> None:
    """Half of the bytes pass between two ranks, all of what one sends to another; copies by direction."""
    size = BYTES[2]
    share = 1 / (1 + LATENCY_S * LINK / size)
    assert LINKS["all_gather_s"](size, 2.0, 1.0) == pytest.approx(size / 2 / LINK / share)
    assert LINKS["from_host_s"](size) == pytest.approx(size / COPY / 0.9)
    assert LINKS["to_host_s"](0.0) == 0.0
    hops = communication.hop_seconds(CLUSTER, PROFILE, size, 1, 2)
    assert hops == pytest.approx([size / LINK / share] * 2)
    assert LINKS["host_step_s"](1e9) == pytest.approx(2 * 1e9 / BANDWIDTH)  # two ranks share the host's memory


def two_tiers() -> MeasuredProfile:
    """Nodes of two ranks, and what was measured of one rank in each of them: a tenth of the link's rate."""
    fields = hand_made.fields()
    inner = fields["cluster"]["tiers"][0] | {"name": "node", "kind": "pcie", "domain_gpus": 2}
    fields["cluster"] |= {"gpus": 8, "tiers": [inner, fields["cluster"]["tiers"][0]]}
    fields["profile"]["link_fraction"] = {"pcie": 1.0, "network": 1.0}
    tables = fields["profile"]["tables"]
    slow = {"axes": {"ranks": [2.0, 4.0], "bytes": BYTES}, "shares": [0.001, 0.01, 0.1, 0.1] * 2}
    operations = dict.fromkeys(("all_gather", "send"), slow)
    tables["collectives_across"] = tables["collectives"] | {"operations": operations}
    tables["collectives"] = tables["collectives"] | {"kind": "pcie"}
    return MeasuredProfile.model_validate(fields)


def test_groups_with_one_rank_a_node_take_what_was_measured_across() -> None:
    """Those inside a node keep their own curve, mixed groups the slowest tier's constants; hops likewise."""
    measured = two_tiers()
    body = communication.bind(measured.cluster, measured.profile)["all_gather_s"]
    size = BYTES[3]
    assert body(size, 4.0, 2.0) == pytest.approx(size * 3 / 4 / (0.1 * LINK))
    assert body(size, 2.0, 1.0) == pytest.approx(LINKS["all_gather_s"](size, 2.0, 1.0))
    without = measured.profile.replaced(tables=measured.profile.tables.replaced(collectives_across=None))  # type: ignore[union-attr]
    constants = communication.bind(measured.cluster, without)["all_gather_s"]
    assert body(size, 8.0, 1.0) == constants(size, 8.0, 1.0)
    assert constants(size, 4.0, 2.0) < body(size, 4.0, 2.0)
    hops = communication.hop_seconds(measured.cluster, measured.profile, size, 1, 4)
    assert hops[[1, 3]] == pytest.approx([size / (0.1 * LINK)] * 2)
    assert hops[0] == pytest.approx(size / LINK * (1 + LATENCY_S * LINK / size))
    covered = communication.coverage(measured.cluster, measured.profile)["all_gather_s"]
    assert [float(covered(size, *group)) for group in ((4.0, 2.0), (2.0, 1.0), (8.0, 1.0))] == [1.0, 1.0, 0.0]


def test_streams_interfere_as_measured_with_the_profile() -> None:
    """Not as on the GPU that the catalog names in its place."""
    copied = overlap.bind(PROFILE)["exposed_beside_copies_s"]
    alone = copied(1.0, 0.0, 1.0, 0.0)
    assert alone == pytest.approx(0.0)  # no pair with copies was given: they do not interfere
    other = overlap.bind(PROFILE.replaced(slowdowns=None, interference="l4"))["exposed_beside_copies_s"]
    assert other(1.0, 0.0, 1.0, 0.0) > 0.5


def test_what_was_measured_is_covered_within_its_sizes() -> None:
    """Every operator of the profile's device; on another device, and beyond the sizes, nothing is."""
    measured = {
        "gemm": (512.0, 512.0, 512.0),
        "grouped_gemm": (512.0, 512.0, 512.0, 4.0),
        "attention": (2.0, 4.0, 512.0, 512.0, 64.0),
        "elementwise": (1e6,),
        "launch": (10.0,),
        "beyond": (1.0, 512.0, 1.0),
        "hop_end": (2.0,),
    }
    nothing = dict.fromkeys(("forward_s", "forward_token_s", "backward_s", "backward_token_s"), 0.0)
    with_layers = PROFILE.replaced(beyond=BeyondOperators(**nothing), hop_end_s=1e-4)
    share = kernels.coverage(GPU, with_layers, "bf16")
    assert set(share) == set(COMPUTE)
    for name, body in share.items():
        sizes = next(measured[kind] for kind in measured if name.startswith(kind))
        assert float(body(*sizes)) == 1.0, name
        if not name.startswith(("launch", "beyond", "hop_end")):
            beyond = [1e12 * size for size in sizes[:3]] + list(sizes[3:])
            assert float(body(*beyond)) == 0.0, name
    assert float(kernels.coverage(GPU, PROFILE, "bf16")["beyond_forward_s"](1.0, 512.0, 1.0)) == 0.0
    shared = PROFILE.replaced(beyond_shared=BeyondOperators(**nothing))
    for profile, expected in ((with_layers, [1.0, 1.0]), (shared, [0.0, 1.0])):
        body = kernels.coverage(GPU, profile, "bf16")["beyond_backward_s"]
        assert [float(body(1.0, 512.0, ranks)) for ranks in (1.0, 2.0)] == expected
    for name, body in kernels.coverage(GPU.replaced(name="other"), with_layers, "bf16").items():
        sizes = next(measured[kind] for kind in measured if name.startswith(kind))
        assert float(body(*sizes)) == 0.0, name
    linked = communication.coverage(CLUSTER, PROFILE)
    for name in ("all_gather_s", "reduce_scatter_s", "all_reduce_s", "all_to_all_s"):
        assert float(linked[name](1e6, 2.0, 1.0)) == 1.0
    assert [float(linked[name](1e6)) for name in ("from_host_s", "to_host_s", "host_step_s")] == [1.0, 1.0, 1.0]
    assert float(linked["from_host_s"](1e12)) == 0.0
    only_four = {"axes": {"ranks": [4.0], "bytes": BYTES}, "shares": [0.1, 0.4, 0.8, 0.9]}
    assert PROFILE.tables is not None
    assert PROFILE.tables.collectives is not None
    links = PROFILE.tables.collectives.replaced(operations={"all_gather": only_four})
    fewer = communication.coverage(CLUSTER.with_gpus(8), changed(collectives=links))["all_gather_s"]
    assert [float(fewer(1e6, ranks, 1.0)) for ranks in (2.0, 4.0, 8.0)] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("name", ["launch_s", "host_step_s"])
def test_constants_count_where_the_profile_names_their_measurement(name: str) -> None:
    """Without an entry in the provenance a constant is a constant."""
    assert PROFILE.provenance is not None
    bare = PROFILE.replaced(provenance=PROFILE.provenance.replaced(tables={}))
    covered = kernels.coverage(GPU, bare, "bf16") | communication.coverage(CLUSTER, bare)
    assert float(covered[name](10.0)) == 0.0


def test_the_catalog_measures_no_copies_and_no_kinds() -> None:
    """What its profiles have no tables of takes what it took: one bandwidth, one rate for all memory-bound work."""
    profile = load_profile("h200")
    bound = kernels.bind(GPU, profile, RECIPE, "bf16")
    times = {float(bound[elementwise_name(kind)](1e8)) for kind in ELEMENTWISE_KINDS}
    assert times == {1e8 / (BANDWIDTH * profile.elementwise.bandwidth_fraction) + profile.elementwise.launch_s}


@given(st.floats(1.0, 1e10), st.floats(1.0, 4.0))
def test_more_never_takes_less(size: float, more: float) -> None:
    """Bytes, through every table of bytes."""
    bodies = [COMPUTE["elementwise_s"], LINKS["from_host_s"], LINKS["to_host_s"]]
    bodies += [lambda each, name=name: LINKS[name](each, 2.0, 1.0) for name in ("all_gather_s", "all_to_all_s")]
    for body in bodies:
        assert float(np.asarray(body(size * more))) >= float(np.asarray(body(size))) * (1 - 1e-12)

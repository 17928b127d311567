"""Profiles of several nodes: medians, how far they lie apart, what they differ in, and what cannot be merged."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.profile_difference import difference
from cost_models.profile_merge import merged
from cost_models.rate_tables import rate_tables
from cost_models.specs.beyond import BeyondOperators
from cost_models.specs.catalog import load_gpu, load_profile
from cost_models.specs.errors import SpecError
from cost_models.specs.measured_profile import MeasuredProfile, dumps
from tests.cost_models.specs import hand_made

Fields = dict[str, Any]


def node(change: Callable[[Fields], Any] | None = None) -> MeasuredProfile:
    """The hand-made profile of a node that is other than the rest."""
    fields = json.loads(json.dumps(hand_made.fields()))
    if change is not None:
        change(fields)
    return MeasuredProfile.model_validate(fields)


def as_fast(factor: float) -> Callable[[Fields], None]:
    """Makes every product as many times as fast: a device whose peak was measured to be higher."""

    def change(fields: Fields) -> None:
        fields["cluster"]["gpu"]["peak_flops"]["bf16"] *= factor

    return change


def names(count: int) -> list[str]:
    """Names of files."""
    return [f"node-{index}.json" for index in range(count)]


def test_rates_are_what_the_tables_mean() -> None:
    """Shares times the peaks and constants that they are shares of."""
    tables = rate_tables(hand_made.measured().cluster.gpu, hand_made.measured().profile)
    assert tables["gemm bf16 forward"].rates[1, 0, 0] == pytest.approx(hand_made.PEAK_FLOPS * 512 / (512 + 64))
    assert tables["attention backward"].rates[-1, -1, -1] == pytest.approx(0.3 * hand_made.PEAK_FLOPS)
    assert tables["norm_forward"].rates.tolist() == pytest.approx([1e8, 3e9, 8e9, 9e9])
    assert tables["copy host_to_device"].rates[-1] == pytest.approx(0.95 * hand_made.COPY)
    catalogs = rate_tables(load_gpu("h200"), load_profile("h200"))
    assert catalogs["gemm bf16 forward"].rates.max() < 0.8 * 989e12
    assert "all_gather" in catalogs


def test_three_nodes_become_their_median() -> None:
    """Rates and constants are the middle node's; what lies outside does not move them."""
    slow, usual, fast = node(as_fast(0.5)), node(), node(as_fast(1.25))
    slow = slow.replaced(profile=slow.profile.replaced(host_launch_s=9e-5, context_bytes=3 * 10**8))
    found = merged([slow, usual, fast], names(3))
    ours, theirs = (rate_tables(each.cluster.gpu, each.profile) for each in (found.measured, usual))
    assert set(ours) == set(theirs)
    for name, table in ours.items():
        assert table.rates == pytest.approx(theirs[name].rates, rel=1e-9), name
    assert (found.measured.profile.host_launch_s, found.measured.profile.context_bytes) == (2e-5, 10**8)
    spread = {each.name: each for each in found.spreads}
    assert spread["gemm bf16 forward"].mean == pytest.approx((1.25 - 0.5) / 2)
    assert spread["norm_forward"].largest == 0.0
    provenance = found.measured.profile.provenance
    assert provenance is not None
    assert provenance.tables["gemm"].between_profiles == pytest.approx((1.25 - 0.5) / 2)
    assert provenance.tables["gemm"].repetitions == 60
    assert provenance.notes[0] == "median of 3 profiles"
    assert found.measured.profile.name == "two-cores-hand-made-of-3"


def test_merging_equal_profiles_changes_no_figure() -> None:
    """Nothing differs but the name and how often it was measured."""
    found = merged([node(), node()], names(2)).measured
    compared = difference(node(), found)
    assert compared.constants == ()
    assert all(table.largest == () and table.points for table in compared.tables)
    again = merged([node(), node()], names(2)).measured
    assert dumps(again) == dumps(found)


def test_sizes_that_one_node_did_not_measure_are_read_between_its_own() -> None:
    """The first node's sizes hold; a node that covers them counts by what lies between, beyond by nothing."""

    def other_sizes(fields: Fields) -> None:
        for table in fields["profile"]["tables"]["elementwise"].values():
            table["axes"]["bytes"] = [512.0, 1048576.0, 8388608.0, 16777216.0]

    found = merged([node(), node(other_sizes)], names(2))
    table = rate_tables(found.measured.cluster.gpu, found.measured.profile)["norm_forward"]
    first = rate_tables(hand_made.measured().cluster.gpu, hand_made.measured().profile)["norm_forward"]
    assert table.axes == first.axes
    assert table.rates[-1] == pytest.approx(first.rates[-1], rel=0.02)  # the second ends before
    assert table.rates[1] != pytest.approx(first.rates[1], rel=0.02)


def test_what_one_node_alone_measured_is_kept() -> None:
    """A node without collectives takes those of the other, and no part is lost."""

    def alone(fields: Fields) -> None:
        del fields["profile"]["tables"]["collectives"]
        del fields["profile"]["provenance"]["tables"]["collectives"]
        del fields["profile"]["tables"]["gemm"]["bf16"]["by_layout"]

    for pair in ([node(alone), node()], [node(), node(alone)]):
        found = merged(pair, names(2))
        assert {each.name: each.profiles for each in found.spreads}["all_gather"] == 1
        assert found.measured.profile.is_measured("collectives")
        assert "gemm bf16 weight_grad" in rate_tables(found.measured.cluster.gpu, found.measured.profile)


def test_what_layers_take_beyond_operators_is_the_median() -> None:
    """Of the nodes that have timed layers; the first is none of them."""

    def timed(seconds: float) -> Callable[[Fields], None]:
        def change(fields: Fields) -> None:
            fields["profile"]["beyond"] = dict.fromkeys(BeyondOperators.model_fields, seconds)
            fields["profile"]["beyond_shared"] = dict.fromkeys(BeyondOperators.model_fields, 2 * seconds)
            fields["profile"] |= {"hop_end_s": 3 * seconds, "hop_end_token_s": 4 * seconds}
            tables = fields["profile"]["provenance"]["tables"]
            tables["layers"] = tables["launch"]

        return change

    found = merged([node(), node(timed(1.0)), node(timed(3.0)), node(timed(2.0))], names(4)).measured.profile
    assert found.beyond is not None
    assert set(found.beyond.model_dump().values()) == {2.0}
    assert found.beyond_shared is not None
    assert set(found.beyond_shared.model_dump().values()) == {4.0}
    assert (found.hop_end_s, found.hop_end_token_s) == (6.0, 8.0)
    assert merged([node(), node()], names(2)).measured.profile.beyond is None


def test_interference_is_the_median_and_possible() -> None:
    """The pair of compute and collectives is the profile's overlap, too."""

    def others(fields: Fields) -> None:
        pair = {"compute": 1.2, "collective": 1.5}
        fields["profile"]["slowdowns"]["factors"] = {"compute+collective": pair}

    profile = merged([node(), node(others)], names(2)).measured.profile
    assert profile.slowdowns is not None
    assert profile.slowdowns.factors["compute+collective"] == pytest.approx({"compute": 1.5, "collective": 1.7})
    assert profile.overlap.compute_slowdown == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "cluster.gpu.usable_memory_bytes",
            3 * 2**30,
            "4,294,967,296 bytes of usable memory, node-1.json 3,221",
        ),
        ("cluster.gpus_per_node", 1, "devices on a host of node-0.json: 2, of node-1.json: 1"),
    ],
)
def test_unlike_devices_are_refused(path: str, value: Any, message: str) -> None:
    """And told by the names of their files."""

    def change(fields: Fields) -> None:
        *parents, last = path.split(".")
        for step in parents:
            fields = fields[step]
        fields[last] = value

    with pytest.raises(SpecError, match=message):
        merged([node(), node(change)], names(2))


def test_other_devices_and_a_single_profile_are_refused() -> None:
    """Names of devices decide; one profile needs no merging."""

    def renamed(fields: Fields) -> None:
        fields["cluster"]["gpu"]["name"] = fields["profile"]["gpu"] = "four-cores"
        fields["profile"]["tables"]["gpus"] = ["four-cores"]

    with pytest.raises(SpecError, match=r"device of node-0.json: two-cores, of node-1.json: four-cores"):
        merged([node(), node(renamed)], names(2))
    with pytest.raises(SpecError, match="two profiles at least, got 1"):
        merged([node()], names(1))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.2, 1.0), min_size=2, max_size=5))
def test_medians_lie_within_and_are_valid_tables(factors: list[float]) -> None:
    """Whatever the nodes: the merged file is valid, its rates are between the least and the most."""
    nodes = [node(as_fast(factor)) for factor in factors]
    found = merged(nodes, names(len(nodes))).measured
    rates = [rate_tables(each.cluster.gpu, each.profile)["gemm bf16 forward"].rates for each in nodes]
    middle = rate_tables(found.cluster.gpu, found.profile)["gemm bf16 forward"].rates
    assert (middle >= np.min(rates, axis=0) * (1 - 1e-9)).all()
    assert (middle <= np.max(rates, axis=0) * (1 + 1e-9)).all()


def test_a_difference_names_the_sizes_that_differ_most() -> None:
    """One node of one table that is slower; the constants that differ; what only one has."""

    def change(fields: Fields) -> None:
        fields["profile"]["tables"]["elementwise"]["norm_forward"] = {
            "axes": {"bytes": hand_made.BYTES},
            "shares": [0.01, 0.3, 0.4, 0.9],
        }
        fields["profile"]["host_launch_s"] = 4e-5
        del fields["profile"]["communicator_bytes"]
        del fields["profile"]["tables"]["copies"]

    found = difference(node(), node(change), most=2)
    first, *others = found.tables
    assert (first.name, first.points) == ("norm_forward", 4)
    assert [each.sizes for each in first.largest] == [{"bytes": hand_made.BYTES[2]}]
    assert (first.largest[0].longer, first.median_longer) == (pytest.approx(1.0), pytest.approx(0.0))
    assert all(table.largest == () for table in others)
    told = {pair.name: (pair.first, pair.second, pair.change) for pair in found.constants}
    assert told == {
        "host_launch_s": (2e-5, 4e-5, pytest.approx(1.0)),
        "communicator_bytes": (1e6, None, None),
    }
    assert found.only_first == ("copy host_to_device", "copy device_to_host")
    assert (found.only_second, found.same_device) == ((), True)

"""Plans that a measured profile times: a device that no catalog has, and documents that ask for its file."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs import catalog, measured_profile
from cost_models.specs.errors import SpecError
from cost_models.specs.measured_profile import MeasuredProfile
from planner.check import checked
from planner.document import PlanDocument, dumps, loads, read
from planner.errors import RequestError
from planner.evaluate.answers import answers
from planner.explain.explanation import explain
from planner.export.nearest import nearest
from planner.fixed import planned, request_of
from planner.given_profile import profile_of, timed_by
from planner.proposal import of_text
from planner.request import PlanRequest, build_request
from planner.search import plan
from planner.timeline.timeline import timeline_of_plan
from planner.why_not import why_not
from tests.cost_models.specs import hand_made
from tests.golden.jobs import FOLDER as GOLDEN

SMALL = {
    **{"name": "small", "layers": 4, "hidden": 256, "ffn": 704, "heads": 4, "kv_heads": 2},
    **{"head_dim": 64, "vocab": 512, "max_seq_len": 512},
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model and the hand-made profile, as files."""
    folder = tmp_path_factory.mktemp("measured")
    measured_profile.write(hand_made.measured(), folder / "profile.json")
    lines = (f"{name} = {json.dumps(value)}" for name, value in SMALL.items())
    (folder / "small.toml").write_text("\n".join(lines), encoding="utf-8")
    return folder


def asked(folder: Path, gpus: int = 2, **flags: Any) -> PlanRequest:
    """A plan of the small model on the hand-made device."""
    usual: dict[str, Any] = {"profile": str(folder / "profile.json"), "seq_len": "256", "global_batch": 8}
    return build_request(str(folder / "small.toml"), gpus, **{**usual, **flags})


@cache
def small_plan(folder: Path) -> PlanDocument:
    """The plan, as it comes back from its file."""
    return loads(dumps(plan(asked(folder))))


def golden_plan() -> PlanDocument:
    """A plan for eight H100."""
    return read(GOLDEN / "llama3-8b_8.json")


def of_a_gpu(**changes: Any) -> MeasuredProfile:
    """The catalog's H200 as if it had been measured, on one node."""
    gpu, profile = catalog.load_gpu("h200"), catalog.load_profile("h200")
    provenance = hand_made.measured().profile.provenance
    assert provenance is not None
    tables = {name: table for name, table in provenance.tables.items() if name in ("gemm", "attention", "launch")}
    profile = profile.replaced(name="h200-here", provenance=provenance.replaced(tables=tables, **changes))
    cluster = catalog.load_cluster("dgx-h200", 8)
    node = cluster.replaced(tiers=cluster.tiers[:1], gpu=gpu.replaced(usable_memory_bytes=140 * 2**30))
    return MeasuredProfile(cluster=node, profile=profile)


def test_a_cpu_plans_a_small_model(folder: Path) -> None:
    """Two cores as a device: every figure of the document is from the file, which it names."""
    document = small_plan(folder)
    measured = hand_made.measured()
    assert document.cluster == measured.cluster
    assert document.digests.profile == catalog.digest(measured.profile)
    assert document.digests.profile_name == "two-cores-hand-made"
    told = " ".join(document.assumptions)
    assert f"the profile two-cores-hand-made, {document.digests.profile[:12]}: measured on two cores" in told
    assert "did not measure" not in told  # a single tier has nothing across
    assert document.predicted.measured_share > 0.95
    assert document.predicted.mfu < 1
    assert document.recipe.communicator_bytes == 10**6
    assert "recipe.fragmentation_fraction=0.02" in told


def test_a_document_of_the_catalog_is_as_it_was() -> None:
    """The name of a profile stands only where it is needed to find it."""
    document = golden_plan()
    assert "profile_name" not in dumps(document)
    assert profile_of(document) == catalog.load_profile("h100-sxm")


def test_a_document_asks_for_the_file_of_its_profile(folder: Path) -> None:
    """Whatever costs the plan anew says which file it needs; with it, the step is that of the document."""
    document, path = small_plan(folder), str(folder / "profile.json")
    for again in (request_of, planned, explain, timeline_of_plan):
        with pytest.raises(
            RequestError, match=r"two-cores-hand-made, [0-9a-f]{12}, .* give its file with --profile FILE"
        ):
            again(document)
    same, profile = timed_by(document, path)
    assert same == document
    step_s = document.predicted.step_time_s
    assert planned(same, profile).objective_s == pytest.approx(step_s, rel=1e-8)
    assert timeline_of_plan(same, profile).step.step_s == pytest.approx(step_s, rel=1e-8)
    assert explain(same, profile=profile).notes == ()


def test_explain_tells_which_operators_rest_on_measurements(folder: Path) -> None:
    """All of the hand-made profile's; without its tables none of them."""
    document, profile = timed_by(small_plan(folder), str(folder / "profile.json"))
    shares = {
        (unit, each.name): each.measured_share
        for unit, operators in explain(document, profile=profile).operators.items()
        for each in operators
        if each.total_s
    }
    assert len(shares) > 15
    assert set(shares.values()) == {1.0}
    bare = explain(document, profile=profile.replaced(tables=None))
    found = {each.measured_share for operators in bare.operators.values() for each in operators if each.total_s}
    assert found == {0.0}
    assert bare.notes[0].endswith("its profile is not the two-cores-hand-made profile that was given.")


def test_a_plan_bound_by_launches_rests_on_their_measurement(folder: Path) -> None:
    """With launches of 10 ms all of a pass is launches: measured where they were, else not at all."""
    request = asked(folder, overrides=["profile.host_launch_s=0.01"])
    assert plan(request).predicted.measured_share > 0.9
    assert request.profile.provenance is not None
    parts = {name: table for name, table in request.profile.provenance.tables.items() if name != "launch"}
    profile = request.profile.replaced(provenance=request.profile.provenance.replaced(tables=parts))
    assert plan(request.replaced(profile=profile)).predicted.measured_share < 0.05


def test_why_not_check_and_nearest_take_the_profile(folder: Path) -> None:
    """Each answers as it does for a device of the catalog."""
    document, profile = timed_by(small_plan(folder), str(folder / "profile.json"))
    values = "pp=1" if document.parallelism.pp == 2 else "pp=2"
    assert why_not(document, values, request_of(document, profile)).kind in ("slower", "tie")
    figures = checked(of_text("tp=1,micro_batch_size=4", asked(folder))).figures
    assert figures is not None
    assert figures.step_time_s > 0.99 * document.predicted.step_time_s
    found = nearest(document, profile, "deepspeed")
    assert found.document.digests.profile_name == "two-cores-hand-made"


def test_runs_of_the_device_are_evaluated_by_its_profile(folder: Path) -> None:
    """A run on the device is costed as the plan is; another device's stays the catalog's; unknown ones are told."""
    document = small_plan(folder)
    layout = document.parallelism
    row = {
        **{"model": "small", "n_layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2, "vocab": 512, "ffn": 704},
        **{"gpu": hand_made.NAME, "n_gpus": 2, "seq_len": 256, "global_batch_seqs": 8, "recipe": "megatron"},
        **{"tp": layout.tp, "pp": layout.pp, "vpp": layout.vpp, "micro_batch": layout.micro_batch_size},
        **{"precision": "bf16", "recompute": "none", "schedule": layout.schedule, "zero_or_fsdp": "0"},
    }
    (own,) = answers([row], hand_made.measured())
    assert own.status == "ok", own.message
    assert own.costs is not None
    assert own.costs.step_time_s == pytest.approx(document.predicted.step_time_s, rel=0.05)
    (unknown,) = answers([row])
    assert unknown.status == "unsupported"
    other = row | {"gpu": "H100"}
    (with_profile,), (without,) = answers([other], hand_made.measured()), answers([other])
    assert with_profile.cells() == without.cells()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"gpu": "h100"}, "--gpu h100 contradicts --profile: two-cores-hand-made was measured on two-cores"),
        ({"gpu": "nothing"}, "--gpu nothing contradicts --profile"),
        ({"cluster": "dgx-h200"}, "--cluster dgx-h200, whose GPU is h200, contradicts --profile"),
    ],
)
def test_another_device_than_the_profile_s_is_refused(folder: Path, flags: dict[str, str], message: str) -> None:
    """Whichever flag names it."""
    with pytest.raises(RequestError, match=message):
        asked(folder, **flags)


def test_the_device_may_be_named_and_joined_otherwise(folder: Path, tmp_path: Path) -> None:
    """--gpu that is the profile's says nothing new; a cluster file may name a device that no catalog has."""
    assert asked(folder, gpu="Two Cores").cluster == hand_made.measured().cluster
    text = (
        'name = "four hosts"\ngpu = "two-cores"\ngpus_per_node = 2\nhost_memory_bytes = 8000000000\n'
        "host_to_device_bandwidth_bytes_per_s = 8e9\n[[tiers]]\nname = 'ethernet'\nkind = 'network'\n"
        "link_bandwidth_bytes_per_s = 1e9\nlinks_per_gpu = 1.0\nlatency_s = 1e-4\n"
    )
    (tmp_path / "hosts.toml").write_text(text, encoding="utf-8")
    request = asked(folder, 8, cluster=str(tmp_path / "hosts.toml"))
    assert (request.cluster.name, request.cluster.gpu) == ("four hosts", hand_made.measured().cluster.gpu)


def test_a_document_for_another_device_refuses_the_file(folder: Path) -> None:
    """The plan of an H100 is not timed by two cores."""
    document = golden_plan()
    with pytest.raises(RequestError, match="was measured on two-cores, the plan is for h100-sxm"):
        timed_by(document, str(folder / "profile.json"))
    with pytest.raises(SpecError, match="cannot read"):
        timed_by(document, str(folder / "none.json"))


def test_a_measured_gpu_of_the_catalog_reaches_beyond_its_node(tmp_path: Path) -> None:
    """Links that one node cannot measure are the catalog's; what was not measured is told; --mem reads the device."""
    path = tmp_path / "h200.json"
    measured_profile.write(of_a_gpu(), path)
    flags: dict[str, Any] = {"profile": str(path), "global_batch": 64, "seq_len": "2k"}
    near, far = (build_request("llama3-8b", gpus, **flags) for gpus in (8, 64))
    assert [tier.name for tier in near.cluster.tiers] == ["nvlink"]
    assert [tier.name for tier in far.cluster.tiers] == ["nvlink", "infiniband"]
    assert far.cluster.gpu == of_a_gpu().cluster.gpu
    assert far.capacity_bytes == 140 * 2**30
    told = " ".join(far.assumptions)
    assert "measured on 8 GPUs at most: links beyond are those of dgx-h200" in told
    assert "did not measure grouped_gemm, elementwise, collectives, copies, interference" in told
    assert "No constants are measured on" not in told


def test_a_device_that_no_catalog_has_ends_where_it_was_measured(tmp_path: Path) -> None:
    """More than its tiers join need a cluster."""
    fields = hand_made.fields()
    fields["cluster"]["tiers"][0]["domain_gpus"] = 2
    path = tmp_path / "profile.json"
    measured_profile.write(MeasuredProfile.model_validate(fields), path)
    with pytest.raises(RequestError, match=r"--gpus must be <= 2, .* got 4; --cluster FILE says"):
        build_request("llama3-8b", 4, profile=str(path))

"""The terminal report: complete, within its width, and readable without colour."""

import io
from typing import Any

import pytest
from rich.console import Console

from planner.document import (
    MEMORY_CAUSES,
    LauncherAnswer,
    MemoryByCause,
    Offload,
    Parallelism,
    PeakMemory,
    PlanDocument,
    Recompute,
)
from planner.report import quantities
from planner.report.tables import MEMORY_GROUPS
from planner.report.terminal import certificate_text, report
from tests.planner.sample import GIB, sample_document

SENTENCES = ("Memory of one GPU: 79.1 GiB.", "Without --seq-len a sequence has 8,192 tokens.")


def rendered(document: PlanDocument, width: int = 100, **options: Any) -> str:
    """The report as text."""
    console = Console(file=io.StringIO(), width=width, highlight=False, **options)
    console.print(report(document, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_every_figure_survives_the_width(width: int) -> None:
    """No line is longer than the window and no column loses its heading or is cut with an ellipsis."""
    text = rendered(sample_document(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for heading in ("TP", "VPP", "schedule", "ZeRO", "recompute", "slower", "layers", *MEMORY_GROUPS):
        assert heading in text


def test_the_headline_tells_the_plan() -> None:
    """Layout, batch, step, throughput, MFU, memory, verdict and certificate stand in the first lines."""
    head = rendered(sample_document()).split("Nearest alternatives")[0]
    for part in (
        "llama3-70b on 256 x h100-sxm (32 nodes)",
        "TP 4 + SP, PP 4 x VPP 5, DP 16 (ZeRO 1)",
        "micro-batch 1 x 32, interleaved in groups of 4",
        "core_attention 20/80 layers",
        "15.62 s (band 14.84 s to 16.40 s)",
        "1,049 tokens/s on each GPU",
        "45.7 % (48.6 % with attention counted in full)",
        "64.5 GiB of 79.1 GiB (82 %), band 60.6 to 68.4: fits",
        "optimal within 0.31 %",
    ):
        assert part in head


def test_assumptions_are_told_once() -> None:
    """A reading that two parts of the search repeat is one line."""
    text = rendered(sample_document(assumptions=SENTENCES * 2))
    assert [text.count(sentence) for sentence in SENTENCES] == [1, 1]


def test_ties_are_told_in_words() -> None:
    """Plans within the band are marked by a word, not by colour alone."""
    rows = [line.split() for line in rendered(sample_document()).splitlines() if "tie" in line.split()]
    assert [row[-4:-2] for row in rows] == [["+1.2", "%"], ["+2.5", "%"]]


def test_a_pipe_gets_no_colour() -> None:
    """Escape codes go to terminals only."""
    assert "\x1b" not in rendered(sample_document())
    assert "\x1b" in rendered(sample_document(), force_terminal=True, color_system="standard", no_color=False)


def test_equal_stages_share_a_row() -> None:
    """Sixty-four stages that read alike do not fill a screen."""
    document = sample_document()
    alike = document.stages[2]
    text = rendered(sample_document(stages=_renumbered(document, alike)))
    stages = text.split("Stages")[1].split("One step")[0]
    assert "1-2" in stages


def _renumbered(document: PlanDocument, alike: Any) -> tuple[Any, ...]:
    stages = list(document.stages)
    stages[1] = alike.replaced(chunks=stages[1].chunks)
    return tuple(stages)


def test_memory_groups_of_a_stage_add_up() -> None:
    """The five groups of the stage table cover every cause once."""
    causes = [cause for group in MEMORY_GROUPS.values() for cause in group]
    assert sorted(causes) == sorted(MEMORY_CAUSES)


def test_knobs_that_are_used_are_shown() -> None:
    """Offload, idle GPUs and host memory appear as soon as a plan has them, with the launchers' reasons."""
    document = sample_document()
    quiet = rendered(document)
    assert "offload" not in quiet
    assert "idle" not in quiet
    offload = Offload(optimizer=0.5, activations=0.25)
    stages = [stage.replaced(offload=offload, zero_stage=rank % 2) for rank, stage in enumerate(document.stages)]
    answer = LauncherAnswer(expressible=False, why_not=("no such schedule",), best_step_time_s=16.2)
    loud = document.replaced(
        cluster=document.cluster.with_gpus(260),
        parallelism=document.parallelism.replaced(gpus_idle=4),
        stages=tuple(stages),
        predicted=document.predicted.replaced(host_memory_bytes=300 * GIB),
        launchers={"torchtitan": answer},
    )
    text = rendered(loud, 80)
    for part in (
        "optimizer 50 %, activations 25 %",
        "OO 50%",
        "4 of 260 GPUs",
        "300.0 GiB of each node",
        "DP 16 (ZeRO 0-1)",
        "torchtitan: no, its best plan takes 16.20 s (+3.7 %): no such schedule",
        "No open launcher can express, as it is: offload, recompute, zero_stage.",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("capacity_gib", "verdict", "words"), [(60.0, "no", "does not fit"), (65.0, "borderline", "may not fit")]
)
def test_the_verdict_is_told_in_words(capacity_gib: float, verdict: str, words: str) -> None:
    """What does not surely fit says so."""
    document = sample_document()
    peak = document.predicted.peak_memory_bytes.replaced(capacity=capacity_gib * GIB)
    text = rendered(document.replaced(predicted=document.predicted.replaced(peak_memory_bytes=peak, verdict=verdict)))
    assert f": {words}" in text


def test_a_limit_is_told_in_the_certificate() -> None:
    """A plan that was not proven does not read like one that was."""
    certificate = sample_document().certificate.replaced(status="FEASIBLE", bound_s=14.06, gap=1 - 14.06 / 15.6217)
    text = certificate_text(sample_document(certificate=certificate))
    assert text.startswith("best so far: a limit stopped the search; a plan may be up to 10.00 % faster, at 14.06 s")


def test_a_plan_without_memory_or_neighbours_is_printed() -> None:
    """The smallest document renders: no alternatives, launchers, environment or assumptions, all bytes zero."""
    document = sample_document()
    nothing = {"allocated_bytes": 0.0, "reserved_bytes": 0.0, "device_bytes": 0.0}
    stages = tuple(
        stage.replaced(
            recompute=Recompute(), predicted=stage.predicted.replaced(memory_bytes=MemoryByCause(), **nothing)
        )
        for stage in document.stages
    )
    peak = PeakMemory(
        allocated=0.0, reserved=0.0, device=0.0, capacity=0.0, low=0.0, high=0.0, breakdown=MemoryByCause()
    )
    empty = document.replaced(
        stages=stages,
        predicted=document.predicted.replaced(peak_memory_bytes=peak),
        alternatives=(),
        launchers={},
        env={},
        assumptions=(),
    )
    text = rendered(empty)
    for heading in ("Nearest", "Launchers", "Environment", "Assumed"):
        assert heading not in text
    assert "0.0 GiB of 0.0 GiB, band" in text


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (0.0, "0.000 s"),
        (4.2e-6, "4.200 us"),
        (0.1392, "139.2 ms"),
        (0.99996, "1.000 s"),
        (15.6217, "15.62 s"),
        (123.456, "123.5 s"),
        (123456.7, "123,457 s"),
    ],
)
def test_durations_have_four_digits(time_s: float, text: str) -> None:
    """A time is readable at any size."""
    assert quantities.duration(time_s) == text


@pytest.mark.parametrize("width", [80, 100, 140])
def test_experts_and_context_have_columns(width: int) -> None:
    """EP, ETP and CP are told for every layout, with the kind of context parallelism where kinds differ; all fits."""
    text = rendered(of_every_kind(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    head, table = text.split("Nearest alternatives")
    assert "CP 2 (ring), EP 8 x ETP 4, DP 8 (ZeRO 1)" in " ".join(head.split())
    table = table.split("Stages")[0]
    for heading in ("TP", "PP", "VPP", "CP", "EP", "ETP", "DP", "recompute", "slower", "GiB"):
        assert heading in table
    words = table.split()
    assert {"64.5", "61.7", "72.9", "73.8"} <= set(words)
    assert words.count("ring") == 3
    assert words.count("a2a") == 1
    for cause in ("expert parallel", "context parallel", "gathered parameters", "3.000 s", "20.0 GiB"):
        assert cause in text


def test_one_kind_of_context_parallelism_is_told_once() -> None:
    """Where all layouts have the same, the line of the layout tells it and the table the degree alone."""
    document = of_every_kind()
    others = [other.replaced(parallelism=other.parallelism.replaced(cp_type="ring")) for other in document.alternatives]
    text = rendered(document.replaced(alternatives=tuple(others)))
    assert "CP 2 (ring)" in text
    assert text.count("ring") == 1


def of_every_kind() -> PlanDocument:
    """The sample with experts and context parallelism, one alternative by exchanging heads, and long causes."""
    document = sample_document()
    kinds = {"cp": 2, "cp_type": "ring", "ep": 8, "etp": 4}

    def split(layout: Parallelism, **changes: Any) -> Parallelism:
        halved = {"dp": layout.dp // 2, "dp_shard": layout.dp // 2, "num_microbatches": layout.num_microbatches * 2}
        return layout.replaced(**{**halved, **kinds, **changes})

    first, *others = document.alternatives
    alternatives = [first.replaced(parallelism=split(first.parallelism, cp_type="ulysses"))]
    alternatives += [other.replaced(parallelism=split(other.parallelism)) for other in others]
    times = {"compute": 8.0, "expert_parallel": 4.6217, "context_parallel": 3.0}
    predicted = document.predicted.replaced(time_breakdown_s=times)
    peak = predicted.peak_memory_bytes
    moved = peak.breakdown.replaced(gathered_parameters=20 * GIB, activations=peak.breakdown.activations - 20 * GIB)
    predicted = predicted.replaced(peak_memory_bytes=peak.replaced(breakdown=moved))
    return document.replaced(
        parallelism=split(document.parallelism), alternatives=tuple(alternatives), predicted=predicted
    )


def test_degrees_tell_what_is_used() -> None:
    """CP, EP and replicas are told where they are more than 1."""
    layout = sample_document().parallelism.replaced(
        cp=2, cp_type="ring", ep=8, etp=1, dp=8, dp_shard=4, dp_replicate=2, vpp=1, sequence_parallel=False
    )
    expected = "TP 4, PP 4, CP 2 (ring), EP 8, DP 8 = 4 shard x 2 replicate (ZeRO 3, resharded)"
    assert quantities.degrees(layout, "3, resharded") == expected

"""Rows as configurations."""

import pytest

from cost_models.schedules import V_SHAPED
from planner.evaluate.errors import InvalidRunError, UnsupportedRunError
from planner.evaluate.runs import read_run
from planner.space import LAYOUT_FIELDS
from tests.planner.evaluate.rows import GPT, LLAMA, MIXTRAL


def test_a_complete_row_assumes_little():
    """Degrees, batch and schedule are those of the row; data-parallel ranks are what is left."""
    run = read_run(LLAMA)
    assert set(run.layout) == set(LAYOUT_FIELDS) - {"schedule"}
    degrees = ("tp", "pp", "dp", "dp_shard", "micro_batch_size", "num_microbatches", "sequence_parallel")
    assert [run.layout[name] for name in degrees] == [2, 4, 8, 8, 1, 16, 1]
    assert run.groups.tolist() == [[8.0]] * 4
    assert run.assumed == ()
    assert run.recompute_given


def test_missing_values_are_assumed_and_told():
    """A row of three cells is a configuration, with a sentence for everything it does not say."""
    run = read_run({"model": "llama3-8b", "gpu": "H100", "n_gpus": "8"})
    told = " ".join(run.assumed)
    for column in ("seq_len", "tp", "pp", "cp", "micro_batch", "global_batch_seqs", "precision", "zero_or_fsdp"):
        assert f"{column}=" in told


def test_schedules_follow_chunks():
    """Chunks make a schedule interleaved; zero-bubble runs keep theirs; others are taken for the nearest, and told."""
    assert read_run(MIXTRAL).schedule == "interleaved"
    assert read_run({**LLAMA, "notes": "schedule=ZB-1p"}).schedule == "zb-h1"
    assert read_run({**LLAMA, "schedule": "1F1B"}).schedule == "1f1b"
    for text, nearest in (("DualPipe", "zb-h1"), ("my own", "1f1b")):
        run = read_run({**LLAMA, "schedule": text})
        assert run.schedule == nearest
        assert any("schedule=" in sentence for sentence in run.assumed)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("ZBV", "zb-v"),
        ("zbv-formatted", "zb-v"),
        ("ScheduleZBVZeroBubble", "zb-v"),
        ("V-ZB", "zb-v"),
        ("v_half", "v-half"),
    ]
    + [("V-Min", "v-min"), ("DualPipeV", "dualpipe-v"), ("ZB-1P", "zb-h1"), ("ZB1P", "zb-h1"), ("zb_2p", "zb-h2")]
    + [
        ("Looped BFS", "breadth-first"),
        ("AFAB", "gpipe"),
        ("1F1B-I", "interleaved"),
        ("Interleaved 1F1B", "interleaved"),
    ],
)
def test_schedules_are_known_by_many_names(text, schedule):
    """In the column or in the notes, with a V's two chunks where the row has no other number."""
    for row in ({"schedule": text}, {"notes": f"schedule={text}"}):
        run = read_run({**LLAMA, **row})
        assert run.schedule == schedule
        assert not any("schedule=" in sentence for sentence in run.assumed)
        if schedule in V_SHAPED:
            assert run.groups.shape == (4, 2)


def test_a_v_holds_both_ends_on_its_first_rank():
    """Its layers are those of the model in order, down the ranks and back: 30 leave one less at each end."""
    run = read_run({**LLAMA, "n_layers": "30", "schedule": "zb-v"})
    assert run.groups.tolist() == [[3, 3], [4, 4], [4, 4], [4, 4]]
    assert run.placement.rank.tolist() == [0, 1, 2, 3, 3, 2, 1, 0]
    with pytest.raises(InvalidRunError, match="zb-v needs ranks >= 2, two chunks a rank"):
        read_run({**LLAMA, "schedule": "zb-v", "vpp": "4"})


def test_groups_share_states():
    """A named group holds; a hybrid's is the fewest nodes that leave two thirds of the memory free."""
    row = {**LLAMA, "tp": "1", "pp": "1"}
    assert read_run({**row, "notes": "zero1 group=8"}).layout["dp_shard"] == 8
    hybrid = read_run({**row, "zero_or_fsdp": "hsdp"}).layout
    assert (hybrid["dp_shard"], hybrid["dp_replicate"]) == (8, 8)
    large = read_run({**row, "model": "llama3-70b", "n_gpus": "128", "zero_or_fsdp": "hsdp"}).layout
    assert large["dp_shard"] > 8


def test_unknown_sharding_is_the_frameworks():
    """A sharding that nobody knows is the framework's usual one, and told."""
    run = read_run({**LLAMA, "zero_or_fsdp": "9"})
    assert any("'9' is not known" in sentence for sentence in run.assumed)


def test_four_bit_products_are_faster_where_there_are_any():
    """On Blackwell fp4 products run at 1.48 times the rate of fp8; elsewhere there are none."""
    for gpu in ("B200", "GB200", "GB300"):
        eight, four = (read_run({**LLAMA, "gpu": gpu, "precision": text}).profile for text in ("fp8", "nvfp4"))
        assert four.gemm["fp8"].peak_fraction == pytest.approx(1.48 * eight.gemm["fp8"].peak_fraction)
    with pytest.raises(UnsupportedRunError, match="fp4"):
        read_run({**LLAMA, "precision": "nvfp4"})


def test_fp8_products_have_the_rate_of_their_scaling():
    """One scale a tensor is fastest; one for 32 elements takes 0.93 of that rate, one a row 0.8; bf16 has one rate."""
    whole, blocks, rows = (
        read_run({**LLAMA, "gpu": "B200", "precision": text}).profile.gemm
        for text in ("fp8-cs", "mxfp8", "fp8-rowwise")
    )
    assert blocks["fp8"].peak_fraction == pytest.approx(0.93 * whole["fp8"].peak_fraction)
    assert rows["fp8"].peak_fraction == pytest.approx(0.8 * whole["fp8"].peak_fraction)
    assert whole["bf16"] == blocks["bf16"] == rows["bf16"]


def test_experts_are_dealt_over_a_stage():
    """Expert degrees come from the row; an inner one that is not named is the tensor-parallel one, as in Megatron."""
    assert (read_run(MIXTRAL).layout["ep"], read_run(MIXTRAL).layout["etp"]) == (8, 1)
    inner = read_run({**MIXTRAL, "tp": "2", "ep": "4"})
    assert (inner.layout["ep"], inner.layout["etp"]) == (4, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_gpus": ""}, "n_gpus is missing"),
        ({"n_gpus": "63"}, "tp.pp.cp must divide n_gpus"),
        ({"global_batch_seqs": "100"}, "must divide global_batch_seqs"),
        ({"tp": "64", "pp": "1"}, "tp must divide heads"),
        ({"stage_layers": "1,2,3,4"}, "add up to 32"),
        ({"vpp": "2", "schedule": "zb-1p"}, "zb-h1 needs"),
    ],
)
def test_contradictions_are_invalid(changes, words):
    """A wrong cell names its column and what is allowed."""
    with pytest.raises(InvalidRunError, match=words):
        read_run({**LLAMA, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"notes": "task=lora"}, "task"), ({"offload": "activations"}, "offload"), ({"precision": "int4"}, "precision")],
)
def test_other_kinds_of_runs_are_unsupported(changes, words):
    """What no cost model describes is told from mistakes."""
    with pytest.raises(UnsupportedRunError, match=words):
        read_run({**LLAMA, **changes})


def test_old_recipes_do_not_shard_the_sequence():
    """Without a cell of its own the recipe says whether norms are sharded."""
    assert read_run(GPT).layout["sequence_parallel"] == 0
    assert read_run({**GPT, "sp": "1"}).layout["sequence_parallel"] == 1


def test_leading_layers_go_with_the_embedding():
    """DeepSeek's three dense layers are the embedding's; the chunks hold the others."""
    row = {"model": "deepseek-v3", "gpu": "H100", "n_gpus": "128", "pp": "4", "ep": "32", "global_batch_seqs": "64"}
    run = read_run({**row, "stage_layers": "15,15,15,16"})
    assert run.groups.sum() == 58
    assert run.groups[0, 0] == 12


def test_a_noted_local_batch_is_cut_into_a_part_for_every_stage():
    """The micro-batch is settled by the local batch in the notes, and nothing faster is tried."""
    run = read_run({**LLAMA, "micro_batch": "", "notes": "local batch 16"})
    assert run.layout["micro_batch_size"] == 16 // 4
    assert "micro_batch=4 (a part for every stage)" in run.assumed


@pytest.mark.parametrize(
    ("cells", "heads", "ring"),
    [
        ({}, 1, 1),
        ({"cp_type": "ring"}, 1, 1),
        ({"cp_type": "all_gather"}, 1, 0),
        ({"cp_type": "Ulysses"}, 2, 0),
        ({"notes": "cp_comm_type=a2a"}, 2, 0),
    ],
)
def test_how_the_context_is_split_is_read(cells, heads, ring):
    """By its own column or Megatron's flag in the notes; without a word it is a ring."""
    layout = read_run({**LLAMA, "cp": "2", **cells}).layout
    assert (layout["cp_heads"], layout["cp_ring"]) == (heads, ring)


def test_an_unknown_way_to_split_the_context_is_told():
    """With what is known."""
    with pytest.raises(UnsupportedRunError, match="cp_type must be one of all_gather, ring, ulysses, got striped"):
        read_run({**LLAMA, "cp": "2", "cp_type": "striped"})

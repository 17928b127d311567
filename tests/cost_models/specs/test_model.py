"""Models of every kind: what contradicts itself is refused, and layers repeat as their pattern says."""

from typing import Any

import pytest
from hypothesis import given

from cost_models.specs.catalog import load_model, names
from cost_models.specs.errors import SpecError
from cost_models.specs.layer_pattern import LayerKind
from cost_models.specs.model import ModelSpec
from tests.strategies import any_model_specs

FULL, DENSE_WINDOW = LayerKind(0, False), LayerKind(1024, False)
MOE = {"experts": 8, "top_k": 2, "expert_ffn": 64}
MLA = {"query_rank": 32, "kv_rank": 16, "nope_head_dim": 16, "rope_head_dim": 8, "value_head_dim": 16}


def model(**changes: Any) -> ModelSpec:
    """Return a small dense model with some fields changed."""
    sizes = {"layers": 6, "hidden": 64, "ffn": 256, "heads": 4, "kv_heads": 4, "head_dim": 24, "vocab": 100}
    return ModelSpec(**{"name": "tiny", "max_seq_len": 128, **sizes, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moe": MOE | {"top_k": 9}}, "model.moe.top_k must be <= experts (8), got 9"),
        ({"moe": MOE | {"experts": 0}}, "model.moe.experts must be >= 1, got 0"),
        ({"moe": MOE | {"shraed_ffn": 8}}, "unknown field 'shraed_ffn' in model.moe; did you mean 'shared_ffn'?"),
        ({"moe": MOE | {"shared_experts": 2}}, "model.moe.shared_ffn must be > 0 with shared_experts 2, got 0"),
        ({"moe": MOE | {"shared_ffn": 8}}, "model.moe.shared_ffn must be 0 without shared experts, got 8"),
        (
            {"moe": MOE | {"shared_expert_gate": True}},
            "model.moe.shared_expert_gate must be false without shared experts, got True",
        ),
        (
            {"moe": MOE | {"leading_dense_layers": 6}},
            "model.layers must be >= the first with experts (leading_dense_layers 6 + layer_step 1), got 6",
        ),
        ({"mla": MLA, "kv_heads": 2}, "model.kv_heads must be heads (4) with mla, got 2"),
        (
            {"mla": MLA, "head_dim": 16},
            "model.head_dim must be nope_head_dim + rope_head_dim (24) with mla, got 16",
        ),
        (
            {"mla": MLA, "qk_norm": "head"},
            "model.qkv_bias and qk_norm must be off with mla, which norms its latents",
        ),
        ({"mla": MLA | {"rope_head_dim": 7}}, "model.mla.rope_head_dim must be even, got 7"),
        ({"shared_norm": True}, "model.shared_norm must be false without parallel_block, got True"),
        (
            {"parallel_block": True, "norm_placement": "both"},
            "model.norm_placement must be 'before' in a parallel block, got 'both'",
        ),
        ({"full_attention_step": 2}, "model.full_attention_step must be 0 without sliding_window, got 2"),
        (
            {"sliding_window": 64, "full_attention_step": 1},
            "model.full_attention_step must be 0 or >= 2, got 1",
        ),
        (
            {"window_kind": "chunked"},
            "model.window_kind must be 'sliding' without sliding_window, got 'chunked'",
        ),
        ({"position_offset": 2}, "model.position_offset must be 0 without learned positions, got 2"),
        ({"positions": "cosine"}, "model.positions must be one of 'rope', 'learned', 'alibi' or 'none', got 'cosine'"),
        ({"mtp_layers": -1}, "model.mtp_layers must be >= 0, got -1"),
    ],
)
def test_contradictions_are_refused_with_the_field_and_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    """One plain line names the field, nested ones by their path."""
    with pytest.raises(SpecError) as caught:
        model(**changes)
    assert str(caught.value) == message


@given(any_model_specs())
def test_the_pattern_says_the_same_as_the_list_of_kinds(drawn: ModelSpec) -> None:
    """leading + period * repeats + trailing is the list, no shorter period does, and the trailing part is a piece."""
    leading, period, repeats, trailing = drawn.layer_pattern
    assert drawn.layer_pattern.kinds == drawn.layer_kinds == leading + period * repeats + trailing
    assert len(drawn.layer_kinds) == drawn.layers
    assert repeats >= 1
    assert trailing == period[: len(trailing)]
    assert len(trailing) < len(period)
    assert len(leading) == (drawn.moe.leading_dense_layers if drawn.moe else 0)
    rest = drawn.layer_kinds[len(leading) :]
    for shorter in range(1, len(period)):
        assert any(rest[index] != rest[index % shorter] for index in range(len(rest)))
    assert drawn.moe_layers == sum(kind.moe for kind in drawn.layer_kinds)


@given(any_model_specs())
def test_the_step_th_layer_is_the_first_of_its_kind(drawn: ModelSpec) -> None:
    """Full attention and experts come in the step-th layer, counted from one, experts after the leading dense ones."""
    for number, kind in enumerate(drawn.layer_kinds, start=1):
        if drawn.moe:
            after = number - drawn.moe.leading_dense_layers
            assert kind.moe == (after > 0 and after % drawn.moe.layer_step == 0)
        full = bool(drawn.full_attention_step) and number % drawn.full_attention_step == 0
        assert kind.window == (0 if full else drawn.sliding_window)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("llama3-8b", (0, 1, 32, 0)),
        ("mistral-7b", (0, 1, 32, 0)),
        ("gemma2-9b", (0, 2, 21, 0)),
        ("gemma3-4b", (0, 6, 5, 4)),
        ("gemma3-27b", (0, 6, 10, 2)),
        ("gpt-oss-120b", (0, 2, 18, 0)),
        ("llama4-scout-17b-16e", (0, 4, 12, 0)),
        ("llama4-maverick-17b-128e", (0, 4, 12, 0)),
        ("olmo3-7b", (0, 4, 8, 0)),
        ("deepseek-v3", (3, 1, 58, 0)),
        ("kimi-k2", (1, 1, 60, 0)),
    ],
)
def test_the_patterns_of_known_models(name: str, shape: tuple[int, int, int, int]) -> None:
    """Lengths of leading, period and trailing, and the repeats."""
    leading, period, repeats, trailing = load_model(name).layer_pattern
    assert (len(leading), len(period), repeats, len(trailing)) == shape


def test_the_kinds_of_windowed_and_mixed_models() -> None:
    """Gemma 3 has five windows to a full layer; Maverick experts in every other layer, none of them in its first."""
    assert load_model("gemma3-4b").layer_pattern.period == (DENSE_WINDOW,) * 5 + (FULL,)
    chunk = 8192
    assert load_model("llama4-maverick").layer_pattern.period == (
        LayerKind(chunk, False),
        LayerKind(chunk, True),
        LayerKind(chunk, False),
        LayerKind(0, True),
    )
    assert load_model("mistral-7b").layer_pattern.period == (LayerKind(4096, False),)
    assert load_model("deepseek-v3").mtp_kind == LayerKind(0, True)


@pytest.mark.parametrize("name", names("models"))
def test_positions_have_rows_only_where_they_are_learned(name: str) -> None:
    """OPT's table has two rows more than its context."""
    spec = load_model(name)
    expected = {"gpt2": 1024, "opt-175b": 2050, "gpt3-175b": 2048, "megatron-530b": 2048, "megatron-1t": 2048}
    assert spec.position_rows == expected.get(name, 0)

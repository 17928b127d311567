"""The share of a plan's time that rests on measurements."""

import pytest

from planner.request import build_request
from planner.search import plan


def share(model: str, gpu: str) -> float:
    """Of a small job."""
    return plan(build_request(model, 8, gpu=gpu, global_batch=32, seq_len="4k")).predicted.measured_share


def test_the_share_is_that_of_what_was_measured() -> None:
    """All passes are measured on an A100, the forward only on an H100, nothing on a GPU whose profile is scaled."""
    a100, h100, scaled = (share("llama3-8b", gpu) for gpu in ("a100-80-sxm", "h100-sxm", "mi300x"))
    assert 0.8 < a100 <= 1
    assert 0.2 < h100 < a100
    assert scaled == 0


def test_without_tables_nothing_is_measured() -> None:
    """The constants of a profile are told as such."""
    request = build_request("llama3-8b", 8, gpu="h100-sxm", global_batch=32, seq_len="4k")
    bare = request.replaced(profile=request.profile.replaced(tables=None))
    assert plan(bare).predicted.measured_share == 0


@pytest.mark.parametrize("told", ["tables", "constants"])
def test_the_assumptions_say_what_seconds_rest_on(told: str) -> None:
    """Tables with their own sources where there are some, constants in roofline form elsewhere."""
    gpu = "h100-sxm" if told == "tables" else "mi300x"
    sentences = plan(build_request("llama3-8b", 8, gpu=gpu, global_batch=32, seq_len="4k")).assumptions
    assert any("Seconds rest on" in sentence and told in sentence for sentence in sentences)

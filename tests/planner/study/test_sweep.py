"""`--sweep KEY=VALUES`: what is read, and what is refused with a message that names the key, the value and the form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import RequestError
from planner.request import build_request
from planner.study.run import what_if
from planner.study.sweep import KEYS, MOST_VALUES, Axis, axes_of, axis, count, scenarios


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("gpus=64,128,256", "gpus", ("64", "128", "256")),
        ("--gpus= 64 , 128", "gpus", ("64", "128")),
        ("gpus=64,64,128", "gpus", ("64", "128")),
        ("seq_len=8k..128k:x2", "seq-len", ("8192", "16384", "32768", "65536", "131072")),
        ("seq-len=8k..20k:+4k,64k", "seq-len", ("8192", "12288", "16384", "20480", "64k")),
        ("nodes=1..10:x3", "nodes", ("1", "3", "9")),
        ("gpus=64..65:+8", "gpus", ("64",)),
        ("mem=40GB..80GB:+20GB", "mem", ("40000000000B", "60000000000B", "80000000000B")),
        ("gap=0.001..0.004:x2", "gap", ("0.001", "0.002", "0.004")),
        ("workload.expert_imbalance=1,1.25", "workload.expert_imbalance", ("1", "1.25")),
        ("cluster=./a..b/one.toml,dgx-h100", "cluster", ("./a..b/one.toml", "dgx-h100")),
        ("schedule=1f1b+interleaved,gpipe", "schedule", ("1f1b+interleaved", "gpipe")),
    ],
)
def test_what_is_read(text: str, key: str, values: tuple[str, ...]) -> None:
    """Lists, ranges that double or add, in any unit of planning, each value once and in order."""
    assert axes_of([text]) == (Axis(key, values),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpus", "--sweep must be KEY=VALUES such as gpus=64,128"),
        ("gpus=", "--sweep gpus must have values with commas between, got ''"),
        ("gpus=64,,128", "--sweep gpus must have values with commas between"),
        ("gpu_s=64", "got 'gpu_s'; did you mean 'gpus'?"),
        ("modle.layers=4", "or a field such as workload.expert_imbalance, got 'modle.layers'"),
        ("seq-len=128k..8k:x2", "must have ranges that ascend, got '128k..8k:x2'; did you mean 8k..128k:x2?"),
        ("gpus=8..64", "without a step nothing is between its ends"),
        ("gpus=8..64:x1", "the step must lead upwards"),
        ("gpus=8..64:+0", "the step must lead upwards"),
        ("gpus=8..64:2", "such as 8k..128k:x2 or 64..256:+64, got '8..64:2'"),
        ("gpus=a..b:x2", "such as 8k..128k:x2 or 64..256:+64, got 'a..b:x2'"),
        ("gpus=1..inf:x2", "such as 8k..128k:x2 or 64..256:+64, got '1..inf:x2'"),
        ("mem=1..2Gb:x2", "--sweep mem must be in bytes, got '2Gb', which is bits"),
        ("gpus=1..1000000:+1", f"--sweep gpus must have at most {MOST_VALUES:,} values"),
    ],
)
def test_what_is_refused(text: str, told: str) -> None:
    """Empty, descending, unknown and endless sweeps, each with what is allowed."""
    with pytest.raises(RequestError) as error:
        axes_of([text])
    assert told in str(error.value)


def test_a_key_is_given_once() -> None:
    """Two sweeps of one key are one sweep that was torn apart."""
    with pytest.raises(RequestError, match="--sweep gpus is given twice"):
        axes_of(["gpus=64", "--gpus=128"])


def test_a_million_scenarios_are_not_planned_unasked() -> None:
    """They are counted before any is made: how many, about how long, and the way to ask for them."""
    axes = [axis("gpus", range(1, 1001)), axis("seq-len", range(1024, 1024 * 1001, 1024))]
    assert count(axes) == 1_000_000
    with pytest.raises(RequestError, match=r"makes 1,000,000 scenarios, about [0-9.,]+ hours.*give --yes to run more"):
        what_if({"model": "llama3-8b", "gpu": "h100-sxm"}, axes)


def test_a_study_needs_a_sweep_and_a_model() -> None:
    """Each of the two is named where it is missing."""
    with pytest.raises(RequestError, match="--sweep is missing"):
        what_if({"model": "llama3-8b", "gpus": 8, "mem": "80GB"}, [])
    with pytest.raises(RequestError, match=r"the model is missing.*--sweep model=A,B"):
        what_if({"model": None, "mem": "80GB"}, [axis("gpus", [8])])


@given(low=st.integers(1, 1000), high=st.integers(1, 5000), step=st.integers(2, 9), sign=st.sampled_from("x+"))
def test_a_range_is_what_its_step_makes(low: int, high: int, step: int, sign: str) -> None:
    """From the lower end by the step, as far as the upper end, and not beyond it."""
    low, high = min(low, high), max(low, high)
    expected, value = [], low
    while value <= high:
        expected.append(str(value))
        value = value * step if sign == "x" else value + step
    if len(expected) <= MOST_VALUES:
        assert axis("global-batch", f"{low}..{high}:{sign}{step}").values == tuple(expected)


def test_scenarios_are_every_value_with_every_other() -> None:
    """In order, the last axis fastest; overrides are added to those that all scenarios share."""
    axes = axes_of(["gpus=8,16", "schedule=1f1b+gpipe", "model.layers=4,8"])
    made = list(scenarios(axes, {"model": "llama3-8b", "overrides": ("model.vocab=512",)}))
    assert [tuple(inputs.values()) for inputs, _ in made] == [
        (gpus, "1f1b+gpipe", layers) for gpus in ("8", "16") for layers in ("4", "8")
    ]
    _, last = made[-1]
    assert last["gpus"] == "16"
    assert last["schedule"] == "1f1b,gpipe"
    assert last["overrides"] == ("model.vocab=512", "model.layers=8")


def test_every_input_of_planning_can_be_swept() -> None:
    """The keys are the keywords of a request; a new one must be taken in."""
    from inspect import signature

    assert set(KEYS.values()) | {"overrides"} == set(signature(build_request).parameters)

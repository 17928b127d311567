"""Planning from Python: what the docstrings show, typed specs, and a package that loads nothing by itself."""

import doctest
import importlib
import subprocess
import sys

import pytest

import planner
from cost_models.specs import catalog
from cost_models.specs.errors import SpecError
from planner.document import dumps
from planner.errors import RequestError
from planner.request import build_request
from planner.search import plan as searched


@pytest.mark.parametrize("name", ["planner.interface", "planner", "cost_models.specs.units"])
def test_examples_hold(name: str) -> None:
    """Every example of a docstring gives the output that is printed below it."""
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_specs_are_as_good_as_their_names() -> None:
    """A model, a cluster and a recipe as typed specs make the request, and the plan, of their names."""
    model, cluster, recipe = (
        catalog.load_model("llama3.2-1b"),
        catalog.load_cluster("dgx-h100", 2),
        catalog.load_recipe("megatron"),
    )
    named = {"seq_len": "2k", "global_batch": 16, "recipe": "megatron"}
    by_name = planner.plan("llama3.2-1b", 2, cluster="dgx-h100", **named)
    by_spec = planner.plan(model, cluster=cluster, seq_len=2048, global_batch=16, recipe=recipe)
    assert dumps(by_spec) == dumps(by_name)
    assert by_name == searched(build_request("llama3.2-1b", 2, cluster="dgx-h100", **named))
    assert build_request(model, 3, cluster=cluster).cluster.gpus == 3


def test_a_changed_spec_is_planned_as_it_is() -> None:
    """Nothing is looked up again by its name."""
    small = catalog.load_model("llama3.2-1b").replaced(layers=4)
    found = planner.what_if(small, {"gpus": [1]}, gpu="h100-sxm", seq_len="2k", global_batch=8)
    document = found.document(0)
    assert document is not None
    assert document.model == small
    assert found.study.common["model"] == "llama3.2-1b"


def test_what_is_unknown_is_told() -> None:
    """An option that there is not, a key, a field of the assumptions, an attribute of the package."""
    with pytest.raises(RequestError, match=r"planning has no option 'seq_length'; did you mean 'seq_len'\?"):
        planner.plan("llama3-8b", 8, "80GB", seq_length=8192)
    with pytest.raises(RequestError, match="--sweep must name one of"):
        planner.what_if("llama3-8b", {"gpuz": [8]}, gpu="h100-sxm")
    with pytest.raises(SpecError, match="unknown field 'puh' in assume; did you mean 'pue'"):
        planner.what_if("llama3-8b", {"gpus": [8]}, gpu="h100-sxm", assume={"puh": 1.1})
    with pytest.raises(AttributeError, match="module 'planner' has no attribute 'plans'"):
        _ = planner.plans  # type: ignore[attr-defined]


def test_the_package_loads_what_is_asked_for() -> None:
    """Importing it loads none of its modules; the document neither the search nor numerical libraries."""
    for code in (
        "import sys, planner; assert not [name for name in sys.modules if name.startswith('planner.')]; planner.plan",
        "import sys, planner.document; assert not {'pandas', 'joblib', 'planner.search'} & set(sys.modules)",
        "import sys, planner.interface; assert not {'pandas', 'joblib', 'pulp'} & set(sys.modules)",
    ):
        subprocess.run([sys.executable, "-c", code], check=True)

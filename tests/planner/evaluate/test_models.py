"""Models of rows: from the catalog, by relation, from sizes."""

import pytest

from cost_models.specs.catalog import load_model
from cost_models.specs.parameters import parameters
from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError, UnsupportedRunError
from planner.evaluate.models import model_of


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("LLAMA3.1-405B", "llama3.1-405b"),
        ("DeepSeekV3", "deepseek-v3"),
        ("Llama4-Maverick-400B", "llama4-maverick-17b-128e"),
    ],
)
def test_names_are_read_loosely(name, entry):
    """Case, separators and a size of another convention do not matter."""
    assert model_of(Cells({"model": name}), 4096).replaced(name=entry) == load_model(entry)


def test_truncated_models_keep_their_architecture():
    """Sizes of the row change the catalog's model; layers that predict ahead go with a truncation."""
    row = {"model": "deepseekv3-L4", "n_layers": "4", "n_experts": "160", "notes": "dense_layers=1"}
    model = model_of(Cells(row), 4096)
    assert (model.layers, model.mtp_layers) == (4, 0)
    assert model.moe is not None
    assert (model.moe.experts, model.moe.leading_dense_layers) == (160, 1)
    assert model.mla == load_model("deepseek-v3").mla


@pytest.mark.parametrize(
    ("billions", "gated", "tied"), [("1.14", True, True), ("0.87", False, True), ("1.20", True, False)]
)
def test_parameters_tell_gated_and_tied(billions, gated, tied):
    """Of an unknown family the printed parameter count tells two matrices from three, and a tied embedding."""
    row = {"model": "mine", "n_layers": "16", "hidden": "2048", "ffn": "8192", "heads": "32", "vocab": "32000"}
    model = model_of(Cells(row | {"params_b": billions}), 4096)
    assert (model.gated_mlp, model.tie_embeddings) == (gated, tied)


def test_layers_come_from_the_parameter_count():
    """Without n_layers the model gets as many as its parameters ask for, and says so."""
    cells = Cells({"model": "BLOOM-proto-200B", "hidden": "14400", "params_b": "200"})
    model = model_of(cells, 2048)
    assert parameters(model) == pytest.approx(200e9, rel=0.01)
    assert any("from params_b" in sentence for sentence in cells.assumed)


def test_layers_divide_into_the_pipeline():
    """A depth from a rounded size is the nearest that divides into the stages; a few per cent off, no more."""
    row = {"model": "BLOOM-proto-191B", "hidden": "14400", "params_b": "191"}
    assert model_of(Cells(row | {"pp": "7"}), 2048).layers == 77
    assert model_of(Cells(row | {"pp": "64"}), 2048).layers == model_of(Cells(row), 2048).layers


def test_a_size_in_three_digits_is_another_depth():
    """At the width of a catalog's model a size that is clearly not its own asks for other layers; a rounded one not."""
    row = {"model": "BLOOM-proto-181B", "hidden": "14336"}
    assert model_of(Cells(row | {"params_b": "181"}), 2048).layers == 72
    assert model_of(Cells(row | {"params_b": "176"}), 2048).layers == load_model("bloom-176b").layers


@pytest.mark.parametrize("name", ["Nemotron-3-Nano", "BERT-large", "nobody knows"])
def test_what_no_cost_model_describes_is_unsupported(name):
    """Hybrids, encoders and names without sizes are told from mistakes."""
    with pytest.raises(UnsupportedRunError):
        model_of(Cells({"model": name}), 4096)


def test_contradicting_sizes_are_invalid():
    """Heads that do not divide the width, or experts of a dense model, name the column."""
    with pytest.raises(InvalidRunError, match="heads must divide hidden"):
        model_of(Cells({"model": "x", "hidden": "100", "heads": "3", "n_layers": "2"}), 2048)
    with pytest.raises(InvalidRunError, match="n_experts"):
        model_of(Cells({"model": "llama3-8b", "n_experts": "8"}), 2048)


@pytest.mark.parametrize(
    ("pp", "hidden", "billions", "vocab"),
    [("8", "4096", "6.2", 32_000), ("8", "2304", "1.5", 32_000), ("1", "2304", "1.5", 51_200)],
)
def test_vocabularies_agree_with_printed_parameters(pp, hidden, billions, vocab):
    """An open vocabulary is one that the count allows; with ends a layer short its head costs about a layer."""
    sizes = {
        "hidden": hidden,
        "ffn": str(4 * int(hidden)),
        "heads": "32",
        "n_layers": {"4096": "30", "2304": "22"}[hidden],
    }
    assert model_of(Cells({"model": "GPT", "params_b": billions, "pp": pp, **sizes}), 1024).vocab == vocab

"""Evaluation over columns: chunks and distinct rows give what one call gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Symbol

from cost_models import columns as columns_module
from cost_models.columns import distinct, evaluate, evaluate_distinct
from cost_models.lower import LoweringError, lower
from tests.cost_models.setting import MODELS, lowered, random_columns

x, y = Symbol("x"), Symbol("y")
PRODUCT = lower({"product": x * y, "one": x / x}, {})


def test_chunks_give_the_same_as_one_call(monkeypatch):
    """Any chunk size gives the values of a single call, to the bit."""
    function = lowered("llama", "megatron")[0]
    columns = random_columns(MODELS["llama"], 200, seed=1)
    whole = function(columns)
    for chunk_rows in (1, 7, 199, 200, 5000):
        monkeypatch.setattr(columns_module, "CHUNK_ROWS", chunk_rows)
        chunked = evaluate(function, columns, 200)
        for name, values in chunked.items():
            np.testing.assert_array_equal(values, np.broadcast_to(whole[name], 200), err_msg=name)


@given(st.integers(0, 60), st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_distinct_rows_give_the_same(rows, few_x, few_y, random):
    """Computing once per distinct row and gathering back gives what computing every row gives."""
    columns = {
        "x": np.array([random.randint(1, few_x) for _ in range(rows)], dtype=np.int64),
        "y": np.array([random.randint(1, few_y) for _ in range(rows)], dtype=np.int64),
    }
    once = evaluate_distinct(PRODUCT, columns, rows, {})
    for name, values in evaluate(PRODUCT, columns, rows).items():
        np.testing.assert_array_equal(once[name], values)


def test_distinct_rows_are_computed_once():
    """The function sees each distinct row once, whatever is constant stays out of the comparison."""
    seen = []

    def record(value):
        seen.append(np.size(value))
        return value

    from sympy import Function

    function = lower({"a": Function("f")(x) * y}, {"f": record})
    values = evaluate_distinct(function, {"x": np.tile([1.0, 2.0, 3.0], 100)}, 300, {"y": 2.0})
    assert values["a"].tolist() == [2.0, 4.0, 6.0] * 100
    assert seen == [3]


def test_rows_without_columns_of_their_own():
    """When every input is a constant each row gets the same value."""
    assert evaluate_distinct(PRODUCT, {}, 4, {"x": 2.0, "y": 3.0})["product"].tolist() == [6.0] * 4


def test_integers_do_not_overflow():
    """Integer columns are floats before they are multiplied."""
    large = np.array([2**40])
    assert evaluate(PRODUCT, {"x": large, "y": large}, 1)["product"][0] == 2.0**80


def test_scalars_are_broadcast():
    """A scalar column holds for every row."""
    values = evaluate(PRODUCT, {"x": np.arange(1.0, 4.0), "y": 2}, 3)
    assert values["product"].tolist() == [2, 4, 6]
    assert values["one"].tolist() == [1, 1, 1]


def test_a_missing_column_is_an_error():
    """Columns that the function reads must be there."""
    with pytest.raises(LoweringError, match=r"\['y'\] are missing"):
        evaluate(PRODUCT, {"x": np.ones(2)}, 2)


@pytest.mark.parametrize("span", [2, 1000, 10**12])
def test_distinct_rows_are_the_first_of_their_kind(span):
    """Sets of equal rows are in the order of their values, each with its first row, whatever the values span."""
    generator = np.random.default_rng(span)
    whole, broken = generator.integers(-span, span, 50), generator.integers(0, 2, 50) / 4
    first, index = distinct(("whole", "absent", "broken"), {"whole": whole, "broken": broken}, 50)
    pairs = list(zip(whole.tolist(), broken.tolist(), strict=True))
    assert [pairs[row] for row in first] == sorted(set(pairs))
    assert [pairs[first[which]] for which in index] == pairs
    assert first.tolist() == [pairs.index(pair) for pair in sorted(set(pairs))]

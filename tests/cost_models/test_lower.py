"""Lowering: values, sharing, and what it refuses."""

import numpy as np
import pytest
import sympy
from sympy import Symbol

from cost_models.lower import LoweringError, lower, parted
from cost_models.operators import at_least, ceiling, elementwise_s, maximum
from tests.cost_models.setting import MODELS, lowered, random_columns, row

x, y = Symbol("x", positive=True), Symbol("y", nonnegative=True)


def test_choosing_operators():
    """The built-in operators choose and round as numpy does, elementwise."""
    function = lower({"larger": maximum(x, y), "where": at_least(x, y), "up": ceiling(x / y)}, {})
    values = function({"x": np.array([1.0, 2.0, 5.0]), "y": np.array([2.0, 2.0, 2.0])})
    assert values["larger"].tolist() == [2, 2, 5]
    assert values["where"].tolist() == [0, 1, 1]
    assert values["up"].tolist() == [1, 1, 3]


def test_shared_parts_are_computed_once():
    """An operator that several outputs apply to the same size is called once."""
    calls = []

    def counted(traffic):
        calls.append(traffic)
        return traffic

    function = lower({"a": elementwise_s(x * y) + x, "b": 2 * elementwise_s(x * y)}, {"elementwise_s": counted})
    assert function({"x": 3.0, "y": 5.0}) == {"a": 18.0, "b": 30.0}
    assert calls == [15.0]
    assert function.inputs == ("x", "y")
    assert function.outputs == ("a", "b")
    assert function.operations > 0


@pytest.mark.parametrize("model_name", MODELS)
def test_arrays_equal_scalars(model_name):
    """A row of an array evaluation is what the same row gives as plain floats, to the bit."""
    columns = random_columns(MODELS[model_name], 50, seed=1)
    micro_batch, exchange, whole = lowered(model_name, "megatron")
    arrays = micro_batch(columns) | exchange(columns)
    arrays |= whole({**columns, **arrays})
    for index in range(50):
        one = row(columns, index)
        scalars = micro_batch(one) | exchange(one)
        scalars |= whole({**one, **scalars})
        for name, value in scalars.items():
            assert value == np.broadcast_to(arrays[name], 50)[index], name


def test_a_flag_of_zero_is_not_folded_away():
    """Every symbol that may be zero keeps its place in an expression."""
    from cost_models.symbols import HELD, MEANINGS, RECOMPUTE_FLAGS

    for flag in (*RECOMPUTE_FLAGS.values(), *HELD.values()):
        assert flag.is_nonnegative
        assert flag.is_positive is None
        assert MEANINGS[flag.name].text


def test_unbound_operators_are_named():
    """An operator without a body is an error that names it and what is bound."""
    with pytest.raises(LoweringError, match="elementwise_s is not bound; bound are .*at_least"):
        lower({"a": elementwise_s(x)}, {})


@pytest.mark.parametrize(
    "expression", [sympy.Max(x, y), sympy.Piecewise((x, x > y), (y, True)), sympy.sqrt(x), sympy.log(x)]
)
def test_what_is_not_elementwise_is_refused(expression):
    """Functions of sympy that Python would not apply elementwise are errors when lowered, not when called."""
    with pytest.raises(LoweringError, match="sums, products, whole powers and operators, got"):
        lower({"a": expression}, {})


def test_missing_columns_are_named():
    """A call without a column names it and what is read."""
    with pytest.raises(LoweringError, match=r"columns \['y'\] are missing; the expression reads \['x', 'y'\]"):
        lower({"a": x + y}, {})({"x": 1.0})


def test_two_steps_give_what_one_gives():
    """What is cut into an early and a late step computes the same, and the late step alone reads what is late."""
    outputs = {"sum": x * (y + 2) + y * x**2 + 3, "chosen": 2 * maximum(x * y - x, x) + y, "early": x**2, "late": y}
    early, late = parted(outputs, ["y"])
    assert not any(y in expression.free_symbols for expression in early.values())
    assert not any(x in expression.free_symbols for expression in late.values())
    columns = {"x": np.array([1.0, 2.0, 5.0]), "y": np.array([3.0, 0.0, 0.5])}
    whole, first = lower(outputs, {})(columns), lower(early, {})(columns)
    for name, values in lower(late, {})({**columns, **first}).items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-12, err_msg=name)

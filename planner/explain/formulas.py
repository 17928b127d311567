"""Cost expressions as people read them: once with the symbols, once with the numbers put in.

Before an expression is written, what is no longer a question is put in: flags, whatever is zero, degrees of one, and
which side of a condition holds. What is left is what the plan's number is made of.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy
from sympy.core.function import AppliedUndef

from cost_models.operators import at_least, maximum
from cost_models.specs.units import format_bytes
from cost_models.symbols import MEANINGS, PARTS
from cost_models.vocabulary import ELEMENTWISE_KINDS, elementwise_name
from planner.report.quantities import duration

__all__ = [
    "COLLECTIVES",
    "ELEMENTWISE",
    "Formula",
    "Meaning",
    "constant",
    "formula",
    "legend",
    "named",
    "reduced",
    "unit_of",
    "values_of",
    "written",
]

Expr = Any
Values = Mapping[str, float]

SUM, PRODUCT, POWER = range(3)
# Numbers from here on are written with an exponent, sizes as KiB or more.
LARGE, LARGE_BYTES = 1e6, 1024**2
# Of these, one is not worth a factor: flags, degrees, ratios.
NEUTRAL_ONES = ("0 or 1", "ranks", "chunks", "1")
COLLECTIVES = ("all_gather_s", "reduce_scatter_s", "all_reduce_s", "all_to_all_s", "expert_exchange_s")
ELEMENTWISE = tuple(map(elementwise_name, ELEMENTWISE_KINDS))
HIDING = ("exposed_s", "exposed_beside_copies_s")
# Functions of an amount of bytes, their first argument.
OF_BYTES = (*COLLECTIVES, *ELEMENTWISE, "from_host_s", "to_host_s", "host_step_s")
# The operators that choose or round, as `lower` binds them.
CHOOSING: Mapping[str, Any] = {
    "at_least": np.greater_equal,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "ceiling": np.ceil,
}
FUNCTIONS = {"maximum": "max", "minimum": "min", "ceiling": "ceil"}


@dataclass(frozen=True)
class Formula:
    """`name` = `expression` = `numbers` = `value`, the last in SI units (`unit` is bytes, s, elements or flops)."""

    name: str
    expression: str
    numbers: str
    value: float
    unit: str


@dataclass(frozen=True)
class Meaning:
    """A symbol that formulas name: what it stands for and its value."""

    symbol: str
    meaning: str
    unit: str
    value: float


def formula(name: str, expression: Expr, values: Values, value: float, unit: str = "bytes") -> Formula:
    """The expression written out. `values` has a number for each of its symbols, `value` is what it comes to."""
    read = tuple((symbol.name, values[symbol.name]) for symbol in sympy.sympify(expression).free_symbols)
    return Formula(name, *_texts(expression, read, unit == "bytes"), value, unit)


@lru_cache(maxsize=4096)
def _texts(expression: Expr, read: tuple[tuple[str, float], ...], in_bytes: bool) -> tuple[str, str]:
    """The expression with its symbols and with their values; stages of one plan share most of them."""
    values = dict(read)
    plain = sympy.factor_terms(reduced(expression, values))
    return (
        _formula_text(plain, lambda symbol: str(symbol.name), in_bytes),
        _formula_text(plain, lambda symbol: written(values[symbol.name], unit_of(symbol.name)), in_bytes),
    )


def constant(name: str, value: float, unit: str = "bytes") -> Formula:
    """A number that nothing else makes up."""
    return Formula(name, written(value, unit), "", value, unit)


def named(formulas: Iterable[Formula]) -> set[str]:
    """The symbols that some formulas name."""
    text = " ".join(each.expression for each in formulas)
    return set("".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split())


def legend(formulas: Iterable[Formula], values: Values) -> tuple[Meaning, ...]:
    """The symbols that some formulas name, with their meaning and value, in the order of `symbols`."""
    words = named(formulas)
    return tuple(
        Meaning(name, text.text, text.unit, values[name])
        for name, text in MEANINGS.items()
        if name in words and name in values
    )


def unit_of(symbol: str) -> str:
    """Unit of a symbol of the cost expressions; of a total that one formula hands to another, bytes."""
    return MEANINGS[symbol].unit if symbol in MEANINGS else "bytes"


def values_of(expressions: Mapping[str, Expr], values: Values, functions: Mapping[str, Any]) -> Values:
    """The value of each expression, float by name, with operators bound to `functions`.

    For one row: walking an expression takes less than lowering it.
    """
    known = {**CHOOSING, **functions}
    return {name: _evaluated(sympy.sympify(each), values, known) for name, each in expressions.items()}


def _evaluated(node: Expr, values: Values, functions: Mapping[str, Any]) -> float:
    if node.is_Symbol:
        return values[node.name]
    if node.is_Number:
        return float(node)
    arguments = [_evaluated(argument, values, functions) for argument in node.args]
    if node.is_Add:
        return math.fsum(arguments)
    if node.is_Mul:
        return math.prod(arguments)
    if node.is_Pow:
        return float(arguments[0] ** arguments[1])
    # Operators are written for columns.
    return float(np.ravel(functions[node.func.__name__](*(np.array([each]) for each in arguments)))[0])


def reduced(expression: Expr, values: Values) -> Expr:
    """The expression with flags, zeros, degrees of one and settled conditions put in."""
    expression = sympy.sympify(expression)
    conditions = list(expression.atoms(at_least))
    if conditions:
        settled = values_of({str(index): each for index, each in enumerate(conditions)}, values, {})
        known = {each: sympy.Integer(int(settled[str(index)])) for index, each in enumerate(conditions)}
        expression = expression.xreplace(known)
    settled_symbols = {
        symbol: sympy.Integer(int(values[symbol.name]))
        for symbol in expression.free_symbols
        if _is_settled(symbol.name, values[symbol.name])
    }
    expression = expression.xreplace(settled_symbols)
    expression = expression.xreplace(
        {each: sympy.Integer(0) for each in expression.atoms(sympy.Add) if _nil(each, values)}
    )
    return expression.replace(maximum, _larger).replace(_is_idle, lambda _: sympy.Integer(0))


def _is_idle(node: Expr) -> bool:
    """Whether a call has nothing to do: no bytes, one rank, nothing to hide."""
    name = node.func.__name__ if isinstance(node, AppliedUndef) else ""
    if name in COLLECTIVES:
        return bool(node.args[0] == 0 or node.args[-2] == 1)
    if name in HIDING:
        return all(argument == 0 for argument in node.args[1:])
    return name in OF_BYTES and bool(node.args[0] == 0)


def _nil(total: Expr, values: Values) -> bool:
    """Whether a sum of symbols comes to nothing, as where every live layer recomputes."""
    if total.atoms(AppliedUndef):
        return False
    return bool(total.xreplace({symbol: sympy.Float(values[symbol.name]) for symbol in total.free_symbols}) == 0)


def _larger(first: Expr, second: Expr) -> Expr:
    """The larger of two, without the call where one is zero and the other cannot be less."""
    if first == 0 and not _subtracts(second):
        return second
    if second == 0 and not _subtracts(first):
        return first
    return first if first == second else maximum(first, second)


def _subtracts(expression: Expr) -> bool:
    """Whether anything in it is taken away; all else is a product or sum of sizes."""
    sums = [expression, *(term for total in expression.atoms(sympy.Add) for term in total.args)]
    return any(term.as_coeff_Mul()[0] < 0 for term in sums)


def _is_settled(symbol: str, value: float) -> bool:
    return value == 0 or (value == 1 and unit_of(symbol) in NEUTRAL_ONES)


def _formula_text(expression: Expr, leaf: Callable[[Any], str], in_bytes: bool) -> str:
    """The text of an expression; where it is bytes, factors that turn a count into bytes say so."""
    terms = expression.as_ordered_terms() if expression.is_Add else [expression]
    texts = []
    for term in terms:
        if term.is_Number and in_bytes:
            texts.append(format_bytes(float(term)))
            continue
        counts = in_bytes and term.free_symbols and all(unit_of(s.name) != "bytes" for s in term.free_symbols)
        texts.append(_text(term, leaf, SUM, " B" if counts else ""))
    return _joined(texts)


def _joined(terms: list[str]) -> str:
    return " + ".join(terms).replace("+ -", "- ")


def _text(node: Expr, leaf: Callable[[Any], str], level: int, unit: str = "") -> str:
    """The text of a node that stands in a sum, a product or under a power; `unit` follows its leading number."""
    if node.is_Number:
        return _number(node)
    if node.is_Symbol:
        return leaf(node)
    if isinstance(node, AppliedUndef):
        return _function_text(node, leaf)
    if node.is_Pow:
        text = f"{_text(node.base, leaf, POWER)}^{node.exp}"
    elif node.is_Mul:
        text = _product_text(node, leaf, unit)
        return f"({text})" if level > PRODUCT else text
    else:
        text = _joined([_text(term, leaf, SUM) for term in node.as_ordered_terms()])
        return f"({text})" if level > SUM else text
    return text


def _product_text(node: Expr, leaf: Callable[[Any], str], unit: str) -> str:
    coefficient, rest = node.as_coeff_Mul()
    above, below = sympy.fraction(rest)
    sign = "-" if coefficient < 0 else ""
    if coefficient.is_Rational and coefficient.q != 1:
        coefficient, below = sympy.Integer(coefficient.p), coefficient.q * below
    ordered = sorted(sympy.Mul.make_args(above), key=_place)
    factors = [_text(factor, leaf, PRODUCT) for factor in ordered if factor != 1]
    if abs(coefficient) != 1 or not factors:
        number = _number(abs(coefficient))
        factors.insert(0, number if number.endswith("B") else number + unit)
    text = sign + " * ".join(factors)
    divisors = [_text(factor, leaf, PRODUCT) for factor in sympy.Mul.make_args(below) if factor != 1]
    return text + "".join(f" / {divisor}" for divisor in divisors)


def _place(factor: Expr) -> tuple[bool, bool, str]:
    """Order of the factors of a product: plain symbols, what they count, sums and calls as they come."""
    name = factor.name if factor.is_Symbol else ""
    return not name, name in PARTS, name


def _function_text(node: Expr, leaf: Callable[[Any], str]) -> str:
    name = node.func.__name__
    arguments = [_text(argument, leaf, SUM) for argument in _flat(node)]
    if name in OF_BYTES:
        arguments[0] = _formula_text(node.args[0], leaf, True)
    return f"{FUNCTIONS.get(name, name.removesuffix('_s'))}({', '.join(arguments)})"


def _flat(node: Expr) -> list[Expr]:
    """Arguments of a node; of a maximum of maxima all of them."""
    if not isinstance(node, maximum):
        return list(node.args)
    return [part for each in node.args for part in (_flat(each) if isinstance(each, maximum) else [each])]


def _number(number: Any) -> str:
    value = float(number)
    return written(value, "bytes") if value >= LARGE_BYTES else f"{value:.6g}"


def written(value: float, unit: str) -> str:
    """A value with its unit where it has one: `1.07 GiB`, `3.2 ms`, `2.139e8`, `8192`."""
    if unit == "bytes":
        return format_bytes(value)
    if unit == "s":
        return duration(value)
    if abs(value) < LARGE:
        return f"{value:.6g}"
    exponent = math.floor(math.log10(abs(value)))
    return f"{value / 10**exponent:.4g}e{exponent}"

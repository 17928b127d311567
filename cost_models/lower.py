"""Sympy expressions -> one vectorised numpy function. The only user of sympy's cse and printers."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import sympy
from sympy.core.function import AppliedUndef
from sympy.printing.pycode import PythonCodePrinter

from cost_models.lowered import Lowered, LoweringError, compiled, namespace

__all__ = ["Lowered", "LoweringError", "lower", "parted"]


class _NumpyPrinter(PythonCodePrinter):  # type: ignore[misc]
    """Prints an operator by its name, which the compiled function finds among the bound ones."""

    def _print_Function(self, expression: sympy.Function) -> str:
        arguments = ", ".join(self._print(argument) for argument in expression.args)
        return f"{expression.func.__name__}({arguments})"


def lower(outputs: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Lowered:
    """The numpy function that computes `outputs` (name -> expression), with opaque operators bound to `functions`.

    An expression is made of numbers, symbols, sums, products, whole powers and operators; whatever else sympy knows
    may not be elementwise in Python. Raises LoweringError for anything else and for an operator that is not bound.
    """
    expressions = [sympy.sympify(expression) for expression in outputs.values()]
    bodies = namespace(functions)
    inputs = tuple(sorted({str(symbol) for expression in expressions for symbol in expression.free_symbols}))
    names = sympy.numbered_symbols("_shared")
    shared, reduced = sympy.cse(expressions, symbols=names, order="none")
    _check([*(value for _, value in shared), *reduced], bodies)
    printer = _NumpyPrinter({"fully_qualified_modules": False, "order": "none"})
    lines = [f"    {symbol} = {printer.doprint(value)}" for symbol, value in shared]
    results = ", ".join(printer.doprint(expression) for expression in reduced)
    source = "\n".join([f"def _lowered({', '.join(inputs)}):", *lines, f"    return ({results},)"])
    operations = sum(int(value.count_ops()) for value in itertools.chain((v for _, v in shared), reduced))
    return Lowered(inputs, tuple(outputs), operations, source, compiled(source, bodies))


def parted(outputs: Mapping[str, Any], late: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The outputs in two steps: what they need of all symbols that are not `late`, by name, and what is then left.

    The first step is made of the constant and of the factors of each late term; the second reads them by their names.

    >>> a, b, c = sympy.symbols("a b c")
    >>> parted({"y": a * (b + c) + b * c}, ["c"])
    ({'_early0': a*b, '_early1': a + b}, {'y': _early0 + _early1*c})
    """
    found: dict[Any, Any] = {}

    def early(expression: Any) -> Any:
        return expression if expression.is_Number else found.setdefault(expression, sympy.Symbol(f"_early{len(found)}"))

    def is_late(expression: Any) -> bool:
        return any(symbol.name in late for symbol in expression.free_symbols)

    def rest(expression: Any) -> Any:
        if not is_late(expression):
            return early(expression)
        if not (expression.is_Add or expression.is_Mul):
            return expression if expression.is_Symbol else expression.func(*map(rest, expression.args))
        factors: dict[Any, list[Any]] = {}
        for term in sympy.Add.make_args(sympy.expand_mul(expression)):
            apart = sympy.sift(sympy.Mul.make_args(term), is_late)
            factors.setdefault(tuple(apart[True]), []).append(sympy.Mul(*apart[False]))
        return sympy.Add(*(sympy.Mul(early(sympy.Add(*factor)), *map(rest, part)) for part, factor in factors.items()))

    left = {name: rest(sympy.sympify(expression)) for name, expression in outputs.items()}
    return {symbol.name: expression for expression, symbol in found.items()}, left


def _check(expressions: Iterable[Any], functions: Mapping[str, Callable[..., Any]]) -> None:
    """Raises LoweringError unless every node can be printed as elementwise numpy."""
    for node in itertools.chain.from_iterable(map(sympy.preorder_traversal, expressions)):
        if isinstance(node, AppliedUndef):
            if node.func.__name__ not in functions:
                msg = f"operator {node.func.__name__} is not bound; bound are {sorted(functions)}"
                raise LoweringError(msg)
        elif not (node.is_Number or node.is_Symbol or node.is_Add or node.is_Mul or _is_whole_power(node)):
            msg = f"expressions are sums, products, whole powers and operators, got {node}"
            raise LoweringError(msg)


def _is_whole_power(node: Any) -> bool:
    return bool(node.is_Pow and node.exp.is_Integer)

"""Sympy expressions -> one vectorised numpy function. The only user of sympy's cse and printers."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from sympy.printing.pycode import PythonCodePrinter

__all__ = ["Lowered", "LoweringError", "lower"]

Columns = Mapping[str, Any]


class LoweringError(Exception):
    """An expression names an operator for which nothing is bound, or a column is missing."""


@dataclass(frozen=True)
class Lowered:
    """A numpy function of named columns.

    `inputs` are the names it reads, `outputs` the names it returns, `operations` the size of its expressions after
    common sub-expressions are shared, `source` the Python text that was compiled.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: int
    source: str
    function: Callable[..., tuple[Any, ...]]

    def __call__(self, columns: Columns) -> dict[str, Any]:
        """Outputs by name, each an array as long as the columns (or a scalar when nothing it reads varies)."""
        missing = [name for name in self.inputs if name not in columns]
        if missing:
            msg = f"columns {missing} are missing; the expression reads {list(self.inputs)}"
            raise LoweringError(msg)
        return dict(zip(self.outputs, self.function(*(columns[name] for name in self.inputs)), strict=True))


class _NumpyPrinter(PythonCodePrinter):  # type: ignore[misc]
    """Prints Max and Min as binary numpy calls: faster than amax over stacked copies."""

    def _print_Max(self, expression: sympy.Expr) -> str:
        return self._fold("maximum", expression)

    def _print_Min(self, expression: sympy.Expr) -> str:
        return self._fold("minimum", expression)

    def _fold(self, name: str, expression: sympy.Expr) -> str:
        first, *rest = (self._print(argument) for argument in expression.args)
        for other in rest:
            first = f"{name}({first}, {other})"
        return first

    def _print_ceiling(self, expression: sympy.Expr) -> str:
        return f"ceil({self._print(expression.args[0])})"

    def _print_Function(self, expression: sympy.Function) -> str:
        arguments = ", ".join(self._print(argument) for argument in expression.args)
        return f"{expression.func.__name__}({arguments})"


def lower(outputs: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Lowered:
    """The numpy function that computes `outputs` (name -> expression), with opaque operators bound to `functions`.

    Raises LoweringError when an expression applies an operator that is not bound.
    """
    expressions = [sympy.sympify(expression) for expression in outputs.values()]
    functions = {"at_least": _at_least, **functions}
    _check_bound(expressions, functions)
    inputs = tuple(sorted({str(symbol) for expression in expressions for symbol in expression.free_symbols}))
    names = sympy.numbered_symbols("_shared")
    shared, reduced = sympy.cse(expressions, symbols=names, order="none")
    printer = _NumpyPrinter({"fully_qualified_modules": False})
    lines = [f"    {symbol} = {printer.doprint(value)}" for symbol, value in shared]
    results = ", ".join(printer.doprint(expression) for expression in reduced)
    source = "\n".join([f"def _lowered({', '.join(inputs)}):", *lines, f"    return ({results},)"])
    namespace: dict[str, Any] = {"maximum": np.maximum, "minimum": np.minimum, "ceil": np.ceil, **functions}
    exec(compile(source, "<lowered cost expressions>", "exec"), namespace)
    operations = sum(int(value.count_ops()) for value in itertools.chain((v for _, v in shared), reduced))
    return Lowered(inputs, tuple(outputs), operations, source, namespace["_lowered"])


def _check_bound(expressions: list[Any], functions: Mapping[str, Callable[..., Any]]) -> None:
    applied = {
        node.func.__name__ for expression in expressions for node in expression.atoms(sympy.core.function.AppliedUndef)
    }
    unbound = sorted(applied - set(functions))
    if unbound:
        msg = f"operators {unbound} are not bound to a hardware profile; bound are {sorted(functions)}"
        raise LoweringError(msg)


def _at_least(value: Any, limit: Any) -> Any:
    """1.0 where `value` is `limit` or more, else 0.0."""
    return np.greater_equal(value, limit).astype(np.float64)

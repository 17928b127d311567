"""The examples in the docstrings."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["pareto", "dynamic_program", "certificate"])
def test_examples_hold(name: str) -> None:
    """Every example of a docstring gives the output that is printed below it."""
    results = doctest.testmod(importlib.import_module(f"solver.{name}"), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0

"""What megatron-core takes, as distilled from its wheel: names, numbers of values, types and choices.

The table is data/launchers/megatron.json, made by scripts/distil_megatron.py.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from cost_models.specs.data import data_folder
from cost_models.specs.errors import did_you_mean
from cost_models.specs.files import read_text

__all__ = ["argument_faults", "known"]

Kind = Mapping[str, Any]

NUMBERS: dict[str, Callable[[str], float]] = {"int": int, "float": float}
ANY_NUMBER = {"*": 0, "+": 1}
NUMBERED = {0: "no value", 1: "one value"}


@cache
def known() -> Mapping[str, Any]:
    """The table: `arguments` by their names; the fields of Megatron Bridge's sections that are megatron-core's, by the
    section and their names; `version`, `source` and `licence`.

    An entry has `values` (how many: a number, "+" or "*"), `type` and, where there are some, `choices`.
    """
    table: dict[str, Any] = json.loads(read_text(data_folder() / "launchers" / "megatron.json"))
    return table


def argument_faults(given: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Why Megatron's parser refuses arguments, by their names with underscores; none where it takes them all.

    >>> argument_faults({"recompute_method": ["block"], "swiglu": []})
    ()
    >>> argument_faults({"num_layer": ["2"]})
    ("megatron-core 0.19.2 has no argument --num-layer; did you mean '--num-layers'?",)
    >>> argument_faults({"recompute_method": ["blocks"], "swiglu": ["1"]})
    ("--recompute-method must be one of uniform, block, got 'blocks'", '--swiglu takes no value, got 1')
    """
    table = known()["arguments"]
    spelt = {name.removeprefix("--").replace("-", "_"): name for name in table}
    faults: list[str] = []
    for name, values in given.items():
        shown = spelt.get(name, "--" + name.replace("_", "-"))
        faults += _faults(shown, table, values)
    return tuple(faults)


def _faults(name: str, table: Mapping[str, Kind], values: Sequence[str]) -> Iterator[str]:
    """What is wrong with an argument and its values."""
    kind = table.get(name)
    if kind is None:
        yield f"megatron-core {known()['version']} has no argument {name}{did_you_mean(name, tuple(table))}"
        return
    wanted, got = kind["values"], len(values)
    if wanted in ANY_NUMBER and got < ANY_NUMBER[wanted]:
        yield f"{name} takes a value or several, got none"
    elif wanted not in ANY_NUMBER and got != wanted:
        yield f"{name} takes {NUMBERED.get(wanted, f'{wanted} values')}, got {' '.join(values) or 'none'}"
    else:
        for value in values:
            yield from _value_faults(name, kind, value)


def _value_faults(name: str, kind: Kind, value: str) -> Iterator[str]:
    of, choices = kind.get("type"), kind.get("choices")
    if of in NUMBERS and not _reads(NUMBERS[of], value):
        yield f"{name} must be {'a whole number' if of == 'int' else 'a number'}, got {value!r}"
    elif choices and value not in map(str, choices):
        yield f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}"


def _reads(number: Callable[[str], float], value: str) -> bool:
    try:
        number(value)
    except ValueError:
        return False
    return True

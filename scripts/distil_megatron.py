"""Distil what megatron-core's wheel accepts, without importing it: arguments and dataclass fields, read with `ast`.

    pip download --no-deps --only-binary=:all: --python-version 3.12 megatron-core==0.19.2
    python scripts/distil_megatron.py megatron_core-0.19.2-*.whl [-o data/launchers/megatron.json]

Written are, of every argument of pretrain_gpt.py, how many values it takes, their type and their choices; and the
fields of the dataclasses that Megatron Bridge's container holds. Names and choices are facts: no text is copied.
"""

import argparse
import ast
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SOURCE = "megatron-core {version}, wheel of the Python package index, megatron/training/arguments.py and what it reads"
LICENCE = "Apache-2.0 (NVIDIA Corporation)"
PARSER = "megatron/training/arguments.py"
# A package of its own, which the wheel holds too: its classes have names of Megatron's.
VENDORED = "megatron/core/distributed/fsdp/src/"
# The sections of Megatron Bridge's container that are dataclasses of megatron-core.
SECTIONS = {
    "model": "TransformerConfig",
    "ddp": "DistributedDataParallelConfig",
    "optimizer": "OptimizerConfig",
    "dist": "DistributedInitConfig",
    "train": "TrainingConfig",
    "checkpoint": "CheckpointConfig",
}
TYPES = ("int", "float", "str", "bool")
NO_VALUE = ("store_true", "store_false", "store_const", "count", "help")

Argument = dict[str, Any]


class Wheel:
    """The parsed modules of a wheel, and the classes in them by name."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as wheel:
            texts = {name: wheel.read(name).decode() for name in wheel.namelist() if name.endswith((".py", "METADATA"))}
        metadata = next(text for name, text in texts.items() if name.endswith("METADATA"))
        self.version = re.search(r"^Version: (.+)$", metadata, re.MULTILINE)[1]  # type: ignore[index]
        self.trees = {name: ast.parse(text) for name, text in texts.items() if name.endswith(".py")}
        self.classes: dict[str, list[ast.ClassDef]] = {}
        for name, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not name.startswith(VENDORED):
                    self.classes.setdefault(node.name, []).append(node)

    def class_of(self, name: str) -> ast.ClassDef:
        """The one class of a name. Raises ValueError where there are none or several."""
        found = self.classes.get(name, [])
        if len(found) != 1:
            message = f"the wheel has {len(found)} classes {name}"
            raise ValueError(message)
        return found[0]

    def enum_names(self, name: str) -> list[str]:
        """The members of an enumeration; none where the name is of no class or another."""
        nodes = self.classes.get(name, [])
        if len(nodes) != 1 or not any("Enum" in ast.unparse(base) for base in nodes[0].bases):
            return []
        assigned = [node for node in nodes[0].body if isinstance(node, ast.Assign)]
        return [target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)]

    def fields(self, name: str) -> dict[str, ast.AnnAssign]:
        """The annotated fields of a dataclass by name, those of its bases first."""
        node, found = self.class_of(name), {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self.classes:
                found |= self.fields(base.id)
        named = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
        return found | {ast.unparse(each.target): each for each in named}


def main(wheel: Path, output: Path) -> None:
    """Writes the tables, a line each entry."""
    read = Wheel(wheel)
    sections = {
        section: {name: _kind(read, field.annotation) for name, field in read.fields(of).items()}
        for section, of in SECTIONS.items()
    }
    head = {"source": SOURCE.format(version=read.version), "version": read.version, "licence": LICENCE}
    tables = {"arguments": dict(sorted(arguments(read).items())), **sections}
    lines = [f' "{name}": {json.dumps(value)}' for name, value in head.items()]
    for name, table in tables.items():
        entries = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in table.items())
        lines.append(f' "{name}": {{\n{entries}\n }}')
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{output}: {len(tables['arguments'])} arguments, {sum(map(len, sections.values()))} fields")


def arguments(wheel: Wheel) -> dict[str, Argument]:
    """Every argument of the parser by its name, written out or made of a dataclass."""
    found: dict[str, Argument] = {}
    for function in ast.walk(wheel.trees[PARSER]):
        if isinstance(function, ast.FunctionDef):
            for call in _calls(function):
                found |= _written_out(call) if isinstance(call.func, ast.Attribute) else _made(wheel, function, call)
    return found


def _calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """The calls in a function that add arguments."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.endswith(".add_argument") or called == "ArgumentGroupFactory":
                yield node


def _written_out(call: ast.Call) -> dict[str, Argument]:
    """The argument of a call of add_argument."""
    names = [each.value for each in call.args if isinstance(each, ast.Constant)]
    given = {word.arg: word.value for word in call.keywords if word.arg}
    return _named(names, given)


def _made(wheel: Wheel, function: ast.FunctionDef, call: ast.Call) -> dict[str, Argument]:
    """The arguments that Megatron's factory makes of a dataclass, without those that the call excludes."""
    assigned = {ast.unparse(node.targets[0]): node.value for node in ast.walk(function) if isinstance(node, ast.Assign)}
    excluded = next((word.value for word in call.keywords if word.arg == "exclude"), ast.List([]))
    excluded = assigned[excluded.id] if isinstance(excluded, ast.Name) else excluded
    left_out = ast.literal_eval(excluded)
    found: dict[str, Argument] = {}
    for name, field in wheel.fields(ast.unparse(call.args[0])).items():
        if name not in left_out and not _is_derived(field):
            found |= _of_field(wheel, name, field)
    return found


def _is_derived(field: ast.AnnAssign) -> bool:
    """Whether a field is no parameter of its dataclass."""
    init = _of_field_call(field).get("init")
    return "ClassVar" in ast.unparse(field.annotation) or (isinstance(init, ast.Constant) and init.value is False)


def _of_field(wheel: Wheel, name: str, field: ast.AnnAssign) -> dict[str, Argument]:
    """The argument of one field: what its annotation says, over it what its metadata say."""
    call, dashed = _of_field_call(field), name.replace("_", "-")
    meta = _table(_table(call.get("metadata")).get("argparse_meta"))
    kind = _kind(wheel, field.annotation)
    names = [f"--{dashed}"]
    if kind.get("type") == "bool" and kind["values"] == 1:
        default = call.get("default", field.value)
        is_false = isinstance(default, ast.Constant) and default.value is False
        names = names if is_false else [f"--no-{dashed}", f"--disable-{dashed}"]
        kind = {"values": 0}
    if "arg_names" in meta:
        names = ast.literal_eval(meta["arg_names"])
    return {each: {**kind, **of_meta} for each, of_meta in _named(names, meta, plain={}).items()}


def _of_field_call(field: ast.AnnAssign) -> dict[str, ast.expr]:
    """The keywords of dataclasses.field(...); none where the field has a plain default."""
    if isinstance(field.value, ast.Call) and ast.unparse(field.value.func).endswith("field"):
        return {word.arg: word.value for word in field.value.keywords if word.arg}
    return {}


def _table(node: ast.expr | None) -> dict[str, ast.expr]:
    """The items of a dict display by key."""
    if not isinstance(node, ast.Dict):
        return {}
    return {ast.literal_eval(key): value for key, value in zip(node.keys, node.values, strict=True) if key}


def _named(
    names: list[str], given: Mapping[str, ast.expr], plain: Mapping[str, Any] | None = None
) -> dict[str, Argument]:
    """The argument of add_argument's keywords under each of its names; `plain` is what holds where they say nothing."""
    argument: Argument = dict({"values": 1, "type": "str"} if plain is None else plain)
    action = ast.unparse(given["action"]).strip("'\"") if "action" in given else ""
    if action.endswith("BooleanOptionalAction"):
        names = [*names, *(f"--no-{name.removeprefix('--')}" for name in names)]
    if action in NO_VALUE or action.endswith("BooleanOptionalAction"):
        argument = {"values": 0}
    if "nargs" in given:
        argument["values"] = ast.literal_eval(given["nargs"])
    if "type" in given:
        of = ast.unparse(given["type"])
        argument["type"] = of if of in TYPES and of != "bool" else "expression"  # bool() takes any word
    if isinstance(given.get("choices"), ast.List | ast.Tuple):  # else they are an enumeration's, as annotated
        argument["choices"] = list(ast.literal_eval(given["choices"]))
    return dict.fromkeys(names, argument)


def _kind(wheel: Wheel, annotation: ast.expr) -> Argument:
    """How many values an annotation stands for, of which type, with which choices."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _kind(wheel, ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp) and ast.unparse(annotation.right) == "None":
        return _kind(wheel, annotation.left)
    if isinstance(annotation, ast.Subscript):
        of, inside = ast.unparse(annotation.value).rpartition(".")[2], annotation.slice
        if of == "Optional":
            return _kind(wheel, inside)
        if of in ("list", "List") and not isinstance(inside, ast.Tuple):
            return {**_kind(wheel, inside), "values": "+"}
        if of == "Literal":
            choices = ast.literal_eval(inside)
            choices = list(choices) if isinstance(choices, tuple) else [choices]
            return {"values": 1, "type": type(choices[0]).__name__, "choices": choices}
    name = ast.unparse(annotation).rpartition(".")[2]
    if members := wheel.enum_names(name):
        return {"values": 1, "type": "str", "choices": members}
    return {"values": 1, "type": name if name in TYPES else "expression"}


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("wheel", type=Path)
    options.add_argument("-o", type=Path, default=Path("data/launchers/megatron.json"))
    asked = options.parse_args()
    main(asked.wheel, asked.o)

"""Who may import whom: the floors of the house, read off the source with ast."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("cost_models", "solver", "profiler", "planner", "runtime", "cli")

# The one table of allowed edges, from the bottom up. A package may import itself and what stands here: a package
# whole, or only the modules named. Packages that are not built yet are here already, so that they are born in place.
ALLOWED: dict[str, tuple[str, ...]] = {
    "cost_models": (),
    "solver": (),
    "profiler": ("cost_models",),
    "planner": ("cost_models", "solver"),
    "runtime": ("planner.document", "cost_models.schedules", "cost_models.specs"),
    "cli": ("cost_models", "solver", "profiler", "planner", "runtime"),
}

# What a module may not load while it is imported (inside a function it may): a training rank loads these.
HEAVY = ("sympy", "pulp", "pandas", "networkx", "torch", "highspy")
LIGHT = ("cost_models.specs", "cost_models.schedules", "planner.document", "planner.errors")

MODULES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """The parsed source."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(nodes: list[ast.AST]) -> set[str]:
    """Dotted names that some import statements name; `from a import b` names a.b."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def loaded_on_import(path: Path) -> set[str]:
    """Names that are imported when the module is: outside functions and outside `if TYPE_CHECKING`."""
    found: list[ast.AST] = []
    queue: list[ast.AST] = list(tree_of(path).body)
    while queue:
        node = queue.pop()
        is_guard = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if is_guard or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        found.append(node)
        queue += ast.iter_child_nodes(node)
    return imported(found)


def within(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of the packages or inside one."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def closure(path: Path) -> set[str]:
    """Everything that is loaded with a module, through all modules of ours."""
    by_name = {name_of(module): module for module in MODULES}
    seen: set[str] = set()
    queue = [name_of(path)]
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        parts = name.split(".")
        queue += [".".join(parts[:length]) for length in range(1, len(parts))]
        if name in by_name:
            queue += loaded_on_import(by_name[name])
    return seen


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    """A module imports its own package and what the table allows it, absolutely."""
    nodes = list(ast.walk(tree_of(path)))
    assert not [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level], "relative import"
    package = name_of(path).split(".")[0]
    ours = {name for name in imported(nodes) if within(name, OURS)}
    assert {name for name in ours if not within(name, (package, *ALLOWED[package]))} == set()


@pytest.mark.parametrize("path", [path for path in MODULES if within(name_of(path), LIGHT)], ids=name_of)
def test_what_a_training_rank_loads_is_light(path: Path) -> None:
    """Specs, schedules and the plan document load none of the heavy packages, not even through others."""
    assert {name for name in closure(path) if within(name, HEAVY)} == set()


def test_the_command_imports_typer_alone() -> None:
    """cli/main.py, with options and verbs, answers --help with nothing but typer and the standard library loaded."""
    files = [ROOT / "cli" / name for name in ("main.py", "app.py", "completion.py", "options.py")] + [
        *(ROOT / "cli" / "verbs").glob("*.py")
    ]
    loaded = {name for file in files for name in loaded_on_import(file)}
    assert {name.split(".")[0] for name in loaded} == {"sys", "collections", "typing", "typer", "cli"}
    assert {".".join(name.split(".")[:2]) for name in loaded if within(name, ("cli",))} <= {
        *("cli", "cli.app", "cli.completion", "cli.options", "cli.verbs")
    }


def test_the_planner_package_is_lazy() -> None:
    """Importing planner.document must not load the search: planner/__init__.py imports nothing."""
    assert loaded_on_import(ROOT / "planner" / "__init__.py") == set()


def test_the_table_has_no_upward_edge() -> None:
    """Each package allows only packages that stand before it in the table, so no cycle can be written into it."""
    order = list(ALLOWED)
    for package, allowed in ALLOWED.items():
        assert all(order.index(name.split(".")[0]) < order.index(package) for name in allowed)
    assert set(order) == set(OURS)


def test_every_package_is_in_the_table() -> None:
    """A new top-level package must take its place in the house first."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests"} <= set(OURS)

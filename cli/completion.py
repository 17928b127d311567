"""Names that a shell completes. They are read from the names of files and from lists: a key press loads no planner."""

from collections.abc import Callable, Iterable

__all__ = ["catalog_names", "launchers", "searched"]


def catalog_names(kind: str) -> Callable[[str], list[str]]:
    """What completes the beginning of a name of `data/<kind>`."""

    def matching(begun: str) -> list[str]:
        from cost_models.specs.data import data_folder

        return _beginning((path.stem for path in (data_folder() / kind).glob("*.toml")), begun)

    return matching


def launchers(begun: str) -> list[str]:
    """What completes the beginning of a launcher's name."""
    from planner.flag_values import TARGETS

    return _beginning(TARGETS, begun)


def searched(begun: str) -> list[str]:
    """What completes the last of the names of --search, which have commas between them."""
    from planner.flag_values import SEARCHABLE

    before, comma, last = begun.rpartition(",")
    left = set(SEARCHABLE) - set(before.split(","))
    return [before + comma + name for name in _beginning(left, last)]


def _beginning(names: Iterable[str], begun: str) -> list[str]:
    return sorted(name for name in names if name.startswith(begun.lower()))

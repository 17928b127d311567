"""Expressions kept on disk: the same ones come back, and nothing that goes wrong there is ever noticed but in time."""

from pathlib import Path

import pytest

from cost_models import expression_store
from cost_models.expression_store import ENVIRONMENT, folder, kept
from cost_models.lower import lower
from cost_models.lowered import Lowered, rebound
from cost_models.symbols import hidden, layers


class Builder:
    """Builds an expression and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Lowered:
        self.times += 1
        return lower({"size": layers * hidden**2}, {})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to keep expressions in."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "kept"))
    return tmp_path / "kept"


def value(lowered: Lowered) -> float:
    """What the expression gives for two layers of width three."""
    return float(rebound(lowered, {})({"layers": 2.0, "hidden": 3.0})["size"])


def test_an_expression_is_built_once(place: Path) -> None:
    """The second asks the disk; both compute the same, and another key is another expression."""
    build = Builder()
    assert [value(kept(("a",), build)) for _ in range(2)] == [18.0, 18.0]
    assert build.times == 1
    kept(("b",), build)
    assert build.times == 2
    assert len(list(place.glob("*.json"))) == 2
    assert not list(place.glob("*.part"))


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"digest": "x", "content": {"inputs": 3}}', b"\xff"])
def test_a_damaged_entry_is_built_anew(place: Path, damage: bytes) -> None:
    """And made whole again."""
    build = Builder()
    kept(("a",), build)
    [entry] = place.glob("*.json")
    whole = entry.read_bytes()
    entry.write_bytes(damage)
    assert value(kept(("a",), build)) == 18.0
    assert build.times == 2
    assert entry.read_bytes() == whole


def test_a_changed_entry_is_not_believed(place: Path) -> None:
    """Text that is not what was written is not run."""
    build = Builder()
    kept(("a",), build)
    [entry] = place.glob("*.json")
    entry.write_text(entry.read_text().replace("hidden**2", "hidden**3"))
    assert value(kept(("a",), build)) == 18.0
    assert build.times == 2


def test_a_folder_that_cannot_be_used_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in its place: every run builds, none fails."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "file"))
    build = Builder()
    assert [value(kept(("a",), build)) for _ in range(2)] == [18.0, 18.0]
    assert build.times == 2


def test_nothing_is_kept_when_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a name the user's cache is the place."""
    monkeypatch.setenv(ENVIRONMENT, "off")
    build = Builder()
    kept(("a",), build)
    kept(("a",), build)
    assert build.times == 2
    monkeypatch.delenv(ENVIRONMENT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "meshplan" / "expressions"


def test_the_oldest_entries_make_way(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are never more than a number of them."""
    monkeypatch.setattr(expression_store, "MOST_ENTRIES", 3)
    for name in range(5):
        kept((name,), Builder())
    assert len(list(place.glob("*.json"))) == 3

"""Pages in headless Chromium: no errors, charts there, and what they offer works with pointer and keyboard."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from planner.document import loads
from tests.planner.html.browser import chromium, reason_to_skip, shown
from tests.planner.html.cases import document, infeasible, page_of, page_of_study, study

pytestmark = pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or "")

PAGES = {"plan": lambda: page_of("llama3-70b_256"), "infeasible": infeasible, "study": page_of_study}
# Marks that must be drawn, by page: CSS of what has a width.
CHARTS = {
    "plan": ("#time .k-work", "#memory .segment", "#stages .k-work", ".lane rect.f", ".lane path.m", ".point circle"),
    "infeasible": ("#why .segment", "#changes .k-exchange"),
    "study": (".point circle", ".measure:not([hidden]) .on-curve", "td.heated", "#effects .k-work"),
}
LOOKS = {
    "wide": {"wide": 1280},
    "dark phone": {"wide": 390, "scheme": "dark"},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages as files."""
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{name}.html" for name in PAGES}
    for name, path in found.items():
        path.write_text(PAGES[name](), encoding="utf-8")
    return found


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("look", LOOKS)
def test_pages_open_without_faults(browser: Any, files: dict[str, Path], name: str, look: str) -> None:
    """Nothing on the console, nothing fetched, charts drawn, nothing wider than the window."""
    with shown(browser, files[name], **LOOKS[look]) as page:
        assert page.faults == []
        for chart in CHARTS[name]:
            wide = page.evaluate(f"document.querySelector({json.dumps(chart)}).getBoundingClientRect().width")
            assert wide > 0, chart
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
        assert dark == ("dark" in look)


@pytest.mark.parametrize("name", PAGES)
def test_pages_print_light_and_whole(browser: Any, files: dict[str, Path], name: str) -> None:
    """On paper a dark page is light, buttons are gone, and what was folded is open."""
    with shown(browser, files[name], scheme="dark") as page:
        page.page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("getComputedStyle(document.getElementById('theme')).display") == "none"
        folded = "[...document.querySelectorAll('details:not(.noprint)')].map(each => each.lastElementChild)"
        assert page.evaluate(f"{folded}.every(each => each.getBoundingClientRect().height > 0)")
        assert page.page.pdf(format="A4")[:5] == b"%PDF-"
        assert page.faults == []


def test_the_theme_is_switched_and_kept(browser: Any, files: dict[str, Path]) -> None:
    """System, light, dark, and round again; the page opens as it was left."""
    with shown(browser, files["plan"]) as page:
        button = page.page.locator("#theme")
        assert button.text_content() == "Theme: system"
        button.click()
        button.click()
        assert button.text_content() == "Theme: dark"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
        page.page.reload()
        assert button.text_content() == "Theme: dark"
        button.click()
        assert button.text_content() == "Theme: system"
        assert page.faults == []


def test_marks_tell_under_the_pointer_and_at_the_focus(browser: Any, files: dict[str, Path]) -> None:
    """The timeline's boxes under the pointer; the front's points with Tab and arrows, with the table's row lit."""
    from playwright.sync_api import expect

    with shown(browser, files["plan"]) as page:
        tip = page.page.locator("#tip")
        page.page.locator("#memory .segment").first.hover()
        expect(tip).to_contain_text("weights: ")
        page.page.locator("#z16").check()
        page.page.locator(".lane rect.f").first.hover()
        expect(tip).to_contain_text("rank 0: forward m0")
        page.page.mouse.move(0, 0)  # or a mark that the page scrolls under the pointer would speak, too
        points = page.page.locator(".point")
        assert page.evaluate("document.querySelectorAll('.points [tabindex=\"0\"]').length") == 1
        page.page.locator(".points [tabindex='0']").focus()
        page.page.keyboard.press("End")
        last = page.evaluate("document.activeElement.dataset.key")
        page.page.keyboard.press("ArrowLeft")
        assert page.evaluate("document.activeElement.dataset.key") != last
        expect(tip).to_have_text(re.compile(re.escape(page.evaluate("document.activeElement.dataset.key")) + ": "))
        assert page.page.locator("tr.lit").count() == 1
        page.page.keyboard.press("Escape")
        expect(tip).to_be_hidden()
        assert points.count() == 1 + len(document("llama3-70b_256").alternatives)
        assert page.faults == []


def test_everything_is_reached_with_tab(browser: Any, files: dict[str, Path]) -> None:
    """From the first key on: the skip link, the sections, the theme; no element keeps the focus."""
    with shown(browser, files["plan"]) as page:
        seen = []
        for _ in range(60):
            page.page.keyboard.press("Tab")
            place = page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)")
            seen.append((place, page.evaluate("document.activeElement.cloneNode().outerHTML")))
        texts = [text for _, text in seen]
        assert "skip" in texts[0]
        for part in ('id="theme"', "data-copy", "data-mark", "data-download"):
            assert any(part in each for each in texts), part
        assert all(first != second for first, second in pairwise(seen))


def test_commands_are_copied_and_the_plan_is_saved(browser: Any, files: dict[str, Path], tmp_path: Path) -> None:
    """The script as it stands; the document byte for byte."""
    with shown(browser, files["plan"]) as page:
        page.page.locator("[data-copy='script-runtime']").click()
        page.page.wait_for_function("document.getElementById('said').textContent !== ''")
        assert page.page.locator("#said").text_content() == "Copied"
        with page.page.expect_download() as saved:
            page.page.locator("[data-download]").click()
        saved.value.save_as(tmp_path / "plan.json")
        assert saved.value.suggested_filename == "plan.json"
        assert loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == document("llama3-70b_256")
        assert page.faults == []


def visible(page: Any) -> list[int]:
    """Numbers of the scenarios in the table, in its order."""
    script = "[...document.querySelectorAll('#table tbody tr:not([hidden])')].map(row => Number(row.dataset.key))"
    return list(page.evaluate(script))


def test_scenarios_are_filtered(browser: Any, files: dict[str, Path]) -> None:
    """By an input, by how they ended, by the front, by layout; what is left out fades in the charts, too."""
    with shown(browser, files["study"]) as page:
        assert visible(page) == list(range(12))
        page.page.locator("select[data-filter=gpus]").select_option("8")
        assert visible(page) == [0, 1, 2, 3]
        assert page.page.locator("#shown").text_content() == "4 of 12"
        assert page.evaluate("document.querySelectorAll('.point.out').length") == 7
        page.page.locator("select[data-filter=status]").select_option("infeasible")
        assert visible(page) == [3]
        page.page.locator("button[type=reset]").click()
        page.page.wait_for_function("document.getElementById('shown').textContent === '12 of 12'")
        page.page.locator("#only-front").check()
        assert visible(page) == [each.number for each in study().scenarios if each.pareto]
        page.page.locator("button[type=reset]").click()
        page.page.locator("#find").fill("no such layout")
        assert visible(page) == []
        assert page.faults == []


def test_scenarios_are_sorted_and_saved(browser: Any, files: dict[str, Path], tmp_path: Path) -> None:
    """By a figure and not by its text, both ways, those without one last; the file has what is shown."""
    with shown(browser, files["study"]) as page:
        heading = page.page.locator("#table th", has_text="Step").locator("button")
        heading.click()
        steps = {each.number: each.plan.step_time_s for each in study().planned if each.plan is not None}
        assert [steps[number] for number in visible(page)[:10]] == sorted(steps.values())
        assert sorted(visible(page)[10:]) == [3, 7]
        heading.click()
        assert [steps[number] for number in visible(page)[:10]] == sorted(steps.values(), reverse=True)
        assert sorted(visible(page)[10:]) == [3, 7]
        page.page.locator("select[data-filter=gpus]").select_option("32")
        with page.page.expect_download() as saved:
            page.page.locator("#save-csv").click()
        saved.value.save_as(tmp_path / "scenarios.csv")
        header, *lines = (tmp_path / "scenarios.csv").read_text(encoding="utf-8").splitlines()
        assert header.startswith('"No.","gpus","seq-len","recipe","Layout","Step"')
        assert len(lines) == 4
        assert f'"{min(steps.values()):.9g}"' in lines[-1]
        assert page.faults == []


def test_measures_and_cells(browser: Any, files: dict[str, Path]) -> None:
    """One measure at a time; a cell tells the optimum's layout, to the pointer and to arrow keys."""
    from playwright.sync_api import expect

    with shown(browser, files["study"]) as page:
        drawn = "[...document.querySelectorAll('.measure')].filter(each => each.offsetParent)"
        measure = f"{drawn}.map(each => each.dataset.measure)"
        assert page.evaluate(measure) == ["speed"]
        page.page.locator("#metric-cost").check()
        assert page.evaluate(measure) == ["cost"]
        tip = page.page.locator("#tip")
        page.page.locator(".measure[data-measure=cost] td.heated").first.hover()
        expect(tip).to_contain_text("gpus 8")
        expect(tip).to_contain_text(study().scenarios[0].plan.layout)
        page.page.mouse.move(0, 0)
        page.page.locator(".measure[data-measure=cost] table.heat").first.locator("[tabindex='0']").focus()
        page.page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.dataset.key") == "4"
        page.page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.dataset.key") == "6"
        expect(tip).to_contain_text("gpus 16, recipe megatron, seq-len 8192")
        assert page.faults == []

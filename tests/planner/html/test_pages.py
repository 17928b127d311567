"""What holds of every page: well formed, alone, escaped, and its numbers are those of the document."""

import base64
import hashlib
import re
from collections import Counter
from typing import Any

import pytest

from planner.document import dumps, loads
from planner.report.html import lanes
from planner.report.html.fields import Fields
from planner.report.html.frontier import capacity_page
from planner.report.html.plan import plan_page
from planner.report.html.questions import question_page
from tests.planner.html import cases
from tests.planner.html.cases import document, infeasible, page_of, page_of_study, study, taken_apart, without_data
from tests.planner.sample import MODEL, sample_document, sample_v_document

# What a number may be shown in, by what one of it is: s, ms, us, %, GiB, billions, millions.
UNITS = (1.0, 1e-3, 1e-6, 1e-2, 2.0**30, 1e9, 1e6)
REFERENCES = ("aria-labelledby", "aria-describedby", "data-copy", "data-source", "for")
LOADS = r"https?://|<link|<img|<iframe|@import|url\("


def all_pages() -> dict[str, str]:
    """Every kind of page."""
    return {
        **{name: page_of(name) for name in cases.PLANS},
        "sample": plan_page(sample_document()),
        "v": plan_page(sample_v_document()),
        "infeasible": infeasible(),
        "study": page_of_study(),
    }


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Every kind of page, made once."""
    return all_pages()


def test_pages_are_well_formed(pages: dict[str, str]) -> None:
    """Every element is closed where it should be, ids are unique, and what refers to one finds it."""
    for name, page in pages.items():
        parts = taken_apart(page)
        assert (parts.wrong, parts.unclosed) == ([], []), name
        assert [each for each, count in Counter(parts.ids).items() if count > 1] == [], name
        wanted = {value for _, attribute, value in parts.attributes if attribute in REFERENCES}
        wanted |= {value[1:] for _, attribute, value in parts.attributes if attribute == "href"}
        assert wanted <= set(parts.ids), name
        assert page.startswith("<!doctype html>\n<html lang=")
        assert "Undefined" not in page


def test_pages_load_nothing(pages: dict[str, str]) -> None:
    """No address of elsewhere, and a policy under which only the page's own script runs."""
    for name, page in pages.items():
        assert not re.search(LOADS, without_data(page)), name
        parts = taken_apart(page)
        loading = [
            (tag, value) for tag, attribute, value in parts.attributes if attribute in ("src", "srcset", "action")
        ]
        assert loading == [], name
        script = next(text for kind, text in parts.scripts if not kind)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = next(value for tag, attribute, value in parts.attributes if attribute == "content" and "src" in value)
        assert f"script-src 'sha256-{digest}'" in policy, name
        assert "default-src 'none'" in policy
        assert not [attribute for _, attribute, _ in parts.attributes if attribute.startswith("on")], name


def value_of(fields: Fields, field: str) -> float:
    """The number of a field, or the quotient of two."""
    part, slash, whole = field.partition(" / ")
    return float(fields.value(part)) / float(fields.value(whole)) if slash else float(fields.value(part))


def assert_shows(text: str, value: float) -> None:
    """The text is the value, rounded, in some unit."""
    match = re.match(r"([+-]?[\d,]*\.?\d+)", text)
    assert match, text
    digits = match[1].replace(",", "")
    shown, last = float(digits), 10.0 ** -len(digits.partition(".")[2])
    # Beyond four digits numbers are rounded before they are written.
    slack = max(0.5001 * last, 5.001e-4 * abs(shown) if "." not in digits and abs(shown) > 9999 else 0.0)
    assert any(abs(shown * unit - value) <= slack * unit for unit in UNITS), (text, value)


@pytest.mark.parametrize("name", [*cases.PLANS, "study"])
def test_every_number_is_the_documents(name: str) -> None:
    """Each says which field it is, holds its value to nine digits, and shows it in some unit."""
    source: Any = study() if name == "study" else document(name)
    fields = Fields(source)
    numbers = taken_apart(page_of_study() if name == "study" else page_of(name)).numbers
    assert len(numbers) > 60
    for field, value, text in numbers:
        expected = value_of(fields, field)
        assert float(value) == pytest.approx(expected, rel=1e-8, abs=1e-12), field
        assert_shows(text.replace("\N{NO-BREAK SPACE}", " "), expected)


@pytest.mark.parametrize("name", cases.PLANS)
def test_what_a_plan_costs_is_all_there(name: str) -> None:
    """Step and band, every cause of time, every cause of every stage, every alternative, the certificate."""
    plan, shown = document(name), {field for field, _, _ in taken_apart(page_of(name)).numbers}
    wanted = {f"predicted.{field}" for field in ("step_time_s", "step_time_low_s", "step_time_high_s", "mfu")}
    wanted |= {f"predicted.peak_memory_bytes.{field}" for field in ("device", "capacity", "low", "high")}
    wanted |= {f"predicted.time_breakdown_s.{cause}" for cause in plan.predicted.time_breakdown_s}
    for rank, stage in enumerate(plan.stages):
        causes = [cause for cause, amount in stage.predicted.memory_bytes.items() if amount]
        wanted |= {f"stages[{rank}].predicted.memory_bytes.{cause}" for cause in causes}
    wanted |= {f"alternatives[{index}].step_time_s" for index in range(len(plan.alternatives))}
    wanted |= {"certificate.bound_s", "certificate.gap", "certificate.layouts"}
    assert wanted <= shown
    page = page_of(name)
    for launcher in plan.launchers:
        assert f">{launcher}<" in page
    for text in plan.assumptions:
        if "Not searched" not in text:
            assert text.replace("'", "&#39;") in page


def test_bars_add_up() -> None:
    """The bars of a step end where the next begin, the last at the step; those of a stage at its bytes."""
    page = page_of("llama3-70b_256")
    time = page[page.index('id="time"') : page.index('id="memory"')]
    bars = [(float(x), float(w)) for x, w in re.findall(r'class="k-\w+" x="([\d.]+)%" width="([\d.]+)%"', time)]
    for (left, wide), (following, _) in zip(bars, bars[1:], strict=False):
        assert following == pytest.approx(left + wide, abs=2e-3)
    whole = float(re.findall(r'fill-opacity="\.8" width="([\d.]+)%"', time)[0])
    assert sum(bars[-1]) == pytest.approx(whole, abs=2e-3)
    memory = page[page.index('id="memory"') : page.index('id="stages"')]
    capacity = float(re.findall(r'class="rule" x1="([\d.]+)%"', memory)[0])
    stages = [row.split("</svg>")[0] for row in memory.split('<rect class="track"')[1:]]
    plan = document("llama3-70b_256")
    for stage, drawn in zip(plan.stages, stages, strict=True):
        wide = sum(float(width) for width in re.findall(r'class="segment.*?width="([\d.]+)%"', drawn))
        share = stage.predicted.device_bytes / plan.predicted.peak_memory_bytes.capacity
        assert wide / capacity == pytest.approx(share, rel=1e-3)


def test_a_page_holds_its_document() -> None:
    """Byte for byte, so that a report is enough to export, check or run the plan."""
    plan = document("llama3-8b_7")
    kind, text = next(each for each in taken_apart(page_of("llama3-8b_7")).scripts if each[0])
    assert kind == "application/json"
    assert loads(text) == plan
    assert dumps(loads(text)) == dumps(plan)


def test_values_are_escaped() -> None:
    """A model's name, a launcher's reason or an assumption is text, whatever it holds."""
    evil = "</script><script>alert(1)</script>\"'&<b>"
    plain = sample_document()
    answer = plain.launchers["torchtitan"].replaced(why_not=(evil,))
    plan = sample_document(
        model=MODEL.replaced(name=evil),
        assumptions=(evil, f"{evil}: a; b; c; {evil}"),
        launchers={**plain.launchers, "torchtitan": answer},
        env={"NAME": evil},
    )
    page = plan_page(plan)
    parts = taken_apart(page)
    assert len(parts.scripts) == 2
    assert "<script>alert" not in page
    assert not [tag for tag, _, _ in parts.attributes if tag == "b"]
    assert loads(parts.scripts[0][1]).model.name == evil


def test_what_lies_beyond_a_page_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of too many actions, or of an unknown schedule, is not drawn: the page says so, and holds all else."""
    monkeypatch.setattr(lanes, "MOST_ACTIONS", 10)
    page = plan_page(document("llama3-8b_7"))
    assert "more than a page of this kind holds" in page
    assert 'class="lane"' not in page
    strange = sample_document(parallelism=sample_document().parallelism.replaced(schedule="unheard-of"), launchers={})
    page = plan_page(strange)
    assert "parallelism.schedule must be one of" in page
    assert "15.62" in page


def test_launchers_that_can_are_given_their_commands() -> None:
    """The script of every launcher that can run the plan; of one that only the document says can, the reason."""
    page = page_of("mixtral-8x7b_64")
    able = [name for name, answer in document("mixtral-8x7b_64").launchers.items() if answer.expressible]
    assert able
    for name in able:
        assert f'id="script-{name}"' in page
    told = plan_page(sample_document())  # says megatron can, which today's rules deny
    assert "megatron: by the rules of this version" in told
    assert 'id="script-megatron"' not in told


def test_answers_to_questions_have_pages() -> None:
    """A frontier without a plan, upgrades and the cheapest cluster."""
    from planner.capacity import Capacity, Tried
    from planner.economics import Economy, economics
    from planner.study.cheapest import Cheapest, Option
    from planner.study.upgrades import Upgrade, Upgrades
    from planner.summary import PlanSummary

    nothing = Capacity("min-gpus", None, True, (Tried(8, False, "<too> much", None, None, 8),), ("a note",), None)
    economy = Economy.of(tokens="1T", days=30, price="2")
    plan = PlanSummary.of(document("llama3-8b_8"))
    money = economics(plan, economy)
    upgrades = Upgrades(
        plan, money, (Upgrade("memory", "25% more memory", 1.25, plan, money, (), 0.0, 0.0),), ("planned again",)
    )
    option = Option("h100-sxm", 1, 8, plan, money, ())
    failed = Option("l4", 1, 8, None, None, ("nothing <fits>",))
    cheapest = Cheapest(option, {"h100-sxm": option}, (option, failed), ("notes",))
    for page in (capacity_page(nothing), question_page(upgrades, economy), question_page(cheapest, economy)):
        parts = taken_apart(page)
        assert (parts.wrong, parts.unclosed) == ([], [])
        assert len(parts.ids) == len(set(parts.ids))
        assert len(parts.scripts) == 1
    assert "&lt;too&gt; much" in capacity_page(nothing)
    assert "nothing &lt;fits&gt;" in question_page(cheapest, economy)
    assert "What single upgrades bring" in question_page(upgrades, economy)


def test_pages_are_small() -> None:
    """A plan of two thousand actions takes half a megabyte, a study of a dozen scenarios a fifth."""
    assert len(page_of("llama3-70b_256")) < 500_000
    assert len(page_of_study()) < 200_000

"""Takes the picture of a report that the docs show: `python scripts/screenshot.py [PLAN.json] [PICTURE.png]`.

It needs a Chromium on the PATH and playwright. The picture is the top of the page, as wide as docs show it.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from planner.document import read
from planner.report.html.plan import plan_page

ROOT = Path(__file__).resolve().parents[1]
PLAN = ROOT / "tests" / "golden" / "llama3-70b_256.json"
PICTURE = ROOT / "docs" / "report.png"
WIDE, HIGH = 1200, 1420
MOST_BYTES = 300_000


def main(plan: str | Path = PLAN, picture: str | Path = PICTURE) -> None:
    """Writes the picture; leaves with a message where a browser is missing or the picture is too large."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("no Chromium on the PATH")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_file = Path(folder) / "report.html"
        page_file.write_text(plan_page(read(plan)), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDE, "height": HIGH})
        page.goto(page_file.as_uri())
        # The parts with charts, without the words between: the docs have words of their own.
        page.add_style_tag(content=".top nav,#theme,#reasons,#stages{display:none!important}")
        page.screenshot(path=str(picture), clip={"x": 0, "y": 0, "width": WIDE, "height": HIGH})
        browser.close()
    size = Path(picture).stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{picture} has {size:,} bytes, more than {MOST_BYTES:,}")


if __name__ == "__main__":
    main(*sys.argv[1:3])

"""A headless Chromium for tests of pages; where there is none, or nothing that drives it, they are skipped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium (Debian: apt-get install chromium)"
UNDRIVEN = "playwright is not installed (pip install playwright; its own browsers are not needed)"


def executable() -> str | None:
    """The browser's path; None where none is found."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def reason_to_skip() -> str | None:
    """Why pages cannot be looked at here; None where they can."""
    if executable() is None:
        return MISSING
    return None if find_spec("playwright") else UNDRIVEN


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser that is closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Shown:
    """A page in the browser, and everything that went wrong or left the machine since it was opened."""

    page: Any
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.faults.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", lambda request: self._note(request.url))

    def _note(self, url: str) -> None:
        if not url.startswith(("file:", "blob:")):
            self.faults.append(f"request: {url}")

    def evaluate(self, script: str) -> Any:
        """What a script in the page gives."""
        return self.page.evaluate(script)


@contextmanager
def shown(browser: Any, path: Path, *, wide: int = 1280, scheme: str = "light") -> Iterator[Shown]:
    """A page in a window of its own."""
    context = browser.new_context(
        viewport={"width": wide, "height": 900}, color_scheme=scheme, permissions=[], accept_downloads=True
    )
    opened = Shown(context.new_page())
    try:
        opened.page.goto(path.as_uri())
        yield opened
    finally:
        context.close()

"""Rendering: one HTML file of a template, the style and the script of all pages, and what is to be shown."""

import base64
import hashlib
from typing import Any

from planner.report.jinja import environment
from planner.report.palette import DARK, LIGHT, declarations
from planner.timeline.drawing import CLASSES

__all__ = ["FLAG", "rendered"]

FLAG = "--report"
PACKAGES = (("planner.report.html", "templates"), ("planner.timeline", ""))


def rendered(template: str, **values: Any) -> str:
    """The page. Its policy lets it run its own script and load nothing. Raises RequestError without jinja2."""
    from markupsafe import Markup

    templates = environment(FLAG, *PACKAGES)
    script = templates.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    colours = {"light": Markup(declarations(LIGHT)), "dark": Markup(declarations(DARK))}
    page = templates.get_template(template).render(
        script=Markup(script), script_digest=digest, colours=colours, drawing=Markup(CLASSES), **values
    )
    return page.rstrip() + "\n"

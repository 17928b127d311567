"""Numbers on a page: each is read from a document by the path of its field, and the page says which one it is."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from planner.report.quantities import percent

__all__ = ["Fields", "Number"]


@dataclass(frozen=True)
class Number:
    """A number as it is shown: its text, the exact value behind it, and the field that holds it."""

    field: str
    value: float
    text: str

    def __html__(self) -> Markup:
        # A number does not leave its unit behind at the end of a line.
        text = self.text.replace(" ", "\N{NO-BREAK SPACE}")
        return Markup('<data value="{}" data-field="{}">{}</data>').format(f"{self.value:.9g}", self.field, text)

    def __str__(self) -> str:
        return self.text


class Fields:
    """The numbers of one document.

    >>> from planner.document import read
    >>> fields = Fields(read("tests/golden/llama3-8b_8.json"))
    >>> str(fields("parallelism.gpus_used"))
    '8'
    """

    def __init__(self, document: Any) -> None:
        self._document = document

    def value(self, field: str) -> Any:
        """What the document has at a path such as `stages[0].layers`."""
        found = self._document
        for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", field):
            key = int(index) if index else name
            found = found[key] if index or isinstance(found, Mapping) else getattr(found, name)
        return found

    def __call__(self, field: str, shown: Callable[[float], str] = lambda value: f"{value:,}") -> Number:
        """The number of a field, in the form that `shown` gives it."""
        value = self.value(field)
        return Number(field, value, shown(value))

    def share(self, part: str, whole: str, decimals: int = 1) -> Number:
        """One field as a share of another, in percent."""
        of = self.value(whole)
        fraction = self.value(part) / of if of else 0.0
        return Number(f"{part} / {whole}", fraction, percent(fraction, decimals))

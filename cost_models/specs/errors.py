"""Errors about inputs. Each is one plain line (or a few) that names the field, the value and what is allowed.

ValueError
└── SpecError               an input breaks its description
    ├── UnitError           a size, length or count cannot be read
    └── UnknownNameError    a name that no catalog entry and no field has
"""

import difflib
from collections.abc import Iterable


class SpecError(ValueError):
    """An input that breaks its description; the message is ready to print."""


class UnitError(SpecError):
    """A size, length or count that cannot be read, or is out of range."""


class UnknownNameError(SpecError):
    """A name that is not in the catalog; the message lists the nearest ones."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'hidden'?" for the nearest known names (at most 3), an empty string when none is near."""
    near = difflib.get_close_matches(name.lower(), sorted(known), n=3, cutoff=0.6)
    if not near:
        return ""
    likeness = [difflib.SequenceMatcher(None, candidate, name.lower()).ratio() for candidate in near]
    nearest = [candidate for candidate, like in zip(near, likeness, strict=True) if like >= likeness[0] - 0.1]
    quoted = [f"'{candidate}'" for candidate in nearest]
    return f"; did you mean {' or '.join(quoted)}?"

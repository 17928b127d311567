"""Pages are made with jinja2, which planning does without."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from planner.errors import RequestError

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["environment", "require_jinja"]


def require_jinja(flag: str) -> None:
    """Nothing where jinja2 is installed. Raises RequestError otherwise, which names the flag that asks for a page."""
    if find_spec("jinja2") is None:
        message = f"{flag} needs jinja2: pip install 'meshplan[report]'"
        raise RequestError(message)


def environment(flag: str, *packages: tuple[str, str]) -> "Environment":
    """What renders the templates in (package, folder) pairs: values are escaped, a missing one is an error.

    Raises RequestError where jinja2 is not installed.
    """
    require_jinja(flag)
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loaders = [PackageLoader(package, folder) for package, folder in packages]
    return Environment(
        loader=ChoiceLoader(loaders), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )

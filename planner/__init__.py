"""What a plan is, and the search that makes one (floor 1).

>>> from planner import plan, what_if

Both are in planner/interface.py. Importing this package loads nothing: a training rank imports planner.document.
"""

TYPE_CHECKING = False  # as typing has it, without loading typing
if TYPE_CHECKING:
    from planner.interface import plan, what_if

__all__ = ["plan", "what_if"]


def __getattr__(name: str) -> object:
    """The interface's functions, loaded when first asked for. Raises AttributeError."""
    if name not in __all__:
        message = f"module 'planner' has no attribute '{name}'"
        raise AttributeError(message)
    import planner.interface

    return getattr(planner.interface, name)

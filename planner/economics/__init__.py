"""Days, money, energy and reliability of a training run, from its plan and from stated assumptions."""

from planner.economics.assumptions import Economy
from planner.economics.outlook import Economics, economics

__all__ = ["Economics", "Economy", "economics"]

"""What `--why-not` says of a layout is what costing that layout by itself says: one model, asked in two ways."""

import random
from functools import lru_cache

import numpy as np
import pytest

from planner.document import PlanDocument
from planner.evaluate.runs import read_runs
from planner.evaluate.predictions import predictions
from planner.fixed import fixed_candidate, layout_of, planned, stages_of
from planner.predict import CostModel
from planner.request import PlanRequest, build_request
from planner.search import plan
from planner.space import layouts, meshes
from planner.why_not import Answer, why_not
from tests.oracles.spaces import EXPERTS, ODD_HEADS, SLOW_NETWORK, Space

"""What every test runs under: property tests are the same on every run, and no slower machine makes one fail."""

import os
import tempfile
from pathlib import Path

from hypothesis import settings

# Expressions are kept between tests, and not among the user's own.
os.environ.setdefault("MESHPLAN_CACHE", str(Path(tempfile.gettempdir()) / "meshplan-tests"))

settings.register_profile("meshplan", deadline=None, derandomize=True)
settings.load_profile("meshplan")

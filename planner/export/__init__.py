"""Plans in launchers' own forms, and back: one module a launcher, all with `bundle` and `plan`."""

from planner.export.bundle import JOB_FILE, LAUNCH_FILE, Bundle, Job, files_in, written
from planner.export.exporters import EXPORTERS, exported, imported

__all__ = [
    "EXPORTERS",
    "JOB_FILE",
    "LAUNCH_FILE",
    "Bundle",
    "Job",
    "exported",
    "files_in",
    "imported",
    "written",
]

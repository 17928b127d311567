"""`python -m tests.golden` writes the golden plans anew; review what changed as a diff."""

from tests.golden.jobs import JOBS, regenerate

changed = regenerate()
print(f"{len(changed)} of {len(JOBS)} golden plans changed{': ' if changed else ''}{', '.join(changed)}")

"""What a run took and where it ran: everything that must not enter the document, which is the same everywhere."""

import json
import os
import platform
import resource
import sys

from planner.document import PlanDocument


def statistics(document: PlanDocument, search_wall_time_s: float) -> str:
    """Wall and CPU times, machine facts and the size of the search, as JSON text.

    CPU seconds are those of all processes of the search, the peak is that of the largest.
    """
    usage, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    facts = {
        "tool_version": document.tool_version,
        "search_wall_time_s": search_wall_time_s,
        "cpu_time_s": sum(each.ru_utime + each.ru_stime for each in (usage, others)),
        "peak_resident_bytes": max(usage.ru_maxrss, others.ru_maxrss) * unit_bytes,
        "layouts": document.certificate.layouts,
        "rows": document.certificate.rows,
        "status": document.certificate.status,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
    }
    return json.dumps(facts, indent=2) + "\n"

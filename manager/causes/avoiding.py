"""Links that lose packets of jobs though probes pass: for a while the planner sends nothing over them.

Once nothing goes over a link nothing of it is lost, so it is used again after a while, and avoided for longer with each relapse.
"""

from manager.faults.dead_links import Suspicions

AVOIDED_S, AVOIDED_MOST_S = 60.0, 3_600.0
FORGET_S = 7_200.0


def links_to_avoid() -> Suspicions:
    """Those of one fleet."""
    return Suspicions(AVOIDED_S, AVOIDED_MOST_S, FORGET_S)

"""The checks that are not about facts of hosts: the manager makes them of what it knows of the fabric. Waivers name them too."""

from manager.audit.network import pairs, standing, subnets, walked
from manager.audit.throughput import judged

OF_FABRIC = frozenset(
    {
        standing.FAULTS,
        standing.WIRING,
        standing.PROBED,
        standing.DELAYS,
        pairs.REACHABLE,
        walked.MTU,
        walked.DSCP,
        walked.ECN,
        judged.THROUGHPUT,
        judged.BISECTION,
        judged.NIC_RATE,
        *subnets.CHECKS,
    }
)

"""When all paths have been found: the stopping rule of the Multipath Detection Algorithm. Pure.

Augustin, Friedman, Teixeira, "Multipath tracing with Paris traceroute" (E2EMON 2007): with k + 1 equally likely paths,
n ports miss a certain one with probability (k / (k + 1))^n, and any of them with no more than k + 1 times that.
"""

CONFIDENCE = 0.99


def confidence(ports: int, distinct: int) -> float:
    """How sure it is that there is no further equally likely path, 0 to 1.

    Args:
        ports: source ports that were traced.
        distinct: different paths that they lead over.
    """
    if distinct <= 0 or ports < distinct:
        return 0.0
    missed = (distinct + 1) * (distinct / (distinct + 1)) ** ports
    return max(0.0, 1.0 - missed)

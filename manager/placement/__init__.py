"""Which path each queue pair takes, so that the fullest link is as little full as can be. Pure functions over arrays.

A fabric is links with capacities; a pair of places has candidate paths over them; a queue pair belongs to a pair and
has a rate. Placing whole queue pairs best is NP-hard (it contains bin packing). So they are placed greedily, largest
rate first (`place`), and then moved away from the fullest link, one by one or in chains (`improve`). How
good a placement can be at all is in `manager.placement.bounds`, for tests and benchmarks.
"""

from manager.placement.greedy import place, replace_lost
from manager.placement.improve import improve
from manager.placement.model import Demand, Fabric, PathSet, fullest, link_loads, utilisation

__all__ = [
    "Demand",
    "Fabric",
    "PathSet",
    "fullest",
    "improve",
    "link_loads",
    "place",
    "replace_lost",
    "utilisation",
]

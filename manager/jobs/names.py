"""What jobs are called. Pure."""

from collections import Counter
from collections.abc import Sequence

from cwdp.shared.bus.messages import host_of
from manager.hosts.order import in_order
from manager.jobs.inference import Job


def named(found: Sequence[Job]) -> dict[str, Job]:
    """Jobs by what their processes call them, else by their first hosts; a number behind names that are equal."""
    by_name: dict[str, Job] = {}
    seen: Counter[str] = Counter()
    for job in found:
        name = job.named or host_of(in_order(job.members)[0])
        seen[name] += 1
        by_name[name if seen[name] == 1 else f"{name}#{seen[name]}"] = job
    return by_name

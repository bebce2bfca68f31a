"""What uprobes would find."""

from cwdp.agent.config import UprobesConfig
from cwdp.agent.uprobes.cgroups import find, mounts
from cwdp.agent.uprobes.requirements import lack
from cwdp.doctor.facts import Problem, Uprobes


def read_uprobes(config: UprobesConfig) -> Uprobes | None:
    """What they lack; None where they are off."""
    if not config.cgroups:
        return None
    lacking = lack()
    return Uprobes(
        lack=None if lacking is None else Problem(lacking.what, lacking.next_step),
        missing=find(config.cgroups, mounts()).missing,
    )

"""Uprobes: whether they can be compiled here, and whose programs they are for."""

from collections.abc import Iterator

from cwdp.doctor.facts import Facts
from cwdp.doctor.result import Result


def tracing(facts: Facts) -> Iterator[Result]:
    """Where the configuration names cgroups: bcc and headers, and the cgroups."""
    if facts.uprobes is None or facts.config is None:
        return
    lack, missing = facts.uprobes.lack, facts.uprobes.missing
    if lack is not None:
        yield Result(name="uprobes", verdict="warn", what=lack.message, next_step=lack.hint)
    else:
        yield Result(name="uprobes", verdict="ok", what="bcc and kernel headers are there")
    names = ", ".join(facts.config.uprobes.cgroups)
    if missing:
        what = f"there is no cgroup {', '.join(missing)}, so none of its programs is traced"
        step = "start what makes it, or name another in [uprobes]: cat /proc/PID/cgroup has that of a program"
        yield Result(name="traced cgroups", verdict="warn", what=what, next_step=step)
    else:
        yield Result(name="traced cgroups", verdict="ok", what=f"programs of {names} are traced")

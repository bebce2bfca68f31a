"""The host's clock. Hardware timestamps are not used."""

from collections.abc import Iterator

from cwdp.doctor.facts import Facts
from cwdp.doctor.result import Result

STEADY = frozenset(
    {
        "tsc",
        "kvm-clock",
        "hyperv_clocksource_tsc_page",
        "arch_sys_counter",
        "xen",
        "timebase",
        "riscv_clocksource",
    }
)
REALTIME = frozenset({"chronyd", "ntpd", "ntpd-rs", "systemd-timesyncd", "openntpd", "phc2sys"})
"""Daemons that set the system's clock; ptp4l sets that of a NIC."""


def hardware(facts: Facts) -> Iterator[Result]:
    """What the kernel counts time by."""
    found = facts.clock.hardware
    if found in STEADY:
        yield Result(name="clock source", verdict="ok", what=found)
        return
    what = f"{found or 'unknown'}: slow to read, and often coarse"
    step = "see why it is not tsc: dmesg | grep -i -e tsc -e clocksource"
    yield Result(name="clock source", verdict="warn", what=what, next_step=step)


def discipline(facts: Facts) -> Iterator[Result]:
    """What changes the clock, and whether the agent can follow it."""
    name, clock = "clock discipline", facts.clock
    daemons = ", ".join(clock.daemons) or "nothing"
    setting = REALTIME.intersection(clock.daemons)
    if clock.source == "none":
        what = f"CLOCK_MONOTONIC_RAW cannot be read; {daemons} disciplines the clock unseen"
        step = "see docs/troubleshooting.md, what disciplines a host's clock"
        yield Result(name=name, verdict="warn", what=what, next_step=step)
    elif len(setting) > 1:
        what = f"{' and '.join(sorted(setting))} set one clock against each other"
        yield Result(name=name, verdict="warn", what=what, next_step="stop all but one of them")
    else:
        what = f"{daemons} disciplines it; the agent follows that by {clock.source}"
        yield Result(name=name, verdict="ok", what=what)

"""The kernel, and the clock that it keeps."""

import os
from pathlib import Path
from typing import Literal

from cwdp.agent.clock.discipline import Clocks
from cwdp.agent.programs.waits import processor_waits_ns
from cwdp.dataplane.loading.loader import KERNEL_BTF
from cwdp.dataplane.pinned import tree
from cwdp.doctor.facts import Clock, Kernel
from cwdp.doctor.reading.processes import names
from cwdp.shared.audit.daemons import DAEMONS

CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def read_kernel() -> Kernel:
    """The kernel, and what this process may do with it."""
    return Kernel(
        release=os.uname().release,
        has_btf=KERNEL_BTF.exists(),
        has_jit=_has_jit(),
        capabilities=tree.effective_capabilities(),
        bpffs=_bpffs(),
        available_bytes=_available_bytes(),
        tells_waits=processor_waits_ns() is not None,
    )


def read_clock() -> Clock:
    """What time it keeps."""
    clocks = Clocks()
    clocks.read()
    running = {DAEMONS[name] for name in names() if name in DAEMONS}
    return Clock(source=clocks.source, hardware=text(CLOCK_SOURCE), daemons=sorted(running))


def text(path: Path) -> str:
    """What a file holds; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _has_jit() -> bool | None:
    found = text(Path("/proc/sys/net/core/bpf_jit_enable"))
    return None if not found else found != "0"


def _bpffs() -> Literal["writable", "read-only", "missing"]:
    if not tree.is_bpffs():
        return "missing"
    return "writable" if os.access(tree.BPFFS, os.W_OK) else "read-only"


def _available_bytes() -> int:
    for line in text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0

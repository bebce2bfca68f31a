"""What the dataplane needs of the kernel."""

import re
from collections.abc import Iterator

from cwdp.dataplane.pinned.tree import BPFFS, CAP_SYS_ADMIN, CAPABILITIES
from cwdp.doctor.facts import Facts
from cwdp.doctor.result import Result

OLDEST, WITH_TCX = (5, 18), (6, 6)
CAP_NET_RAW, CAP_SYS_NICE = 13, 23
MIB = 1 << 20
NIC_BYTES, AGENT_BYTES = 32 * MIB, 256 * MIB
"""What a NIC's maps take, and what the agent's processes take, rounded up."""


def version(facts: Facts) -> Iterator[Result]:
    """Whether the kernel is new enough."""
    release = facts.kernel.release
    found = re.match(r"(\d+)\.(\d+)", release)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    if number < OLDEST:
        what = f"{release} is too old: XDP for packets in several buffers came with 5.18"
        yield Result(
            name="kernel",
            verdict="fail",
            what=what,
            next_step="boot a kernel of 5.18 or newer, such as Debian 12's",
        )
        return
    held = "a TCX link" if number >= WITH_TCX else "clsact, as TCX links came with 6.6"
    yield Result(name="kernel", verdict="ok", what=f"{release}; tc egress is held by {held}")


def btf(facts: Facts) -> Iterator[Result]:
    """Whether it describes its types."""
    if facts.kernel.has_btf:
        yield Result(name="BTF", verdict="ok", what="the kernel describes its types")
        return
    step = "boot a kernel with CONFIG_DEBUG_INFO_BTF, as distributions have them"
    yield Result(name="BTF", verdict="fail", what="/sys/kernel/btf/vmlinux is missing", next_step=step)


def jit(facts: Facts) -> Iterator[Result]:
    """Whether programs are compiled."""
    match facts.kernel.has_jit:
        case True:
            yield Result(name="JIT", verdict="ok", what="eBPF programs are compiled")
        case False:
            step = "sysctl -w net.core.bpf_jit_enable=1"
            yield Result(
                name="JIT", verdict="warn", what="eBPF programs are interpreted, slowly", next_step=step
            )
        case None:
            what = "whether eBPF programs are compiled cannot be read here"
            yield Result(name="JIT", verdict="ok", what=what)


def privileges(facts: Facts) -> Iterator[Result]:
    """Whether this process has what the agent needs."""
    held = facts.kernel.capabilities
    if held >> CAP_SYS_ADMIN & 1:
        held |= 1 << CAPABILITIES["CAP_PERFMON"] | 1 << CAPABILITIES["CAP_BPF"]
    needed = CAPABILITIES | {"CAP_NET_RAW": CAP_NET_RAW}
    if missing := [name for name, bit in needed.items() if not held >> bit & 1]:
        what = f"this process lacks {', '.join(missing)}; what needs them is not seen either"
        yield Result(
            name="privileges", verdict="fail", what=what, next_step="run it as root: sudo cwdp doctor"
        )
    elif not held >> CAP_SYS_NICE & 1:
        what = "CAP_SYS_NICE is missing: pulses are late on a busy host"
        step = "give the agent CAP_SYS_NICE, as its unit does"
        yield Result(name="privileges", verdict="warn", what=what, next_step=step)
    else:
        yield Result(name="privileges", verdict="ok", what="all capabilities that the agent needs")


def pressure(facts: Facts) -> Iterator[Result]:
    """Whether it tells for how long programs wait for a processor."""
    name = "pressure"
    if facts.kernel.tells_waits:
        yield Result(name=name, verdict="ok", what="waits for a processor are told")
        return
    what = "/proc/pressure/cpu is missing: a taken processor is not told from a rank that computes longer"
    yield Result(name=name, verdict="warn", what=what, next_step="boot with psi=1")


def bpffs(facts: Facts) -> Iterator[Result]:
    """Whether objects can be pinned."""
    name = "bpffs"
    match facts.kernel.bpffs:
        case "writable":
            what = f"{BPFFS} can be written; it has no limit but memory"
            yield Result(name=name, verdict="ok", what=what)
        case "read-only":
            step = "in a unit: ProtectKernelTunables=no; in a container: mount the host's /sys/fs/bpf for writing"
            yield Result(name=name, verdict="fail", what=f"{BPFFS} cannot be written", next_step=step)
        case "missing":
            what = f"there is no BPF file system at {BPFFS}"
            yield Result(name=name, verdict="fail", what=what, next_step=f"mount -t bpf bpf {BPFFS}")


def memory(facts: Facts) -> Iterator[Result]:
    """Whether there is memory for maps that are still to be made, and for the agent."""
    unloaded = sum(nic.dataplane is None for nic in facts.nics)
    needed = unloaded * NIC_BYTES + (0 if facts.agent.processes else AGENT_BYTES)
    there = facts.kernel.available_bytes
    what = f"{there // MIB:,} MiB are available, {needed // MIB} MiB more are needed"
    if needed <= there:
        yield Result(name="memory", verdict="ok", what=what)
    else:
        yield Result(
            name="memory", verdict="warn", what=what, next_step="see what takes it: ps aux --sort=-rss"
        )

"""What a host sends, held to a rate where its switch takes it in.

A host's own queue holds only what its network stack sends: what it reflects with XDP_TX passes by it. A NIC that is
slow to send delays both. So the switch's port passes what comes on to one end of a veth pair, which has the rate and the
queue, and whose other end is in the same switch and bears the port's MAC.
"""

import struct
from contextlib import suppress
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.errors import LabError
from tools.lab.network import shaping
from tools.lab.topology import LabSpec, Link, Port

OBJECT = Path(__file__).parents[3] / "build/bpf/lab_inbound.bpf.o"

_PROGRAM = "lab_inbound"
_IN, _OUT = "-in", "-out"


def queue_name(port: str) -> str:
    """The interface that has the queue of what comes in by a port."""
    return f"{port}{_IN}"


def hold(ip: IPRoute, port: Port, link: Link, rate_bps: int, spec: LabSpec) -> None:
    """Hold what comes in by a port of a switch to a rate.

    Args:
        ip: of the switch's namespace.
        port: the switch's end of the link.
        link: it says how much may wait.
        rate_bps: what passes.
        spec: of the lab.

    Raises:
        LabError: the program is not built.
    """
    if not OBJECT.exists():
        raise LabError(f"{OBJECT.name} is not built", "Run `make setup`.")
    into, out = queue_name(port.name), f"{port.name}{_OUT}"
    if not ip.link_lookup(ifname=into):
        peer = {"ifname": out, "address": port.mac, "mtu": spec.mtu}
        ip.link("add", kind="veth", ifname=into, mtu=spec.mtu, peer=peer)
    for ifname in (into, out):
        ip.link("set", index=_index(ip, ifname), state="up")
    queue = _index(ip, into)
    shaping.set_rate(ip, queue, rate_bps, link.queue_bytes, spec.frame_bytes)
    with BpfObject(OBJECT) as program:
        program.set_initial_value(".rodata", struct.pack("=I", queue))
        program.load()
        shaping.attach_redirect(ip, _index(ip, port.name), program.program_fd(_PROGRAM), OBJECT.name)


def release(ip: IPRoute, port: str) -> None:
    """Let what comes in by a port pass at once again; it need not be held."""
    found = ip.link_lookup(ifname=queue_name(port))
    if found:
        with suppress(NetlinkError):
            shaping.detach_redirect(ip, _index(ip, port))
        ip.link("del", index=found[0])


def _index(ip: IPRoute, ifname: str) -> int:
    return int(ip.link_lookup(ifname=ifname)[0])

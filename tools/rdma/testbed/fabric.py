"""The lab's fabric with Soft-RoCE hosts, all in one kernel.

The sockets of Soft-RoCE belong to the first network namespace (up to Linux 6.12 at least). So the hosts' NICs are
moved there, and the switches stay in namespaces. Two things keep the traffic on the wire: what one NIC's address sends
to another's is routed before the kernel looks whether the destination is its own, and every NIC has a MAC of its own
(`rdma_rxe` loops packets back inside when source and destination have the same).

Moving a queue pair must reorder nothing, or it would not be known what a retransmission comes from. So the hosts' links
are slow and those of the spines never have a queue: packets wait at the senders and no path is longer than another. And
one CPU forwards all that the hosts send, as two could overtake each other.
"""

import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from pyroute2 import IPRoute

from cwdp.errors import LabError
from cwdp.rdma import sysfs
from tools.lab import LabSpec, faults, lifecycle
from tools.lab.network import fabric, shaping
from tools.lab.topology import Topology

LAB = LabSpec(
    name="rdma",
    leaves=2,
    spines=4,
    hosts_per_leaf=2,
    rate_bps=20_000_000,
    spine_rate_bps=30_000_000_000,
    queue_bytes=2**20,
    spine_queue_bytes=2**20,
)
"""A queue takes the windows of two queue pairs (128 packets of 4 KiB each), so that nothing is lost to congestion."""

Address = IPv4Address | IPv6Address

_SYSCTLS = {
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/all/accept_local": "1",
    "ipv6/conf/default/accept_dad": "0",
    "ipv6/conf/default/accept_ra": "0",
    "ipv6/conf/default/router_solicitations": "0",
}
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_TO_THE_WIRE = 10  # priority of the rules that come before the local table
_LOCAL_RULE = 100
_LOCAL_TABLE = 255
_FIRST_TABLE = 100
_ONLINK = 4  # RTNH_F_ONLINK
_PERMANENT = 0x80  # NUD_PERMANENT
_NO_DUPLICATE_DETECTION = 0x02  # IFA_F_NODAD
_ONE_CPU = "for cpus in /sys/class/net/h*/queues/rx-*/rps_cpus; do echo 1 > $cpus; done"


@dataclass(frozen=True)
class RdmaHost:
    """A host of the fabric: its NIC in the first namespace, and the Soft-RoCE device on it with the index of each GID."""

    name: str
    ifname: str
    device: str
    ipv4: IPv4Address
    ipv6: IPv6Address
    gids: Mapping[Address, int]

    def address(self, version: int) -> Address:
        """Return the NIC's address of IP version 4 or 6."""
        return self.ipv6 if version == 6 else self.ipv4

    def gid_index(self, version: int) -> int:
        """Return the index of the GID that is the NIC's address of IP version 4 or 6."""
        return self.gids[self.address(version)]


def up() -> list[RdmaHost]:
    """Raise the fabric and its hosts, in a kernel that has `rdma_rxe` and nothing of the kind yet.

    Raises:
        LabError: the kernel refused a step.
    """
    lifecycle.up(LAB)
    topology = Topology(LAB)
    for key, value in _SYSCTLS.items():
        Path("/proc/sys/net", key).write_text(value)
    with lifecycle.kernel_errors("to bring the NICs into the first namespace"), IPRoute() as ip:
        _put_local_table_last(ip)
        for number, host in enumerate(topology.hosts, start=1):
            _move(topology, host, _ifname(number))
            _configure(ip, topology, host, number)
    for leaf in topology.leaves:
        _run("ip", "netns", "exec", topology.netns(leaf), "sh", "-c", _ONE_CPU)
    for number in range(1, len(topology.hosts) + 1):
        _run("rdma", "link", "add", _device(number), "type", "rxe", "netdev", _ifname(number))
    faults.prepare_silence(LAB.name, topology)
    return _hosts(topology)


@contextmanager
def silent(link: str) -> Iterator[None]:
    """Have a link between a leaf and a spine lose everything both ways, from one moment to another; its carrier stays."""
    faults.drop(LAB.name, link, 1.0)
    try:
        yield
    finally:
        faults.drop(LAB.name, link, 0.0)


def _hosts(topology: Topology) -> list[RdmaHost]:
    gids: dict[str, dict[Address, int]] = {}
    for gid in sysfs.gids():
        address = IPv6Address(gid.gid)
        gids.setdefault(gid.device, {})[address.ipv4_mapped or address] = gid.index
    return [
        RdmaHost(name, _ifname(number), _device(number), nic.ipv4, nic.ipv6, gids[_device(number)])
        for number, name in enumerate(topology.hosts, start=1)
        for nic in topology.nics[name]
    ]


def _ifname(number: int) -> str:
    return f"r{number}"


def _device(number: int) -> str:
    return f"rxe{number}"


def _put_local_table_last(ip: IPRoute) -> None:
    for family in _FAMILIES.values():
        ip.rule("add", family=family, priority=_LOCAL_RULE, table=_LOCAL_TABLE)
        ip.rule("del", family=family, priority=0, table=_LOCAL_TABLE)


def _move(topology: Topology, host: str, ifname: str) -> None:
    """Bring a host's NIC from its namespace into this one, under another name."""
    with Path("/proc/self/ns/net").open() as here, fabric.open_nodes(topology, [host]) as nodes:
        index = nodes[host].index(topology.nics[host][0].name)
        nodes[host].ip.link("set", index=index, net_ns_fd=here.fileno(), ifname=ifname)


def _configure(ip: IPRoute, topology: Topology, host: str, number: int) -> None:
    """Give a NIC what it lost by moving, and a way out for what has its address or is bound to it."""
    nic, table = topology.nics[host][0], _FIRST_TABLE + number
    index = ip.link_lookup(ifname=_ifname(number))[0]
    ip.link("set", index=index, state="up")
    shaping.set_rate(ip, index, LAB.rate_bps, LAB.queue_bytes, LAB.frame_bytes)
    leaf_mac = topology.link(f"{host}-{nic.leaf}").b.mac
    ways: Iterable[tuple[Address, Address]] = zip(
        (nic.ipv4, nic.ipv6), topology.gateways(nic.leaf), strict=True
    )
    for address, gateway in ways:
        family, bits = _FAMILIES[address.version], address.max_prefixlen
        flags = _NO_DUPLICATE_DETECTION if address.version == 6 else 0
        ip.addr("add", index=index, address=str(address), prefixlen=bits, flags=flags)
        ip.neigh("add", family=family, dst=str(gateway), lladdr=leaf_mac, ifindex=index, state=_PERMANENT)
        way_out = {"dst": "default", "gateway": str(gateway), "oif": index, "flags": _ONLINK}
        ip.route("add", family=family, table=table, **way_out)
        from_address = {"src": str(address), "src_len": bits, "iifname": "lo"}
        for chosen_by in (from_address, {"oifname": _ifname(number)}):
            ip.rule("add", family=family, priority=_TO_THE_WIRE, table=table, **chosen_by)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(argv)}` failed: {done.stderr.strip()}", "Is the module rdma_rxe loaded?")

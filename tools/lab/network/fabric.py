"""Building the fabric in the kernel: namespaces, veth pairs, addresses, neighbours, routes and queues."""

import os
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.errors import LabError
from tools.lab.network import inbound, netns, shaping
from tools.lab.network.routing import Route, switch_routes
from tools.lab.topology import MGMT, MGMT_ADDRESS, MGMT_PORT, MGMT_PREFIX_LENGTH, Link, Port, Topology

PORT_OBJECT = Path(__file__).parents[3] / "build/bpf/lab_port.bpf.o"

_ONLINK = 4  # RTNH_F_ONLINK
_PERMANENT = 0x80  # NUD_PERMANENT
_NO_DUPLICATE_DETECTION = 0x02  # IFA_F_NODAD
_LOOPBACK_INDEX = 1
_FIRST_INDEX = 10_000
_FIRST_MGMT_INDEX = 100_000
_BRIDGE = "br0"
_MGMT_MTU = 1500
_NIC_TABLE = 100  # the policy-routing table of nic<i> is 100 + i
_NO_SUCH_ROUTE = 3  # ESRCH

_ALL_NODES = {
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv4/ping_group_range": "0 2147483647",
    "ipv6/conf/default/accept_dad": "0",
    "ipv6/conf/default/accept_ra": "0",
    "ipv6/conf/default/router_solicitations": "0",
    # A flow label is a hash, which the kernel keeps with the packet: every switch would choose by it, and all alike.
    "ipv6/auto_flowlabels": "0",
}
_SWITCHES = {
    "ipv4/ip_forward": "1",
    "ipv6/conf/all/forwarding": "1",
    "ipv4/fib_multipath_hash_policy": "1",
    "ipv6/fib_multipath_hash_policy": "1",
    "ipv4/conf/all/ignore_routes_with_linkdown": "1",
    "ipv4/conf/default/ignore_routes_with_linkdown": "1",
    "ipv6/conf/default/ignore_routes_with_linkdown": "1",
    "ipv4/icmp_ratelimit": "0",
    "ipv4/icmp_ratemask": "0",
    "ipv4/icmp_msgs_per_sec": "1000000",
    "ipv4/icmp_msgs_burst": "1000000",
    "ipv6/icmp/ratelimit": "0",
    "ipv6/icmp/ratemask": "",
}
_BY_HEADERS = {
    "ipv4/fib_multipath_hash_policy": "3",
    "ipv6/fib_multipath_hash_policy": "3",
    "ipv4/fib_multipath_hash_fields": "55",  # both addresses and ports, the protocol
    "ipv6/fib_multipath_hash_fields": "63",  # and the flow label
}

Address = IPv4Address | IPv6Address


class Node:
    """A node's namespace with a netlink socket inside."""

    def __init__(self, name: str, namespace: str, ip: IPRoute) -> None:
        self.name = name
        self.netns = namespace
        self.ip = ip
        self._indices: dict[str, int] = {}

    def has(self, ifname: str) -> bool:
        """Return whether the interface exists."""
        return bool(self.ip.link_lookup(ifname=ifname))

    def index(self, ifname: str) -> int:
        """Return the index of an interface; the kernel is asked once for all of them."""
        if ifname not in self._indices:
            self._indices = {link.get_attr("IFLA_IFNAME"): link["index"] for link in self.ip.get_links()}
        if ifname not in self._indices:
            raise LabError(
                f"{self.netns} lacks the interface {ifname!r}", "Run `cwdp lab down`, then `cwdp lab up`."
            )
        return self._indices[ifname]


@contextmanager
def open_nodes(topology: Topology, names: Iterable[str]) -> Iterator[dict[str, Node]]:
    """Open netlink sockets in the namespaces of the named nodes; raise `LabError` if one is gone."""
    with ExitStack() as stack:
        yield {
            name: Node(
                name, topology.netns(name), stack.enter_context(netns.open_netlink(topology.netns(name)))
            )
            for name in names
        }


def build(topology: Topology, nodes: dict[str, Node]) -> None:
    """Make everything inside the namespaces, which exist and are empty."""
    for name, node in nodes.items():
        _set_sysctls(topology, name, node)
        _add_router_addresses(topology, name, node)
    for number, link in enumerate(topology.links.values()):
        _add_veth(nodes, link.a, link.b, topology.spec.mtu, _FIRST_INDEX + number)
    _build_mgmt(topology, nodes)
    for link in topology.links.values():
        for port in (link.a, link.b):
            shape_port(topology, nodes[port.node], link, link.rate_bps)
    for host in topology.hosts:
        _configure_host(topology, nodes[host])
    for switch in topology.switches:
        for link in topology.links_of(switch):
            configure_switch_port(topology, nodes[switch], link)
    install_routes(topology, nodes, down_links=())


def shape_port(topology: Topology, node: Node, link: Link, rate_bps: int) -> None:
    """Give a node's end of a link a rate, and the queue that the link was made with."""
    index = node.index(link.port_of(node.name).name)
    shaping.set_rate(node.ip, index, rate_bps, link.queue_bytes, topology.spec.frame_bytes)


def hold_inbound(topology: Topology, node: Node, link: Link, rate_bps: int | None) -> None:
    """Have a leaf take in what a host sends at a rate only, behind the queue that the link was made with; None undoes it."""
    port = link.port_of(node.name)
    if rate_bps is None:
        inbound.release(node.ip, port.name)
    else:
        inbound.hold(node.ip, port, link, rate_bps, topology.spec)


def configure_switch_port(topology: Topology, node: Node, link: Link) -> None:
    """Set what a switch port loses when it is set down: its neighbours and, below a leaf, the NIC's routes."""
    port, peer = link.port_of(node.name), link.peer_of(node.name)
    index = node.index(port.name)
    for address in _peer_addresses(topology, link, peer):
        _add_neighbour(node, index, address, peer.mac)
        if peer.node in topology.nics:
            node.ip.route("replace", family=_family(address), dst=_host_route(address), oif=index)
    if peer.node in topology.nics:
        _take_xdp_frames(node, index)


def install_routes(topology: Topology, nodes: dict[str, Node], down_links: Collection[str]) -> None:
    """Give every opened switch the routes that a routing protocol would find without `down_links`.

    The nearest to a destination come first and what is withdrawn last, so that nobody is sent where there is no way on.
    """
    opened = [
        (switch, route)
        for switch, routes in switch_routes(topology, down_links).items()
        if switch in nodes
        for route in routes
    ]
    opened.sort(key=lambda each: (not each[1].next_hops, each[1].distance))
    for switch, route in opened:
        _install_route(topology, nodes[switch], route)


def _install_route(topology: Topology, node: Node, route: Route) -> None:
    destination = route.destination
    family = _family(destination.network_address)
    v6 = family == socket.AF_INET6
    if not route.next_hops:
        with _ignored(_NO_SUCH_ROUTE):
            node.ip.route("del", family=family, dst=str(destination))
        return
    hops = [
        {"gateway": str(topology.gateways(hop)[v6]), "oif": node.index(hop), "flags": _ONLINK}
        for hop in route.next_hops
    ]
    source = str(topology.router_addresses(node.name)[v6])
    node.ip.route("replace", family=family, dst=str(destination), prefsrc=source, multipath=hops)


def _set_sysctls(topology: Topology, name: str, node: Node) -> None:
    values = dict(_ALL_NODES)
    if name in topology.switches:
        values |= _SWITCHES | (_BY_HEADERS if topology.spec.by_headers else {})
        # A seed of its own for each switch, the same in every lab: runs can be repeated path by path.
        values["ipv4/fib_multipath_hash_seed"] = str(1 + topology.switches.index(name))
    with netns.netns_enter(node.netns):
        for key, value in values.items():
            path = Path("/proc/sys/net") / key
            if path.exists():
                path.write_text(value + "\n")


def _add_router_addresses(topology: Topology, name: str, node: Node) -> None:
    if name in topology.switches:
        for address in topology.router_addresses(name):
            _add_address(node, _LOOPBACK_INDEX, address)


def _add_veth(nodes: dict[str, Node], a: Port, b: Port, mtu: int, index: int) -> None:
    """Make a veth pair in its two namespaces at once; the first end gets `index`, the other a small number.

    The numbers differ because the kernel reports a change of carrier at once only then (linkwatch takes a veth
    whose index is its peer's for a plain interface, and waits up to a second).
    """
    node_a, node_b = nodes[a.node], nodes[b.node]
    fd = os.open(netns.RUN_DIR / node_b.netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        peer = {"ifname": b.name, "address": b.mac, "mtu": mtu, "net_ns_fd": fd}
        node_a.ip.link(
            "add", kind="veth", index=index, ifname=a.name, address=a.mac, mtu=mtu, state="up", peer=peer
        )
    finally:
        os.close(fd)
    node_b.ip.link("set", index=node_b.index(b.name), state="up")


def _build_mgmt(topology: Topology, nodes: dict[str, Node]) -> None:
    mgmt = nodes[MGMT]
    mgmt.ip.link("add", kind="bridge", ifname=_BRIDGE, state="up")
    _add_address(mgmt, mgmt.index(_BRIDGE), MGMT_ADDRESS, MGMT_PREFIX_LENGTH)
    for number, name in enumerate(topology.managed):
        mac, bridge_mac = topology.mgmt_macs(name)
        ports = Port(name, MGMT_PORT, mac), Port(MGMT, name, bridge_mac)
        _add_veth(nodes, *ports, _MGMT_MTU, _FIRST_MGMT_INDEX + number)
        set_reachable(mgmt, name, True)
        address = topology.mgmt_address(name)
        _add_address(nodes[name], nodes[name].index(MGMT_PORT), address, MGMT_PREFIX_LENGTH)


def set_reachable(mgmt: Node, name: str, reachable: bool) -> None:
    """Have a node on the management network, or on none; its carrier stays."""
    mgmt.ip.link("set", index=mgmt.index(name), master=mgmt.index(_BRIDGE) if reachable else 0)


def _configure_host(topology: Topology, node: Node) -> None:
    """Give each NIC its addresses and a way out of its own, chosen by the source address."""
    for number, nic in enumerate(topology.nics[node.name]):
        index = node.index(nic.name)
        leaf_mac = topology.link(f"{node.name}-{nic.leaf}").b.mac
        gateway4, gateway6 = topology.gateways(nic.leaf)
        ways: tuple[tuple[Address, Address], ...] = ((nic.ipv4, gateway4), (nic.ipv6, gateway6))
        for address, gateway in ways:
            _add_address(node, index, address)
            _add_neighbour(node, index, gateway, leaf_mac)
            family, table = _family(address), _NIC_TABLE + number
            way_out = {
                "family": family,
                "dst": "default",
                "gateway": str(gateway),
                "oif": index,
                "flags": _ONLINK,
            }
            node.ip.route("add", **way_out, prefsrc=str(address), priority=1024 + number)
            node.ip.route("add", **way_out, prefsrc=str(address), table=table)
            node.ip.rule("add", family=family, src=str(address), src_len=address.max_prefixlen, table=table)


def _peer_addresses(topology: Topology, link: Link, peer: Port) -> tuple[Address, Address]:
    if peer.node not in topology.nics:
        return topology.gateways(peer.node)
    nic = next(nic for nic in topology.nics[peer.node] if nic.leaf == link.b.node)
    return nic.ipv4, nic.ipv6


def _add_address(node: Node, index: int, address: Address, prefix_length: int | None = None) -> None:
    length = address.max_prefixlen if prefix_length is None else prefix_length
    # Duplicate detection ends some time later, and until then no route may have the address as its source.
    flags = _NO_DUPLICATE_DETECTION if address.version == 6 else 0
    node.ip.addr("add", index=index, address=str(address), prefixlen=length, flags=flags)


def _add_neighbour(node: Node, index: int, address: Address, mac: str) -> None:
    family = _family(address)
    node.ip.neigh("replace", family=family, dst=str(address), lladdr=mac, ifindex=index, state=_PERMANENT)


def _take_xdp_frames(node: Node, index: int) -> None:
    """Give a port the NAPI without which the neighbour's XDP_TX has nowhere to go."""
    if not PORT_OBJECT.exists():
        raise LabError(f"{PORT_OBJECT.name} is not built", "Run `make setup`.")
    with BpfObject(PORT_OBJECT) as port:
        port.load()
        node.ip.link("set", index=index, xdp_fd=port.program_fd("lab_port"))


def _family(address: Address) -> int:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def _host_route(address: Address) -> str:
    return f"{address}/{address.max_prefixlen}"


@contextmanager
def _ignored(code: int) -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        if error.code != code:
            raise

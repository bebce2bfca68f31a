"""The fabric as a pure value: nodes, links, ports and addresses of a `LabSpec`; no I/O.

Switch ports are named by the neighbour, host ports `nic0` and `nic1`. Fabric ports carry no addresses of their
own (they are unnumbered): every switch answers with its router address, every NIC has one address per family.
"""

import difflib
import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import msgspec

from cwdp.errors import ConfigError, LabError
from tools.clocks import ClockKind

MGMT = "mgmt"
MGMT_PORT = "mgmt0"
MGMT_ADDRESS = IPv4Address("172.30.0.1")
MGMT_PREFIX_LENGTH = 16
NODE_PATTERN = re.compile(r"h[1-9]\d*|l[1-9]\d*|s[1-9]\d*|mgmt")

_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_MAX_SWITCHES = 200
_MAX_HOSTS = 1000
_MIN_RATE_BPS = 10**6
_MAX_RATE_BPS = 3 * 10**10
_ETHERNET_BYTES = 14
_HOST, _LEAF, _SPINE, _MGMT = 1, 2, 3, 4


class LabSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a lab is made of; two labs with the same spec are the same.

    The first NIC of the host `miswired` has the addresses of its place and is plugged into a leaf that is none of the
    host's own. `clocks` are of a kind of `tools.clocks`.
    """

    name: str = "cwdp"
    leaves: int = 2
    spines: int = 4
    hosts_per_leaf: int = 4
    nics: int = 1
    rate_bps: int = 100_000_000
    spine_rate_bps: int = 100_000_000
    queue_bytes: int = 256 * 1024
    spine_queue_bytes: int = 256 * 1024
    mtu: int = 9000
    seed: int = 1
    miswired: str = ""
    clocks: ClockKind = "disciplined"

    @property
    def frame_bytes(self) -> int:
        """The longest frame, Ethernet header included."""
        return self.mtu + _ETHERNET_BYTES

    def validate(self) -> None:
        """Raise `ConfigError` for what cannot be built."""
        _check_name(self.name)
        _check_range("--leaves", self.leaves, 1, _MAX_SWITCHES)
        _check_range("--spines", self.spines, 1, _MAX_SWITCHES)
        _check_range("--nics", self.nics, 1, 2)
        _check_range("--hosts", self.hosts_per_leaf, 1, _MAX_HOSTS // self.leaves)
        _check_range("--mtu", self.mtu, 1280, 65521)
        _check_range("--rate in bit/s", self.rate_bps, _MIN_RATE_BPS, _MAX_RATE_BPS)
        _check_range("--spine-rate in bit/s", self.spine_rate_bps, _MIN_RATE_BPS, _MAX_RATE_BPS)
        for queue_bytes in (self.queue_bytes, self.spine_queue_bytes):
            _check_range("--queue in bytes", queue_bytes, self.frame_bytes, 2**30)
        if self.nics > self.leaves:
            raise ConfigError(
                f"{self.nics} NICs a host need as many leaves, and there is {self.leaves}",
                "Give --leaves 2 or more, or --nics 1.",
            )
        self._validate_miswired()

    def _validate_miswired(self) -> None:
        if not self.miswired:
            return
        hosts = [f"h{i}" for i in range(1, self.leaves * self.hosts_per_leaf + 1)]
        if self.miswired not in hosts:
            raise ConfigError(
                f"--miswire names {self.miswired!r}, and the lab has no such host",
                f"Give one from {hosts[0]} to {hosts[-1]}.",
            )
        if self.leaves <= self.nics:
            raise ConfigError(
                f"{self.miswired} is at every one of the {self.leaves} leaves already",
                f"Give --leaves {self.nics + 1} or more.",
            )


@dataclass(frozen=True)
class Port:
    """One end of a link: the interface `name` in the namespace of `node`."""

    node: str
    name: str
    mac: str


@dataclass(frozen=True)
class Link:
    """A cable between `a` (the end nearer to the hosts) and `b`, the same rate and queue both ways."""

    a: Port
    b: Port
    rate_bps: int
    queue_bytes: int

    @property
    def name(self) -> str:
        """The link's name, `h1-l1` or `l1-s2`."""
        return f"{self.a.node}-{self.b.node}"

    @property
    def directions(self) -> tuple[str, str]:
        """Both directions, `a>b` first."""
        return f"{self.a.node}>{self.b.node}", f"{self.b.node}>{self.a.node}"

    def port_of(self, node: str) -> Port:
        """Return the end that `node` has."""
        return self.a if node == self.a.node else self.b

    def peer_of(self, node: str) -> Port:
        """Return the end that faces `node`."""
        return self.b if node == self.a.node else self.a


@dataclass(frozen=True)
class Nic:
    """A host's port on the fabric."""

    name: str
    mac: str
    leaf: str
    ipv4: IPv4Address
    ipv6: IPv6Address


class Topology:
    """Every node, link and address of a spec."""

    def __init__(self, spec: LabSpec) -> None:
        self.spec = spec
        self.leaves = [f"l{i}" for i in range(1, spec.leaves + 1)]
        self.spines = [f"s{i}" for i in range(1, spec.spines + 1)]
        self.hosts = [f"h{i}" for i in range(1, spec.leaves * spec.hosts_per_leaf + 1)]
        self.switches = self.leaves + self.spines
        self.nodes = [*self.hosts, *self.switches, MGMT]

    @cached_property
    def nics(self) -> dict[str, list[Nic]]:
        """Each host's NICs; the second one is on the leaf after the first one's."""
        return {host: [self._nic(host, i) for i in range(self.spec.nics)] for host in self.hosts}

    @cached_property
    def links(self) -> dict[str, Link]:
        """Every fabric link by name, the hosts' first."""
        host_links = [self._host_link(host, nic) for host, nics in self.nics.items() for nic in nics]
        spine_links = [self._spine_link(leaf, spine) for leaf in self.leaves for spine in self.spines]
        return {link.name: link for link in host_links + spine_links}

    def links_of(self, node: str) -> list[Link]:
        """Return the links that end at `node`."""
        return [link for link in self.links.values() if node in {link.a.node, link.b.node}]

    def link(self, name: str) -> Link:
        """Return a link by its name, either end first; raise `LabError` with names that are near."""
        turned = "-".join(reversed(name.split("-")))
        found = self.links.get(name) or self.links.get(turned)
        if found is None:
            raise LabError(
                f"the lab {self.spec.name!r} has no link {name!r}", _suggest(name, self.links, "links")
            )
        return found

    def require_node(self, name: str) -> str:
        """Return `name` if it is a node; raise `LabError` with names that are near."""
        if name not in self.nodes:
            raise LabError(
                f"the lab {self.spec.name!r} has no node {name!r}", _suggest(name, self.nodes, "nodes")
            )
        return name

    def netns(self, node: str) -> str:
        """Return the name of a node's network namespace."""
        return netns_name(self.spec.name, node)

    def router_addresses(self, switch: str) -> tuple[IPv4Address, IPv6Address]:
        """Return the addresses by which a switch is known and with which it answers."""
        tier = 1 if switch in self.leaves else 2
        index = int(switch[1:])
        return IPv4Address(f"10.254.{tier}.{index}"), IPv6Address(f"fd0c:0:fe0{tier}::{index:x}")

    def gateways(self, switch: str) -> tuple[IPv4Address, IPv6Address]:
        """Return the addresses by which neighbours send through a switch.

        For IPv6 a link-local one: the kernel refuses a global gateway while a detour leads to it elsewhere.
        """
        ipv4, ipv6 = self.router_addresses(switch)
        return ipv4, IPv6Address((0xFE80 << 112) | (int(ipv6) & 0xFFFF) | int(switch in self.spines) << 16)

    def leaf_networks(self, leaf: str) -> tuple[IPv4Network, IPv6Network]:
        """Return the networks of the NICs below a leaf."""
        index = int(leaf[1:])
        return IPv4Network(f"10.{index}.0.0/16"), IPv6Network(f"fd0c:0:{index:x}::/48")

    def strangers(self, leaf: str) -> list[IPv4Network | IPv6Network]:
        """Return the addresses of NICs that are plugged into a leaf and belong at another one."""
        if not self.spec.miswired:
            return []
        nic = self.nics[self.spec.miswired][0]
        return [ip_network(nic.ipv4), ip_network(nic.ipv6)] if nic.leaf == leaf else []

    def mgmt_address(self, host: str) -> IPv4Address:
        """Return a host's address on the management network."""
        return MGMT_ADDRESS + int(host[1:])

    def mgmt_macs(self, host: str) -> tuple[str, str]:
        """Return the MACs of a host's management port and of the bridge port that it is plugged into."""
        return _mac(_MGMT, int(host[1:]), 0), _mac(_MGMT, int(host[1:]), 1)

    def _nic(self, host: str, index: int) -> Nic:
        home, position = divmod(int(host[1:]) - 1, self.spec.hosts_per_leaf)
        leaf = self.leaves[(home + index) % self.spec.leaves]
        slot = index * self.spec.hosts_per_leaf + position + 1
        ipv4, ipv6 = (network.network_address + slot for network in self.leaf_networks(leaf))
        if host == self.spec.miswired and index == 0:
            leaf = self.leaves[(home + self.spec.nics) % self.spec.leaves]
        return Nic(
            f"nic{index}", _mac(_HOST, int(host[1:]), index), leaf, IPv4Address(ipv4), IPv6Address(ipv6)
        )

    def _host_link(self, host: str, nic: Nic) -> Link:
        port = Port(nic.leaf, host, _mac(_LEAF, int(nic.leaf[1:]), int(host[1:])))
        return Link(Port(host, nic.name, nic.mac), port, self.spec.rate_bps, self.spec.queue_bytes)

    def _spine_link(self, leaf: str, spine: str) -> Link:
        leaf_index, spine_index = int(leaf[1:]), int(spine[1:])
        leaf_port = Port(leaf, spine, _mac(_LEAF, leaf_index, 0x8000 + spine_index))
        spine_port = Port(spine, leaf, _mac(_SPINE, spine_index, leaf_index))
        return Link(leaf_port, spine_port, self.spec.spine_rate_bps, self.spec.spine_queue_bytes)


def netns_name(lab: str, node: str) -> str:
    """Return the name of a node's network namespace."""
    return f"cw-{lab}-{node}"


def _mac(kind: int, node: int, port: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (2, kind, *node.to_bytes(2, "big"), *port.to_bytes(2, "big")))


def _check_name(name: str) -> None:
    if not _NAME_PATTERN.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name for a lab",
            "Use up to 32 lower-case letters, digits, '-' and '_', beginning with a letter or a digit.",
        )


def _check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{what} is {value}", f"Give a value from {low} to {high}.")


def _suggest(name: str, known: "dict[str, Link] | list[str]", what: str) -> str:
    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    if near:
        return f"Did you mean {', '.join(near)}?"
    return f"`cwdp lab status` lists the {what}."

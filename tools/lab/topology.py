"""The fabric as a pure value: nodes, links, ports and addresses of a `LabSpec`; no I/O.

Leaves are `l1` on, the spines above them `s1` on. With several pods each has leaves and spines of its own, `p1l1` and
`p1s1` on, and the cores `c1` on join all spines. Switch ports are named by the neighbour, host ports `nic0` on. Fabric
ports carry no addresses of their own (they are unnumbered): every switch answers with its router address, every NIC has
one address per family.
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
NODE_PATTERN = re.compile(r"(?:[hcmb]|(?:p[1-9]\d*)?[ls])[1-9]\d*|mgmt")

_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_MAX_SWITCHES = 200
_MAX_PODS = 16
_MAX_RAILS = 8
_MAX_HOSTS = 1000
_MAX_MANAGERS = _MAX_SERVERS = 9
_FIRST_MGMT = {"h": 0, "m": 0x4000, "b": 0x8000}
"""Where hosts, managers and bus servers begin on the management network, counted from `MGMT_ADDRESS`."""

_MIN_RATE_BPS = 10**6
_MAX_RATE_BPS = 3 * 10**10
_ETHERNET_BYTES = 14
_HOST, _LEAF, _SPINE, _MGMT, _CORE = 1, 2, 3, 4, 5
_SWITCHES = (_LEAF, _SPINE, _CORE)
_UP = 0x8000
"""Added to the number of a neighbour above, in the MAC of the port that faces it."""


class LabSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a lab is made of; two labs with the same spec are the same.

    `leaves` and `spines` are those of a pod, `cores` join pods; `hosts_per_leaf` are those whose first NICs a leaf has.
    With `rails` a host has as many NICs, each at the leaf of its rail, and as many leaves in turn are a group with hosts
    of its own. Without, the next NIC of a host is at the next leaf. The rate and the queue of all links between switches
    are those that are named for the spines. The first NIC of the host `miswired` has the addresses of its place and is plugged
    into a leaf that is none of the host's own. `clocks` are of a kind of `tools.clocks`. One manager with one bus server runs
    in the management node; of more, each has a node of its own. Switches `by_headers` hash nothing but headers, IPv6's flow label
    among them, as TCP needs it: otherwise those of Linux take the hash that the sender's socket has given its packets.
    """

    name: str = "cwdp"
    pods: int = 1
    leaves: int = 2
    spines: int = 4
    cores: int = 0
    hosts_per_leaf: int = 4
    nics: int = 1
    rails: int = 0
    rate_bps: int = 100_000_000
    spine_rate_bps: int = 100_000_000
    queue_bytes: int = 256 * 1024
    spine_queue_bytes: int = 256 * 1024
    mtu: int = 9000
    seed: int = 1
    miswired: str = ""
    clocks: ClockKind = "disciplined"
    managers: int = 1
    servers: int = 1
    by_headers: bool = False

    @property
    def frame_bytes(self) -> int:
        """The longest frame, Ethernet header included."""
        return self.mtu + _ETHERNET_BYTES

    @property
    def nics_per_host(self) -> int:
        """How many NICs each host has."""
        return self.rails or self.nics

    @property
    def nics_per_leaf(self) -> int:
        """How many NICs each leaf has."""
        return self.hosts_per_leaf * (1 if self.rails else self.nics)

    @property
    def host_count(self) -> int:
        """How many hosts there are."""
        return self.pods * self.leaves // max(1, self.rails) * self.hosts_per_leaf

    def describe(self) -> str:
        """The hosts and switches, for people."""
        rails = f" on {self.rails} rails" if self.rails else ""
        pods = f" in {self.pods} pods, {self.cores} cores" if self.cores else ""
        leaves, spines = self.pods * self.leaves, self.pods * self.spines
        return f"{self.host_count} hosts{rails}, {leaves} leaves, {spines} spines{pods}"

    def validate(self) -> None:
        """Raise `ConfigError` for what cannot be built."""
        check_name(self.name)
        check_range("--pods", self.pods, 1, _MAX_PODS)
        check_range("--leaves", self.leaves, 1, _MAX_SWITCHES // self.pods)
        check_range("--spines", self.spines, 1, _MAX_SWITCHES // self.pods)
        check_range("--cores", self.cores, 0, _MAX_SWITCHES)
        check_range("--nics", self.nics, 1, 2)
        check_range("--rails", self.rails, 0, _MAX_RAILS)
        check_range("--hosts", self.hosts_per_leaf, 1, _MAX_HOSTS // (self.pods * self.leaves))
        check_range("--managers", self.managers, 1, _MAX_MANAGERS)
        check_range("--servers", self.servers, 1, _MAX_SERVERS)
        if self.servers == 2:
            raise ConfigError("two bus servers keep nothing together", "Give --servers 1, or 3 or more.")
        check_range("--mtu", self.mtu, 1280, 65521)
        check_range("--rate in bit/s", self.rate_bps, _MIN_RATE_BPS, _MAX_RATE_BPS)
        check_range("--spine-rate in bit/s", self.spine_rate_bps, _MIN_RATE_BPS, _MAX_RATE_BPS)
        for queue_bytes in (self.queue_bytes, self.spine_queue_bytes):
            check_range("--queue in bytes", queue_bytes, self.frame_bytes, 2**30)
        self._validate_pods()
        self._validate_rails()
        self._validate_miswired()

    def _validate_pods(self) -> None:
        if (self.pods > 1) != (self.cores > 0):
            raise ConfigError(
                f"{self.pods} pod{'s' * (self.pods > 1)} and {self.cores} cores: cores join pods",
                "Give --pods 2 or more together with --cores 1 or more, or neither.",
            )

    def _validate_rails(self) -> None:
        if self.rails and self.nics != 1:
            raise ConfigError(
                f"{self.rails} rails give each host {self.rails} NICs", "Leave out --nics, or --rails."
            )
        if self.rails and self.leaves % self.rails:
            raise ConfigError(
                f"{self.leaves} leaves cannot be shared out among {self.rails} rails",
                f"Give --leaves {self.rails}, or a multiple of it.",
            )
        if self.nics > self.leaves:
            raise ConfigError(
                f"{self.nics} NICs a host need as many leaves, and there is {self.leaves}",
                "Give --leaves 2 or more, or --nics 1.",
            )

    def _validate_miswired(self) -> None:
        if not self.miswired:
            return
        hosts = [f"h{i}" for i in range(1, self.host_count + 1)]
        if self.miswired not in hosts:
            raise ConfigError(
                f"--miswire names {self.miswired!r}, and the lab has no such host",
                f"Give one from {hosts[0]} to {hosts[-1]}.",
            )
        if self.leaves <= self.nics_per_host:
            raise ConfigError(
                f"{self.miswired} is at every one of the {self.leaves} leaves already",
                f"Give --leaves {self.nics_per_host + (self.rails or 1)} or more.",
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
        """The link's name, `h1-l1`, `l1-s2` or `p1s2-c1`."""
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
        pods = [f"p{i}" for i in range(1, spec.pods + 1)] if spec.pods > 1 else [""]
        self.leaves = [f"{pod}l{i}" for pod in pods for i in range(1, spec.leaves + 1)]
        self.spines = [f"{pod}s{i}" for pod in pods for i in range(1, spec.spines + 1)]
        self.cores = [f"c{i}" for i in range(1, spec.cores + 1)]
        self.hosts = [f"h{i}" for i in range(1, spec.host_count + 1)]
        self.switches = self.leaves + self.spines + self.cores
        apart = spec.managers + spec.servers > 2
        self.managers = [f"m{i}" for i in range(1, spec.managers + 1)] if apart else []
        self.servers = [f"b{i}" for i in range(1, spec.servers + 1)] if apart else []
        self.managed = [*self.hosts, *self.managers, *self.servers]
        self.nodes = [*self.managed, *self.switches, MGMT]

    def pod_of(self, switch: str) -> str:
        """Whose leaf or spine it is: `p1` on, empty where there is only one pod."""
        return switch.partition("l")[0].partition("s")[0]

    @cached_property
    def tiers(self) -> dict[str, int]:
        """The tier of each switch, 1 for leaves."""
        tiers = enumerate((self.leaves, self.spines, self.cores), 1)
        return {switch: tier for tier, switches in tiers for switch in switches}

    @cached_property
    def nics(self) -> dict[str, list[Nic]]:
        """Each host's NICs."""
        return {host: self._nics(i, host) for i, host in enumerate(self.hosts)}

    @cached_property
    def links(self) -> dict[str, Link]:
        """Every fabric link by name, the hosts' first, then those of the leaves."""
        host_links = [self._host_link(host, nic) for host, nics in self.nics.items() for nic in nics]
        return {link.name: link for link in (*host_links, *self.switch_links)}

    @cached_property
    def switch_links(self) -> list[Link]:
        """The links between switches, from the bottom up."""
        spec = self.spec
        pairs = [
            (leaf, spine)
            for i, leaf in enumerate(self.leaves)
            for spine in self.spines[i // spec.leaves * spec.spines :][: spec.spines]
        ]
        pairs += [(spine, core) for spine in self.spines for core in self.cores]
        return [self._switch_link(lower, upper) for lower, upper in pairs]

    @cached_property
    def above(self) -> dict[str, list[str]]:
        """The switches that each switch has links up to."""
        above: dict[str, list[str]] = {switch: [] for switch in self.switches}
        for link in self.switch_links:
            above[link.a.node].append(link.b.node)
        return above

    def ways(self, a: str, b: str) -> list[tuple[str, ...]]:
        """Return every shortest way from one switch to another of its tier, up and then down, with all its switches."""
        if a == b:
            return [(a,)]
        shared = [upper for upper in self.above[a] if upper in self.above[b]]
        if shared:
            return [(a, upper, b) for upper in shared]
        pairs = [(up, down) for up in self.above[a] for down in self.above[b]]
        return [(a, *way, b) for up, down in pairs for way in self.ways(up, down)]

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
        tier, index = self.tiers[switch], self._number[switch]
        return IPv4Address(f"10.254.{tier}.{index}"), IPv6Address(f"fd0c:0:fe0{tier}::{index:x}")

    def gateways(self, switch: str) -> tuple[IPv4Address, IPv6Address]:
        """Return the addresses by which neighbours send through a switch.

        For IPv6 a link-local one: the kernel refuses a global gateway while a detour leads to it elsewhere.
        """
        ipv4, ipv6 = self.router_addresses(switch)
        return ipv4, IPv6Address((0xFE80 << 112) | (int(ipv6) & 0xFFFF) | (self.tiers[switch] - 1) << 16)

    def leaf_networks(self, leaf: str) -> tuple[IPv4Network, IPv6Network]:
        """Return the networks of the NICs below a leaf."""
        index = self._number[leaf]
        return IPv4Network(f"10.{index}.0.0/16"), IPv6Network(f"fd0c:0:{index:x}::/48")

    def strangers(self, leaf: str) -> list[IPv4Network | IPv6Network]:
        """Return the addresses of NICs that are plugged into a leaf and belong at another one."""
        if not self.spec.miswired:
            return []
        nic = self.nics[self.spec.miswired][0]
        return [ip_network(nic.ipv4), ip_network(nic.ipv6)] if nic.leaf == leaf else []

    def mgmt_address(self, node: str) -> IPv4Address:
        """Return the address of a host, manager or bus server on the management network."""
        return MGMT_ADDRESS + _mgmt_index(node)

    def mgmt_macs(self, node: str) -> tuple[str, str]:
        """Return the MACs of a node's management port and of the bridge port that it is plugged into."""
        return _mac(_MGMT, _mgmt_index(node), 0), _mac(_MGMT, _mgmt_index(node), 1)

    @cached_property
    def _number(self) -> dict[str, int]:
        """Each switch's number within its tier, from 1 on."""
        return {
            switch: i
            for switches in (self.leaves, self.spines, self.cores)
            for i, switch in enumerate(switches, 1)
        }

    def _nics(self, number: int, host: str) -> list[Nic]:
        """The NICs of a host, which are at leaves of its pod."""
        spec = self.spec
        home, position = divmod(number, spec.hosts_per_leaf)
        pod, first = divmod(home * max(1, spec.rails), spec.leaves)
        leaves = self.leaves[pod * spec.leaves :][: spec.leaves]
        found = []
        for i in range(spec.nics_per_host):
            leaf = leaves[(first + i) % spec.leaves]
            slot = position + 1 + (0 if spec.rails else i * spec.hosts_per_leaf)
            ipv4, ipv6 = (network.network_address + slot for network in self.leaf_networks(leaf))
            if host == spec.miswired and i == 0:
                leaf = leaves[(first + spec.nics_per_host) % spec.leaves]
            mac = _mac(_HOST, number + 1, i)
            found.append(Nic(f"nic{i}", mac, leaf, IPv4Address(ipv4), IPv6Address(ipv6)))
        return found

    def _host_link(self, host: str, nic: Nic) -> Link:
        port = Port(nic.leaf, host, _mac(_LEAF, self._number[nic.leaf], int(host[1:])))
        return Link(Port(host, nic.name, nic.mac), port, self.spec.rate_bps, self.spec.queue_bytes)

    def _switch_link(self, lower: str, upper: str) -> Link:
        return Link(
            Port(lower, upper, self._switch_mac(lower, _UP + self._number[upper])),
            Port(upper, lower, self._switch_mac(upper, self._number[lower])),
            self.spec.spine_rate_bps,
            self.spec.spine_queue_bytes,
        )

    def _switch_mac(self, switch: str, port: int) -> str:
        return _mac(_SWITCHES[self.tiers[switch] - 1], self._number[switch], port)


def netns_name(lab: str, node: str) -> str:
    """Return the name of a node's network namespace."""
    return f"cw-{lab}-{node}"


def _mgmt_index(node: str) -> int:
    return _FIRST_MGMT[node[0]] + int(node[1:])


def _mac(kind: int, node: int, port: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (2, kind, *node.to_bytes(2, "big"), *port.to_bytes(2, "big")))


def check_name(name: str) -> None:
    """Raise `ConfigError` for what is no name of a lab."""
    if not _NAME_PATTERN.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name for a lab",
            "Use up to 32 lower-case letters, digits, '-' and '_', beginning with a letter or a digit.",
        )


def check_range(what: str, value: int, low: int, high: int) -> None:
    """Raise `ConfigError` for a value of an option that is out of its range."""
    if not low <= value <= high:
        raise ConfigError(f"{what} is {value}", f"Give a value from {low} to {high}.")


def _suggest(name: str, known: "dict[str, Link] | list[str]", what: str) -> str:
    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    if near:
        return f"Did you mean {', '.join(near)}?"
    return f"`cwdp lab status` lists the {what}."

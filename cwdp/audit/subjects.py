"""Which parts of a host have facts of their own, and the roles of its NICs."""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from cwdp.audit.answers import Gpus, Link, Links, Route, Routes
from cwdp.audit.notes import shown
from cwdp.audit.source import Source
from cwdp.audit.unreadable import Unreadable
from cwdp.shared.audit.facts import Role

NET, INFINIBAND, PCI = "sys/class/net", "sys/class/infiniband", "sys/bus/pci/devices"
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
MOST_SUBJECTS = 256
MOST_LISTED = 1 << 14
"""Interfaces, RDMA devices and PCI devices: a host of containers has thousands of the first."""

ETHERNET = 1
MOST_HOPS = 8
"""From an interface over those below it to its ports."""

PORTS = 16
"""Of an RDMA device, and entries of a GID table that are asked for its NIC."""

GPU_VENDORS = ("0x10de", "0x1002")
GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""Display, 3D and processing accelerators (PCI Code and ID Assignment Specification)."""


class Nic(Struct, frozen=True):
    """A NIC; `pci` is the address of its device, "" for none."""

    name: str
    pci: str = ""
    role: Role = ""


class RdmaPort(Struct, frozen=True):
    """A port of an RDMA device; `nic` is "" where it has none."""

    device: str
    port: int
    nic: str = ""
    pci: str = ""
    role: Role = ""

    @property
    def name(self) -> str:
        """Of the subject."""
        return f"{self.device}/{self.port}"

    @property
    def path(self) -> str:
        """Of its folder."""
        return f"{INFINIBAND}/{self.device}/ports/{self.port}"


class GpuDevice(Struct, frozen=True):
    """A GPU; `nvml` is its index there, None where NVML does not have it."""

    name: str
    pci: str
    nvml: int | None = None


class Found(Struct, frozen=True):
    """All subjects but the host itself.

    Attributes:
        troubles: what is not as it should be about them.
    """

    nics: list[Nic] = []
    ports: list[RdmaPort] = []
    gpus: list[GpuDevice] = []
    troubles: list[str] = []


def find(source: Source, roles: Mapping[str, Role]) -> Found:
    """All subjects of a host; `roles` are those that are configured, "" for none.

    A NIC that no role is configured for is `front` where a default route leads over it, else `back` where an RDMA
    device sends by it. Where default routes lead over all NICs of RDMA devices, these are `back`.
    """
    links = {link.name: link for link in _links(source)}
    troubles: list[str] = []
    ports = _rdma_ports(source, _listed(source, INFINIBAND, troubles))
    hardware = set(_hardware(source, links, _listed(source, NET, troubles)))
    backs = _with_ports({port.nic for port in ports if port.nic}, links, hardware)
    fronts = _with_ports(_default_nics(source, links), links, hardware)
    fronts = fronts if backs - fronts else fronts - backs
    configured = {name for name, role in roles.items() if role}
    names = sorted(name for name in hardware | backs | fronts | configured if not links or name in links)
    given = {name: roles[name] if name in roles else _role(name, backs, fronts) for name in names}
    gpus = _gpus(source, _listed(source, PCI, troubles))
    lists = (("NICs", len(names)), ("RDMA ports", len(ports)), ("GPUs", len(gpus)))
    troubles += [
        f"{count:,} {what}, of which {MOST_SUBJECTS} are told"
        for what, count in lists
        if count > MOST_SUBJECTS
    ]
    troubles += [f"there is no NIC {name}, which has a role" for name in sorted(configured - set(names))]
    first = sorted(names, key=lambda name: (not given[name], name))[:MOST_SUBJECTS]
    return Found(
        nics=[Nic(name, pci_of(source, f"{NET}/{name}/device"), given[name]) for name in sorted(first)],
        ports=[_with_role(port, given) for port in ports[:MOST_SUBJECTS]],
        gpus=gpus[:MOST_SUBJECTS],
        troubles=troubles,
    )


def default_routes(source: Source) -> list[tuple[int, int]]:
    """Family and interface's index of each default route of the main table."""
    routes = source.ask(Routes).routes
    return sorted(
        {(route.family, index) for route in routes if _is_default(route) for index in route.interfaces}
    )


def pci_of(source: Source, path: str) -> str:
    """The PCI device that a device is or lies below; "" for none."""
    try:
        parts = source.target(path).split("/")
    except Unreadable:
        return ""
    return next((part for part in reversed(parts) if PCI_ADDRESS.fullmatch(part)), "")


def _is_default(route: Route) -> bool:
    return route.prefix == 0 and route.table == 254


def _links(source: Source) -> list[Link]:
    try:
        return source.ask(Links).links
    except Unreadable:
        return []


def _listed(source: Source, folder: str, troubles: list[str]) -> list[str]:
    """What is in a folder; nothing where it is not there, a trouble where it cannot be read."""
    if not source.exists(folder):
        return []
    try:
        return source.names(folder, MOST_LISTED)
    except Unreadable as reason:
        troubles.append(f"{folder}: {reason.message}")
        return []


def _hardware(source: Source, links: Mapping[str, Link], names: list[str]) -> Iterator[str]:
    """Ethernet NICs with a device on a bus."""
    for name in names:
        is_ethernet = name not in links or links[name].hardware == ETHERNET
        if is_ethernet and source.exists(f"{NET}/{name}/device"):
            yield name


def _default_nics(source: Source, links: Mapping[str, Link]) -> set[str]:
    """NICs of default routes."""
    try:
        indices = {index for _, index in default_routes(source)}
    except Unreadable:
        return set()
    return {link.name for link in links.values() if link.index in indices}


def _with_ports(names: set[str], links: Mapping[str, Link], hardware: set[str]) -> set[str]:
    """NICs and those of hardware that they send by: of a bond or a VLAN its ports."""
    found = {links[name].index for name in names if name in links}
    for _ in range(MOST_HOPS):
        found |= {below for link in links.values() for below in _below(link, found)}
    return names | {link.name for link in links.values() if link.index in found and link.name in hardware}


def _below(link: Link, above: set[int]) -> Iterator[int]:
    """What of a link is below those above: itself as a port of one, and what it as one of them is on top of."""
    if link.master in above:
        yield link.index
    if link.index in above and link.lower and link.kind != "veth":
        yield link.lower


def _role(name: str, backs: set[str], fronts: set[str]) -> Role:
    if name in fronts:
        return "front"
    return "back" if name in backs else ""


def _with_role(port: RdmaPort, given: Mapping[str, Role]) -> RdmaPort:
    return RdmaPort(port.device, port.port, port.nic, port.pci, given.get(port.nic, ""))


def _rdma_ports(source: Source, devices: list[str]) -> list[RdmaPort]:
    return [
        RdmaPort(device, port, _netdev(source, device, port), pci_of(source, f"{INFINIBAND}/{device}/device"))
        for device in devices
        for port in _ports_of(source, device)
    ]


def _ports_of(source: Source, device: str) -> list[int]:
    try:
        names = source.names(f"{INFINIBAND}/{device}/ports")
    except Unreadable:
        return []
    return sorted(int(name) for name in names if re.fullmatch(r"[1-9]\d{0,2}", name, re.ASCII))[:PORTS]


def _netdev(source: Source, device: str, port: int) -> str:
    """The NIC of a port: that of its first GID that names one."""
    folder = f"{INFINIBAND}/{device}/ports/{port}/gid_attrs/ndevs"
    for index in range(PORTS):
        try:
            name = source.text(f"{folder}/{index}")
        except Unreadable:
            continue
        if name:
            return shown(name)
    return ""


def _gpus(source: Source, devices: list[str]) -> list[GpuDevice]:
    """Those that NVML has, then others on the PCI bus."""
    try:
        known = {gpu.pci_address: gpu.index for gpu in source.ask(Gpus).gpus}
    except Unreadable:
        known = {}
    others = [address for address in _gpu_addresses(source, devices) if address not in known]
    found = [GpuDevice(str(index), address, index) for address, index in known.items()]
    return found + [GpuDevice(str(len(known) + i), address) for i, address in enumerate(others)]


def _gpu_addresses(source: Source, devices: list[str]) -> Iterator[str]:
    for address in devices:
        try:
            kind = source.text(f"{PCI}/{address}/class")
            if kind[:6] in GPU_CLASSES and source.text(f"{PCI}/{address}/vendor") in GPU_VENDORS:
                yield address
        except Unreadable:
            continue

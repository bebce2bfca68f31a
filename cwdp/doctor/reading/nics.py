"""The NICs of this host, and their RDMA devices."""

import importlib.util
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from cwdp.dataplane.kernel import interface, rtnetlink
from cwdp.dataplane.kernel.drvinfo import driver_info
from cwdp.dataplane.loading.status import describe
from cwdp.dataplane.pinned import tree
from cwdp.doctor.facts import Dataplane, Nic, RdmaPort
from cwdp.errors import PrivilegeError
from cwdp.rdma import sysfs

SCOPE_UNIVERSE = 0
IFF_LOWER_UP = 0x10000
OFFLOADS = (*interface.MERGING, *interface.VLAN_OFFLOADS)


def read_nics(wanted: Iterable[str] | None) -> list[Nic]:
    """Those of these names that are here; all of hardware where no names are known."""
    with IPRoute() as ip:
        links = {link.get_attr("IFLA_IFNAME"): link for link in ip.get_links()}
        addresses = list(ip.get_addr())
    chosen = [name for name in links if _is_hardware(name)] if wanted is None else wanted
    return [_nic(links[name], addresses) for name in chosen if name in links]


def read_rdma_ports(root: Path = sysfs.SYSFS) -> list[RdmaPort]:
    """Every port of every RDMA device; Soft-RoCE's have no device on a bus."""
    return [
        RdmaPort(
            device=port.device,
            port=port.port,
            state=port.state,
            netdev=port.netdev,
            is_software=not (root / port.device / "device").exists(),
        )
        for port in sysfs.ports(root)
    ]


def has_pyverbs() -> bool:
    """Whether pyverbs is installed."""
    return importlib.util.find_spec("pyverbs") is not None


def _is_hardware(name: str) -> bool:
    info = rtnetlink.link_info(socket.if_nametoindex(name))
    return bool(info.bus) and info.hardware == interface.ARPHRD_ETHER


def _nic(link: Any, addresses: list[Any]) -> Nic:
    name, ifindex = link.get_attr("IFLA_IFNAME"), link["index"]
    info = rtnetlink.link_info(ifindex)
    xdp = link.get_attr("IFLA_XDP")
    return Nic(
        name=name,
        kind=info.kind,
        driver=_driver(name),
        is_ethernet=info.hardware in (interface.ARPHRD_ETHER, interface.ARPHRD_LOOPBACK),
        master=_name(info.master),
        master_kind=info.port_kind,
        lower=_name(info.lower),
        mtu=link.get_attr("IFLA_MTU"),
        has_carrier=bool(link["flags"] & IFF_LOWER_UP),
        addresses=[
            address.get_attr("IFA_LOCAL") or address.get_attr("IFA_ADDRESS")
            for address in addresses
            if address["index"] == ifindex and address["scope"] == SCOPE_UNIVERSE
        ],
        offloads=[feature for feature in OFFLOADS if interface.is_on(name, feature)],
        xdp_features=rtnetlink.xdp_features(ifindex),
        program=xdp and xdp.get_attr("IFLA_XDP_PROG_ID"),
        dataplane=_dataplane(name),
    )


def _dataplane(name: str) -> Dataplane | None:
    where = tree.here(name)
    try:
        tree.require_privileges()
        if not where.path.exists():
            return None
        found = describe(where)
    except PrivilegeError:
        return None
    except OSError as error:
        return Dataplane(mode=None, is_current=False, faults=[], error=f"{where.path}: {error.strerror}")
    if "error" in found:
        return Dataplane(mode=None, is_current=False, faults=[], error=found["error"])
    return Dataplane(mode=found["mode"], is_current=found["current"], faults=found["faults"])


def _driver(name: str) -> str:
    """What ethtool calls the driver; "" where there is none to ask."""
    try:
        return driver_info(name).driver
    except OSError:
        return ""


def _name(ifindex: int) -> str:
    try:
        return socket.if_indextoname(ifindex) if ifindex else ""
    except OSError:
        return ""

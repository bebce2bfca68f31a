"""What an interface is, and what of it stands in the way of the dataplane: ports, VLAN tags, no native XDP."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from pyroute2.ethtool.ioctl import IoctlEthtool, NotSupportedError

from cwdp.dataplane.kernel import rtnetlink
from cwdp.dataplane.kernel.rtnetlink import LinkInfo
from cwdp.errors import InterfaceError, KernelError

Generic = Literal["refuse", "allow"]
"""What is to be done where a driver takes no native XDP: timestamps of the generic one are later and noisier."""

ALLOW = 'or allow generic XDP, whose timestamps are later and noisier: generic = "allow" in agent.toml, --generic allow'
ARPHRD_ETHER, ARPHRD_LOOPBACK = 1, 772
PORTS_OF = ("bond", "bridge", "team")
ON_TOP = ("vlan", "macvlan", "macvtap", "ipvlan")
STEPS = {
    ("mtu",): "lower the MTU, to what the driver allows with XDP: ip link set {} mtu 1500",
    ("queue", "channel", "ring"): "use fewer channels, so that some are left for XDP: ethtool -L {}",
}
"""What to do about what drivers say."""

MERGING = ("rx-lro", "rx-gro-hw")
"""By these a NIC merges packets; many drivers take no XDP program meanwhile."""

VLAN_OFFLOADS = ("rx-vlan-hw-parse", "rx-vlan-stag-hw-parse")
"""By these a NIC takes VLAN tags off before XDP sees the packet; their numbers here are their bits in `meta`."""


def ifindex_of(ifname: str) -> int:
    """The index of an interface of this namespace.

    Raises:
        InterfaceError: there is none of that name.
    """
    try:
        return socket.if_nametoindex(ifname)
    except OSError as error:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise InterfaceError(f"there is no interface {ifname}", f"interfaces here: {names}") from error


def require_usable(ifindex: int, ifname: str) -> None:
    """Make sure that an interface is one that the dataplane can be on.

    Raises:
        InterfaceError: it carries no Ethernet frames, or it is a part of another one.
    """
    info = rtnetlink.link_info(ifindex)
    if info.hardware not in (ARPHRD_ETHER, ARPHRD_LOOPBACK):
        raise InterfaceError(
            f"{ifname} carries no Ethernet frames", "name the Ethernet interface that RoCEv2 leaves by"
        )
    if info.port_kind in PORTS_OF:
        whole = _name(info.master)
        raise InterfaceError(
            f"{ifname} is a port of the {info.port_kind} {whole}, which has its addresses",
            f"name {whole} instead",
        )


def may_be_generic(ifindex: int) -> bool:
    """Whether nobody minds generic XDP there: of a veth and of the loopback no timestamps are expected."""
    info = rtnetlink.link_info(ifindex)
    return info.kind == "veth" or info.hardware == ARPHRD_LOOPBACK


def no_native_xdp(ifindex: int, ifname: str, why: str) -> KernelError:
    """The refusal of an interface whose driver takes no program."""
    return KernelError(
        f"{ifname} takes no native XDP program: {why}",
        f"{_next_step(rtnetlink.link_info(ifindex), ifname, why)}, {ALLOW}",
    )


def _next_step(info: LinkInfo, ifname: str, why: str) -> str:
    if info.kind in ON_TOP:
        return f"give the fabric's address to {_name(info.lower)}, which this {info.kind} is on top of, and name that"
    if info.kind == "bridge":
        return "take the NIC out of the bridge, give it the fabric's address, and name it"
    merging = [feature for feature in MERGING if is_on(ifname, feature)]
    if merging:
        return f"many drivers take none while packets are merged: ethtool -K {ifname} {merging[0]} off"
    for words, step in STEPS.items():
        if any(word in why.lower() for word in words):
            return step.format(ifname)
    return f"see whether the driver has XDP: ethtool -i {ifname}, and its documentation"


def is_on(ifname: str, feature: str) -> bool:
    """Whether a feature of ethtool is on; one that is not known is off."""
    with _ethtool(ifname) as ethtool, suppress(NotSupportedError, OSError):
        features = ethtool.get_features()
        return feature in features and features.is_active(feature)
    return False


def leave_tags_on(ifname: str) -> int:
    """Have a NIC leave VLAN tags in their packets, as a probe that comes with one is to go back with it.

    Returns:
        What was switched off for it, for `give_back`.

    Raises:
        InterfaceError: it takes them off and cannot be told not to.
    """
    on = [feature for feature in VLAN_OFFLOADS if is_on(ifname, feature)]
    if on:
        _set(ifname, on, on=False)
    still = [feature for feature in on if is_on(ifname, feature)]
    if still:
        raise InterfaceError(
            f"{ifname} takes VLAN tags off packets before XDP sees them, and its driver goes on doing so",
            f'see `ethtool -k {ifname}`: {", ".join(still)}; probe by UD queue pairs (transport = "ud"), or by another NIC',
        )
    return sum(1 << VLAN_OFFLOADS.index(feature) for feature in on)


def give_back(ifname: str, offloads: int) -> None:
    """Switch on again what `leave_tags_on` has switched off."""
    features = [feature for bit, feature in enumerate(VLAN_OFFLOADS) if offloads >> bit & 1]
    if features:
        with suppress(OSError):
            _set(ifname, features, on=True)


def _set(ifname: str, features: list[str], *, on: bool) -> None:
    with _ethtool(ifname) as ethtool, suppress(NotSupportedError):
        found = ethtool.get_features()
        for feature in features:
            found.set_value(feature, on)
        ethtool.set_features(found)


@contextmanager
def _ethtool(ifname: str) -> Iterator[IoctlEthtool]:
    opened = IoctlEthtool(ifname)
    try:
        yield opened
    finally:
        opened.close()


def _name(ifindex: int) -> str:
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return "another interface, which is in another namespace"

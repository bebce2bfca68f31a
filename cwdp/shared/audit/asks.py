"""Whom a host asks over many ports for an audit, and who did not answer: how the manager orders it, how the host tells it."""

from typing import Annotated

from msgspec import Meta, Struct

MOST_NICS, MOST_ADDRESSES = 64, 2_048
MOST_PORTS = 1_024
MOST_SILENT, MOST_SHOWN = 1_000, 8
"""Pairs of a host that are told one by one, and ports of each."""

MOST_PROBES = 24_000
"""Of a host, each asked once: at 2,000 packets a second, which no NIC or switch feels, that takes 12 s."""

IPV4_BYTES, IPV6_BYTES = 4, 16

Count = Annotated[int, Meta(ge=0, le=2**32)]
Ifname = Annotated[str, Meta(max_length=64)]


class Ask(Struct, frozen=True, kw_only=True):
    """Probes from each of some NICs to each of some addresses of its address families, over ports drawn at random.

    Attributes:
        nics: of this host.
        ipv4, ipv6: addresses as they are on the wire, one behind the other.
        ports: source ports for each NIC and address; fewer are asked where these are more than MOST_PROBES in all.
    """

    nics: Annotated[list[Ifname], Meta(max_length=MOST_NICS)]
    ipv4: Annotated[bytes, Meta(max_length=IPV4_BYTES * MOST_ADDRESSES)] = b""
    ipv6: Annotated[bytes, Meta(max_length=IPV6_BYTES * MOST_ADDRESSES)] = b""
    ports: Annotated[int, Meta(ge=1, le=MOST_PORTS)]


class AskedNic(Struct, frozen=True, kw_only=True):
    """What came of all that was asked from a NIC.

    Attributes:
        asked, answered: ports of all addresses of which it is known whether they answer.
    """

    nic: Ifname
    asked: Count
    answered: Count


class Silent(Struct, frozen=True, kw_only=True):
    """A NIC and an address between which some ports brought nothing back.

    Attributes:
        asked, answered: ports of which it is known whether they answer.
        unsent: ports of which no probe has left the host.
        sports: some of those that are silent.
    """

    nic: Ifname
    dst_addr: Annotated[str, Meta(max_length=64)]
    asked: Count
    answered: Count
    unsent: Count = 0
    sports: Annotated[list[Annotated[int, Meta(ge=1, le=65_535)]], Meta(max_length=MOST_SHOWN)] = []


class Asked(Struct, frozen=True, kw_only=True):
    """What came of an `Ask`. Nothing is told one by one of a NIC that nobody answers.

    Attributes:
        silent: those over all ports first, and of others some drawn at random.
        beyond: how many more there are.
        unsettled: pairs of which some port brought nothing back, and was not tried often enough to tell.
    """

    nics: Annotated[list[AskedNic], Meta(max_length=MOST_NICS)]
    silent: Annotated[list[Silent], Meta(max_length=MOST_SILENT)] = []
    beyond: Count = 0
    unsettled: Count = 0

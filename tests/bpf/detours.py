"""A host with two NICs, and one queue pair with all its ways: path, backup, detour, the other NIC, and both."""

import time
from ipaddress import ip_address

import numpy as np
import roce
from machine import Machine, add_veth, delete_link
from numpy.typing import NDArray
from probes import SOURCES
from pyroute2 import IPRoute
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from waiting import until

from cwdp.dataplane.abi import PathState
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.detours import Detour, Detours, Partner
from cwdp.dataplane.steering.steering import Steer
from cwdp.shared.addresses import Address

OTHER_SOURCES = {4: ("10.0.9.1", "10.0.8.2"), 6: ("fd00:9::1", "fd00:8::2")}
GATEWAYS = {4: "10.0.9.254", 6: "fe80::9"}
"""This host's other address, the far host's other address, and the way out of this host's other NIC."""

GATEWAY_MAC, MAC = "02:00:00:00:09:fe", "02:00:00:00:00:b1"
PRIMARY, BACKUP, DETOUR = 51_000, 52_000, 53_000
SECOND_NS = 10**9
DEAD_AFTER_NS = 10 * SECOND_NS
LONG_AGO_NS = 100 * SECOND_NS
MARK = 0x01
WAYS = ("primary", "backup", "detour", "other", "other_detour")


class TwoNics:
    """roce0, which the queue pair of `roce.data` leaves by, and its partner roce1."""

    def __init__(self, dataplane: Machine, ip_version: int = 4) -> None:
        self.dataplane, self.ip_version = dataplane, ip_version
        self.packet = roce.data(ip_version=ip_version)
        with dataplane.namespace.entered():
            add_veth("roce1", "far1")
            self._configure()
            where = loader.load("roce1").where
            self.other = Maps(where)
            self.other_index = ifindex_of("roce1")
            with tree.locked():
                loader.take_in(tree.here("roce0"))
                loader.take_in(where)
        dataplane.maps.control["dead_after_ns"] = DEAD_AFTER_NS
        dataplane.steer(self.packet, Steer(PRIMARY, BACKUP))
        own, other = SOURCES[ip_version], OTHER_SOURCES[ip_version]
        self.detours = Detours(dataplane.maps, self.other)
        self.detours.set_partner(_partner(self.other_index, other[0], MAC))
        wanted = Detour(ip_address(other[1]), DETOUR, gateway=ip_address(GATEWAYS[ip_version]))
        assert self.detours.reconcile({ip_address(own[1]): wanted}) == []
        mine, partners = dataplane.maps, self.other
        to_own, to_other = ip_address(own[1]), ip_address(other[1])
        self._records = {
            "primary": _found(mine, to_own, PRIMARY),
            "backup": _found(mine, to_own, BACKUP),
            "detour": _found(mine, to_other, DETOUR),
            "other": _found(partners, to_own, DETOUR),
            "other_detour": _found(partners, to_other, DETOUR),
        }

    def _configure(self) -> None:
        with IPRoute() as ip:
            index = ip.link_lookup(ifname="roce1")[0]
            ip.link("set", index=ip.link_lookup(ifname="roce0")[0], address=MAC)
            for version, gateway in GATEWAYS.items():
                address = OTHER_SOURCES[version][0]
                ip.addr("add", index=index, address=address, prefixlen=24 if version == 4 else 64)
                ip.neigh("add", dst=gateway, lladdr=GATEWAY_MAC, ifindex=index, state="permanent")
            # until then its queue takes nothing
            until(lambda: ip.get_links(index)[0].get_attr("IFLA_OPERSTATE") == "UP")

    def close(self) -> None:
        self.detours.reconcile({})
        self.detours.set_partner(None)
        self.other.close()
        with self.dataplane.namespace.entered():
            tree.remove(tree.here("roce1"))
            delete_link("roce1")

    def receive_as_partner(self, *ip_versions: int) -> Partner:
        """roce1 stands in for roce0, over its own family or over those given."""
        own = {version: ip_address(SOURCES[version][1]) for version in ip_versions or (self.ip_version,)}
        with self.dataplane.namespace.entered():
            index = ifindex_of("roce0")
        partner = Partner(index, MAC, own.get(4), own.get(6))
        Detours(self.other, self.dataplane.maps).set_partner(partner)
        return partner

    def path(self, way: str) -> NDArray[np.void]:
        """The record of a way's path, dtype `abi.PATH`."""
        maps, number = self._records[way]
        record: NDArray[np.void] = maps.paths[number]
        return record

    def set(self, way: str, state: str) -> None:
        """Have a way's path be alive, silent, in its hold-down (healing), given up (down), or never answered."""
        now = time.monotonic_ns()
        path = self.path(way)
        silent = state in ("silent", "down", "never")
        path["state"] = PathState.DOWN if state in ("healing", "down") else PathState.UP
        path["unanswered"] = 10 if silent else 0
        path["waiting_since_ns"] = now - LONG_AGO_NS if silent else 0
        answered = {"silent": now - LONG_AGO_NS - 1, "down": now - LONG_AGO_NS - 1, "never": 0}.get(
            state, now
        )
        path["last_answer_ns"] = path["answered_sent_ns"] = answered
        path["healthy_since_ns"] = now if state == "healing" else 0
        path["hold_ns"] = SECOND_NS
        path["slow_ns"] = 0

    def kill(self, *ways: str) -> None:
        """These are silent, the others alive."""
        for way in WAYS:
            self.set(way, "silent" if way in ways else "alive")

    def expected(self, way: str) -> bytes:
        """The packet as it must leave on a way, before it has another Ethernet header."""
        sport = {"primary": PRIMARY, "backup": BACKUP}.get(way, DETOUR)
        out = roce.steered(self.packet, sport)
        if way in ("detour", "other_detour"):
            out = detoured(out, OTHER_SOURCES[self.ip_version][1])
        return out


def _found(maps: Maps, dst: Address, sport: int) -> tuple[Maps, int]:
    same = (maps.paths["dst"] == address_words(dst)).all(axis=1) & (maps.paths["sport"] == sport)
    return maps, int(same.argmax())


def _partner(ifindex: int, address: str, mac: str) -> Partner:
    found = ip_address(address)
    return Partner(ifindex, mac, found if found.version == 4 else None, found if found.version == 6 else None)


def detoured(frame: bytes, dst: str) -> bytes:
    """The packet with another destination and the mark; its ICRC stays, its checksums agree, by scapy."""
    packet = Ether(frame)
    icrc = frame[-roce.ICRC_BYTES :]
    ip = packet[IP] if IP in packet else packet[IPv6]
    ip.dst = dst
    if IP in packet:
        del ip.chksum
    mark_at = len(frame) - len(bytes(packet[BTH])) + 4
    raw = bytearray(bytes(packet))
    raw[mark_at] |= MARK
    raw[-roce.ICRC_BYTES :] = icrc
    if packet[UDP].chksum:
        again = Ether(bytes(raw))
        del again[UDP].chksum
        udp_at = mark_at - 4 - 8
        raw[udp_at + 6 : udp_at + 8] = _udp_checksum(bytes(raw), udp_at, ip.version)
    return bytes(raw)


def _udp_checksum(frame: bytes, udp_at: int, ip_version: int) -> bytes:
    addresses = frame[udp_at - 8 : udp_at] if ip_version == 4 else frame[udp_at - 32 : udp_at]
    length = int.from_bytes(frame[udp_at + 4 : udp_at + 6], "big")
    datagram = bytearray(frame[udp_at : udp_at + length])
    datagram[6:8] = bytes(2)
    whole = addresses + length.to_bytes(4, "big") + (17).to_bytes(4, "big") + bytes(datagram)
    whole += bytes(len(whole) % 2)
    total = sum(int.from_bytes(whole[n : n + 2], "big") for n in range(0, len(whole), 2))
    return (0xFFFF - total % 0xFFFF or 0xFFFF).to_bytes(2, "big")

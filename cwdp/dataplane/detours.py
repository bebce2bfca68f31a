"""What one interface does when it is dead, or the NIC at the far end is.

It is kept in the maps `detours` and `other_paths`, and as the partner in `control`. The NICs of a host are partners in pairs. A partner sends and receives in the place of the other. What is here says
only what there is; the dataplane decides when it is used (`bpf/detour.h`).
"""

from dataclasses import dataclass, field

import numpy as np

from cwdp.dataplane import abi, libbpf
from cwdp.dataplane.maps import Maps
from cwdp.dataplane.pathtable import PathTable
from cwdp.dataplane.steering import Address, address_bytes, address_words
from cwdp.errors import SteeringError

_ADDRESS_BYTES = 16
_NO_ADDRESS = np.zeros(4, dtype=np.uint32)


@dataclass(frozen=True)
class Partner:
    """This host's other NIC: where it is, and what packets for it look like."""

    ifindex: int
    mac: str
    ipv4: Address | None
    ipv6: Address | None


@dataclass(frozen=True)
class Detour:
    """What there is for one destination.

    Attributes:
        other_dst: the address of the destination's partner, if it has one.
        sport: UDP source port of every detour.
        by_other: whether this host's other NIC leads there.
        gateway: the next hop from that; None where the kernel is to find one.
    """

    other_dst: Address | None
    sport: int
    by_other: bool = True
    gateway: Address | None = None


@dataclass(frozen=True)
class _Numbers:
    """The numbers of a detour's paths, as in `struct cwdp_detour`."""

    detour: int = 0
    other: int = 0
    other_detour: int = 0
    gateway: Address | None = field(default=None)

    def pack(self) -> bytes:
        record = np.zeros((), dtype=abi.DETOUR)
        record["detour"], record["other"], record["other_detour"] = self.detour, self.other, self.other_detour
        record["gateway"] = _NO_ADDRESS if self.gateway is None else address_words(self.gateway)
        return record.tobytes()


class Detours:
    """The detours of one interface. Callers that change it hold `tree.locked()`.

    Args:
        maps: its open maps.
        other: those of its partner; None while it has none. Both stay the caller's.
    """

    def __init__(self, maps: Maps, other: Maps | None) -> None:
        self._maps, self._other = maps, other

    def set_partner(self, partner: Partner | None) -> None:
        """Have this NIC and its partner stand in for each other."""
        record = np.zeros((), dtype=abi.PARTNER)
        if partner is not None and self._other is not None:
            record["ifindex"] = partner.ifindex
            record["mac"] = np.frombuffer(bytes.fromhex(partner.mac.replace(":", "")), dtype=np.uint8)
            record["ipv4"] = 0 if partner.ipv4 is None else int(partner.ipv4)
            record["ipv6"] = _NO_ADDRESS if partner.ipv6 is None else address_words(partner.ipv6)
            self._maps.follow_paths_of(self._other)
        if self._maps.control["partner"][0] != record:
            self._maps.control["partner"][0] = record

    def reconcile(self, wanted: dict[Address, Detour]) -> list[SteeringError]:
        """Have exactly these detours.

        Returns:
            Why some could not be had.
        """
        refused: list[SteeringError] = []
        present = self._present()
        packed: dict[bytes, bytes] = {}
        for dst, detour in wanted.items():
            try:
                packed[address_bytes(dst)] = self._numbers(dst, detour).pack()
            except SteeringError as error:
                refused.append(error)
        for key in present.keys() - packed.keys():
            libbpf.hash_delete(self._maps.detours_fd, key)
        for key, value in packed.items():
            if present.get(key) != value:
                libbpf.hash_update(self._maps.detours_fd, key, value)
        self._count_spares()
        return refused

    def _numbers(self, dst: Address, detour: Detour) -> _Numbers:
        by_other = self._other if detour.by_other else None
        return _Numbers(
            detour=_watch(self._maps, detour.other_dst, detour.sport),
            other=_watch(by_other, dst, detour.sport),
            other_detour=_watch(by_other, detour.other_dst, detour.sport),
            gateway=detour.gateway,
        )

    def _present(self) -> dict[bytes, bytes]:
        return dict(libbpf.hash_items(self._maps.detours_fd, _ADDRESS_BYTES, abi.DETOUR.itemsize))

    def _count_spares(self) -> None:
        """Put right how many detours each path of both NICs is part of."""
        _count(self._maps, self._other)
        if self._other is not None:
            _count(self._other, self._maps)


def _watch(maps: Maps | None, dst: Address | None, sport: int) -> int:
    """The number of a path that is watched from now on; 0 where there is none."""
    if maps is None or dst is None:
        return 0
    return PathTable(maps.paths).spare([(address_bytes(dst), sport)])[0]


def _records(maps: Maps) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    values = [value for _, value in libbpf.hash_items(maps.detours_fd, _ADDRESS_BYTES, abi.DETOUR.itemsize)]
    return np.frombuffer(b"".join(values), dtype=abi.DETOUR)


def _count(maps: Maps, other: Maps | None) -> None:
    numbers = [_records(maps)["detour"]]
    if other is not None:
        records = _records(other)
        numbers += [records["other"], records["other_detour"]]
    spares = np.bincount(np.concatenate(numbers), minlength=abi.PATHS)
    spares[0] = 0
    maps.paths["spares"] = spares

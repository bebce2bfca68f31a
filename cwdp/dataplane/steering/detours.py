"""What one interface does when it is dead, or the NIC at the far end is.

It is kept in the maps `detours` and `other_paths`, and as the partner in `control`. The NICs of a host are partners in pairs. A partner sends and receives in the place of the other. What is here says
only what there is; the dataplane decides when it is used (`bpf/steering/detour.h`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.pathtable import PathKey, PathTable
from cwdp.errors import SteeringError
from cwdp.shared.addresses import Address, address_bytes

_ADDRESS_BYTES = 16
_NO_ADDRESS = np.zeros(4, dtype=np.uint32)
_NO_RECORDS = np.zeros(0, dtype=abi.DETOUR)


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
        """Have exactly these detours. Where old and new paths together do not fit, some are changed after others.

        Returns:
            Why some could not be had.
        """
        self._delete(self._present().keys() - {address_bytes(dst) for dst in wanted})
        refused: dict[Address, SteeringError] = {}
        pending = wanted
        while pending:
            self._count_detours()
            refused = self._grant(pending)
            is_stuck = len(refused) == len(pending)
            if is_stuck and not self._delete({address_bytes(dst) for dst in refused}):
                break
            pending = {dst: wanted[dst] for dst in refused}
        self._count_detours()
        return list(refused.values())

    def _grant(self, wanted: dict[Address, Detour]) -> dict[Address, SteeringError]:
        """Have these detours as far as there is room for their paths; why the others are not there."""
        mine = PathTable(self._maps.paths)
        others = None if self._other is None else PathTable(self._other.paths)
        present = self._present()
        refused: dict[Address, SteeringError] = {}
        for dst, detour in wanted.items():
            try:
                value = _numbers(mine, others, dst, detour).pack()
            except SteeringError as error:
                refused[dst] = error
                continue
            key = address_bytes(dst)
            if present.get(key) != value:
                libbpf.hash_update(self._maps.detours_fd, key, value)
        return refused

    def _delete(self, keys: Collection[bytes]) -> bool:
        """Remove the detours to these addresses; whether there were any."""
        return sum(libbpf.hash_delete(self._maps.detours_fd, key) for key in keys) > 0

    def _present(self) -> dict[bytes, bytes]:
        return dict(libbpf.hash_items(self._maps.detours_fd, _ADDRESS_BYTES, abi.DETOUR.itemsize))

    def _count_detours(self) -> None:
        """Put right how many detours each path of both NICs is part of."""
        mine = _records(self._maps)
        theirs = _NO_RECORDS if self._other is None else _records(self._other)
        _count(self._maps, mine, theirs)
        if self._other is not None:
            _count(self._other, theirs, mine)


def _numbers(mine: PathTable, others: PathTable | None, dst: Address, detour: Detour) -> _Numbers:
    by_other = others if detour.by_other else None
    return _Numbers(
        detour=_watch(mine, detour.other_dst, detour.sport),
        other=_watch(by_other, dst, detour.sport),
        other_detour=_watch(by_other, detour.other_dst, detour.sport),
        gateway=detour.gateway,
    )


def _watch(table: PathTable | None, dst: Address | None, sport: int) -> int:
    """The number of a path that is watched from now on; 0 where there is none."""
    if table is None or dst is None:
        return 0
    return table.use_in_detour([PathKey(address_bytes(dst), sport)])[0]


def _records(maps: Maps) -> NDArray[np.void]:
    values = [value for _, value in libbpf.hash_items(maps.detours_fd, _ADDRESS_BYTES, abi.DETOUR.itemsize)]
    return np.frombuffer(b"".join(values), dtype=abi.DETOUR)


def _count(maps: Maps, own: NDArray[np.void], partners: NDArray[np.void]) -> None:
    """Note for each path of a NIC how many detours it is part of, among its own and those of its partner."""
    numbers = np.concatenate([own["detour"], partners["other"], partners["other_detour"]])
    counts = np.bincount(numbers, minlength=abi.PATHS)
    counts[0] = 0
    maps.paths["detours"] = counts

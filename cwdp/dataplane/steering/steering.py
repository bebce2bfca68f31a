"""Which path each queue pair takes: what is wanted, kept in the maps `steer` and `paths` of one interface.

The dataplane takes a change up with the next packet. It needs nobody's help to keep to it, or to leave a dead
path for the backup; what is here only says what is wanted.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState, SteerFlag
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.pathtable import PathKey, PathTable
from cwdp.errors import SteeringError
from cwdp.shared.addresses import Address, address_bytes, bytes_address, read_address

SPORT_MAX = 0xFFFF


class Managed(IntFlag):
    """Who wants something of a queue pair, as `abi.STEER` has it; nothing of it where it was set by hand."""

    BY_AGENT = 1
    OVERRIDE = 2


@dataclass(frozen=True, order=True)
class QpKey:
    """A queue pair by its far end: the destination address and destination QPN of its packets.

    Raises:
        SteeringError: the QPN has more than 24 bits.
    """

    dst: Address
    qpn: int

    def __post_init__(self) -> None:
        if not 0 <= self.qpn <= abi.QPN_MAX:
            raise SteeringError(f"QPN {self.qpn} does not fit into 24 bits", f"give one up to {abi.QPN_MAX}")

    def pack(self) -> bytes:
        """As a record of `abi.QP_KEY`."""
        record = np.zeros((), dtype=abi.QP_KEY)
        record["addr"], record["qpn"] = address_words(self.dst), self.qpn
        return record.tobytes()


def require_ports(sport: int, backup_sport: int | None) -> None:
    """Make sure that two paths are two, and that RoCEv2 has source ports like theirs.

    Raises:
        SteeringError: a port is out of range, or both are the same.
    """
    for port in (sport, backup_sport):
        if port is not None and not abi.SPORT_MIN <= port <= SPORT_MAX:
            raise SteeringError(
                f"source port {port} is none of RoCEv2's", f"give one from {abi.SPORT_MIN} to {SPORT_MAX}"
            )
    if sport == backup_sport:
        raise SteeringError(f"source port {sport} cannot be its own backup", "give the backup another port")


@dataclass(frozen=True)
class Steer:
    """Where a queue pair's packets are to go.

    Attributes:
        sport: UDP source port, 49152 to 65535.
        backup_sport: the one to take while the path of `sport` is down.
        flow_label: over IPv6, have the flow label follow the source port.
        managed: wanted by the agent's desired state; otherwise set by hand.
        override: wanted there by an operator; otherwise by the planner. The dataplane only keeps this.

    Raises:
        SteeringError: a port is out of range, or both are the same.
    """

    sport: int
    backup_sport: int | None = None
    flow_label: bool = False
    managed: bool = False
    override: bool = False

    def __post_init__(self) -> None:
        require_ports(self.sport, self.backup_sport)

    def ports(self) -> list[int]:
        """The ports of its one or two paths."""
        return [self.sport] if self.backup_sport is None else [self.sport, self.backup_sport]


@dataclass(frozen=True)
class Steered:
    """A steered queue pair, and how its paths are: None where a path is not watched."""

    key: QpKey
    steer: Steer
    primary_state: PathState
    backup_state: PathState | None = None


class Steering:
    """What is wanted on one interface. Callers that change it hold `tree.locked()`.

    Args:
        maps: the interface's open maps; they stay the caller's.
    """

    def __init__(self, maps: Maps) -> None:
        self._maps = maps

    def set(self, key: QpKey, wanted: Steer) -> None:
        """Steer a queue pair, or move it.

        Raises:
            SteeringError: it is steered so already, or the tables are full.
        """
        before = self.get(key)
        if before == wanted:
            raise SteeringError(
                f"{key.dst} QPN {key.qpn} is steered to {wanted.sport} already", "see: cwdp steer list"
            )
        with self._changes() as changes:
            changes.put(key, before, wanted)

    def unset(self, key: QpKey) -> None:
        """Let a queue pair go where its own source port leads.

        Raises:
            SteeringError: it is not steered.
        """
        before = self.get(key)
        if before is None:
            raise SteeringError(f"{key.dst} QPN {key.qpn} is not steered", "see: cwdp steer list")
        with self._changes() as changes:
            changes.drop(key, before)

    def get(self, key: QpKey) -> Steer | None:
        """What is wanted of a queue pair, if anything."""
        value = libbpf.hash_lookup(self._maps.steer_fd, key.pack(), abi.STEER.itemsize)
        return next(_unpack(np.frombuffer(value, dtype=abi.STEER))) if value is not None else None

    def all(self) -> dict[QpKey, Steer]:
        """Everything that is wanted."""
        items = libbpf.hash_items(self._maps.steer_fd, abi.QP_KEY.itemsize, abi.STEER.itemsize)
        keys = np.frombuffer(b"".join(key for key, _ in items), dtype=abi.QP_KEY)
        values = np.frombuffer(b"".join(value for _, value in items), dtype=abi.STEER)
        return dict(zip(_unpack_keys(keys), _unpack(values), strict=True))

    def path_pairs(self) -> NDArray[np.intp]:
        """Numbers of the path and of the backup of each queue pair that has one, each pair once; shape (pairs, 2)."""
        items = libbpf.hash_items(self._maps.steer_fd, abi.QP_KEY.itemsize, abi.STEER.itemsize)
        values = np.frombuffer(b"".join(value for _, value in items), dtype=abi.STEER)
        values = values[values["flags"] & SteerFlag.BACKUP > 0]
        return np.unique(np.stack([values["path"], values["backup_path"]], axis=1).astype(np.intp), axis=0)

    def listed(self) -> list[Steered]:
        """Everything that is wanted, in order, with the states of the paths."""
        paths = PathTable(self._maps.paths)
        return [
            Steered(key, steer, *(paths.state(path) for path in path_keys(key, steer)))
            for key, steer in sorted(self.all().items(), key=lambda item: (str(item[0].dst), item[0].qpn))
        ]

    def reconcile(self, wanted: dict[QpKey, Steer]) -> list[SteeringError]:
        """Have what is managed be what is wanted; what was set by hand stays, and is not overruled.

        Returns:
            Why some could not be steered as wanted.
        """
        refused: list[SteeringError] = []
        present = self.all()
        with self._changes() as changes:
            for key, steer in present.items():
                if steer.managed and key not in wanted:
                    changes.drop(key, steer)
            for key, steer in wanted.items():
                before = present.get(key)
                if before is not None and not before.managed:
                    refused.append(
                        SteeringError(
                            f"{key.dst} QPN {key.qpn} was steered by hand", "let go of it: cwdp steer unset"
                        )
                    )
                elif before != steer:
                    try:
                        changes.put(key, before, steer)
                    except SteeringError as error:
                        refused.append(error)
        return refused

    def recount(self, others: Iterable[list[PathKey]]) -> None:
        """Put right what is counted of them, which a process killed in the middle of a change leaves wrong.

        Args:
            others: paths of each TCP connection that is steered, the primary first.
        """
        present = self.all()
        users = [path_keys(key, steer) for key, steer in present.items()]
        PathTable(self._maps.paths).recount([*users, *others])
        places = np.array([_place(key) for key in present], dtype=np.intp)
        self._maps.steered_qps[:] = np.bincount(places, minlength=abi.STEERED_QPNS)

    @contextmanager
    def _changes(self) -> Iterator["_Changes"]:
        changes = _Changes(self._maps)
        try:
            yield changes
        finally:
            changes.finish()


class _Changes:
    """Changes that the dataplane is told of together. Paths are let go of when it knows: it may use them until then."""

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._paths = PathTable(maps.paths)
        self._left: list[list[PathKey]] = []

    def put(self, key: QpKey, before: Steer | None, wanted: Steer) -> None:
        """Steer a queue pair.

        Raises:
            SteeringError: the tables are full.
        """
        paths = path_keys(key, wanted)
        if before is None:
            self._maps.steered_qps[_place(key)] += 1
        try:
            libbpf.hash_update(self._maps.steer_fd, key.pack(), _pack(wanted, self._use(paths)))
        except OSError as error:
            self._left.append(paths)
            if before is None:
                self._maps.steered_qps[_place(key)] -= 1
            raise SteeringError(
                f"{abi.STEER_MAX} queue pairs are steered already, no more fit",
                "let go of some: cwdp steer unset",
            ) from error
        if before is not None:
            self._left.append(path_keys(key, before))

    def drop(self, key: QpKey, before: Steer) -> None:
        """Steer a queue pair no more."""
        libbpf.hash_delete(self._maps.steer_fd, key.pack())
        self._maps.steered_qps[_place(key)] -= 1
        self._left.append(path_keys(key, before))

    def finish(self) -> None:
        """Tell the dataplane, then let go of what it does not use any more."""
        self._maps.next_generation()
        for paths in self._left:
            self._paths.leave(paths)
        self._left.clear()

    def _use(self, paths: list[PathKey]) -> list[int]:
        try:
            return self._paths.use(paths)
        except SteeringError:
            self.finish()
        return self._paths.use(paths)


def _place(key: QpKey) -> int:
    """Where a queue pair is counted in `Maps.steered_qps`."""
    return key.qpn % abi.STEERED_QPNS


def path_keys(key: QpKey, steer: Steer) -> list[PathKey]:
    """The one or two paths of a steered queue pair, the primary first."""
    dst = address_bytes(key.dst)
    return [PathKey(dst, port) for port in steer.ports()]


def _pack(wanted: Steer, paths: list[int]) -> bytes:
    record = np.zeros((), dtype=abi.STEER)
    flags = int(SteerFlag.ON)
    record["sport"], record["path"] = wanted.sport, paths[0]
    record["managed"] = Managed.BY_AGENT * wanted.managed | Managed.OVERRIDE * wanted.override
    if wanted.backup_sport is not None:
        record["backup_sport"], record["backup_path"] = wanted.backup_sport, paths[1]
        flags |= SteerFlag.BACKUP
    if wanted.flow_label:
        flags |= SteerFlag.FLOW_LABEL
    record["flags"] = flags
    return record.tobytes()


def _unpack(records: NDArray[np.void]) -> Iterator[Steer]:
    """From records of `abi.STEER`."""
    columns = (records[name].tolist() for name in ("sport", "backup_sport", "flags", "managed"))
    for sport, backup_sport, flags, managed in zip(*columns, strict=True):
        yield Steer(
            sport=sport,
            backup_sport=backup_sport if flags & SteerFlag.BACKUP else None,
            flow_label=bool(flags & SteerFlag.FLOW_LABEL),
            managed=bool(managed & Managed.BY_AGENT),
            override=bool(managed & Managed.OVERRIDE),
        )


def _unpack_keys(records: NDArray[np.void]) -> Iterator[QpKey]:
    """From records of `abi.QP_KEY`."""
    packed, qpns = np.ascontiguousarray(records["addr"]).tobytes(), records["qpn"].tolist()
    addresses: dict[bytes, Address] = {}
    for i, qpn in enumerate(qpns):
        dst = packed[16 * i : 16 * i + 16]
        if dst not in addresses:
            addresses[dst] = bytes_address(dst)
        yield QpKey(addresses[dst], qpn)


def parse_address(text: str) -> Address:
    """An IPv4 or IPv6 address; see `cwdp.shared.addresses.read_address`.

    Raises:
        SteeringError: it is none.
    """
    try:
        return read_address(text)
    except ValueError as error:
        raise SteeringError(f"{text} is no IP address", "give one like 10.0.0.2 or fd00::2") from error

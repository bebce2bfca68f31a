"""Which path each queue pair takes: what is wanted, kept in the maps `steer` and `paths` of one interface.

The dataplane takes a change up with the next packet. It needs nobody's help to keep to it, or to leave a dead
path for the backup; what is here only says what is wanted.
"""

import ipaddress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import numpy as np

from cwdp.dataplane import abi, libbpf
from cwdp.dataplane.abi import PathState, SteerFlag
from cwdp.dataplane.maps import Maps
from cwdp.errors import SteeringError

Address = IPv4Address | IPv6Address
SPORT_MAX = 0xFFFF


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

    @classmethod
    def unpack(cls, record: np.void) -> "QpKey":
        """From a record of `abi.QP_KEY`."""
        return cls(words_address(record["addr"]), int(record["qpn"]))


@dataclass(frozen=True)
class Steer:
    """Where a queue pair's packets are to go.

    Attributes:
        sport: UDP source port, 49152 to 65535.
        backup_sport: the one to take while the path of `sport` is down.
        flow_label: over IPv6, have the flow label follow the source port.
        managed: wanted by the agent's desired state; otherwise set by hand.

    Raises:
        SteeringError: a port is out of range, or both are the same.
    """

    sport: int
    backup_sport: int | None = None
    flow_label: bool = False
    managed: bool = False

    def __post_init__(self) -> None:
        for port in (self.sport, self.backup_sport):
            if port is not None and not abi.SPORT_MIN <= port <= SPORT_MAX:
                raise SteeringError(
                    f"source port {port} is none of RoCEv2's", f"give one from {abi.SPORT_MIN} to {SPORT_MAX}"
                )
        if self.sport == self.backup_sport:
            raise SteeringError(
                f"source port {self.sport} cannot be its own backup", "give the backup another port"
            )

    def ports(self) -> list[int]:
        """The ports of its one or two paths."""
        return [self.sport] if self.backup_sport is None else [self.sport, self.backup_sport]


@dataclass(frozen=True)
class Steered:
    """A steered queue pair, and how its paths are: None where a path is not watched."""

    key: QpKey
    steer: Steer
    primary_state: PathState
    backup_state: PathState | None


def address_words(address: Address) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """An address as the dataplane has it, IPv4 as ::ffff:a.b.c.d; shape (4,), host order."""
    packed = bytes(10) + b"\xff\xff" + address.packed if address.version == 4 else address.packed
    return np.frombuffer(packed, dtype=">u4").astype(np.uint32)


def words_address(words: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> Address:
    """The address that `address_words` was made from."""
    address = IPv6Address(np.asarray(words, dtype=">u4").tobytes())
    return address.ipv4_mapped or address


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
        paths = [self._use_path(key.dst, port) for port in wanted.ports()]
        try:
            libbpf.hash_update(self._maps.steer_fd, key.pack(), _pack(wanted, paths))
        except OSError as error:
            for port in wanted.ports():
                self._leave_path(key.dst, port)
            raise SteeringError(
                f"{abi.STEER_MAX} queue pairs are steered already, no more fit",
                "let go of some: cwdp steer unset",
            ) from error
        self._maps.next_generation()
        for port in before.ports() if before else ():
            self._leave_path(key.dst, port)

    def unset(self, key: QpKey) -> None:
        """Let a queue pair go where its own source port leads.

        Raises:
            SteeringError: it is not steered.
        """
        before = self.get(key)
        if before is None:
            raise SteeringError(f"{key.dst} QPN {key.qpn} is not steered", "see: cwdp steer list")
        libbpf.hash_delete(self._maps.steer_fd, key.pack())
        self._maps.next_generation()
        for port in before.ports():
            self._leave_path(key.dst, port)

    def get(self, key: QpKey) -> Steer | None:
        """What is wanted of a queue pair, if anything."""
        value = libbpf.hash_lookup(self._maps.steer_fd, key.pack(), abi.STEER.itemsize)
        return _unpack(value) if value is not None else None

    def all(self) -> dict[QpKey, Steer]:
        """Everything that is wanted."""
        items = libbpf.hash_items(self._maps.steer_fd, abi.QP_KEY.itemsize, abi.STEER.itemsize)
        return {QpKey.unpack(np.frombuffer(key, dtype=abi.QP_KEY)[0]): _unpack(value) for key, value in items}

    def listed(self) -> list[Steered]:
        """Everything that is wanted, in order, with the states of the paths."""
        return [
            Steered(
                key,
                steer,
                self._state(key.dst, steer.sport),
                None if steer.backup_sport is None else self._state(key.dst, steer.backup_sport),
            )
            for key, steer in sorted(self.all().items(), key=lambda item: (str(item[0].dst), item[0].qpn))
        ]

    def reconcile(self, wanted: dict[QpKey, Steer]) -> list[SteeringError]:
        """Have what is managed be what is wanted; what was set by hand stays, and is not overruled.

        Returns:
            Why some could not be steered as wanted.
        """
        refused: list[SteeringError] = []
        present = self.all()
        for key, steer in present.items():
            if steer.managed and key not in wanted:
                self.unset(key)
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
                    self.set(key, steer)
                except SteeringError as error:
                    refused.append(error)
        return refused

    def recount(self) -> None:
        """Put right how many use each path, which a process killed in the middle of a change leaves wrong."""
        users = np.zeros(len(self._maps.paths), dtype=np.uint32)
        for key, steer in self.all().items():
            for port in steer.ports():
                number = self._find_path(key.dst, port)
                if number is None:
                    number = self._use_path(key.dst, port)
                users[number] += 1
        self._maps.paths["users"] = users

    def _find_path(self, dst: Address, sport: int) -> int | None:
        paths = self._maps.paths
        here = (paths["users"] > 0) & (paths["sport"] == sport)
        found = np.flatnonzero(here & (paths["dst"] == address_words(dst)).all(axis=1))
        return int(found[0]) if len(found) else None

    def _use_path(self, dst: Address, sport: int) -> int:
        number = self._find_path(dst, sport)
        paths = self._maps.paths
        if number is None:
            free = np.flatnonzero(paths["users"][1:] == 0)
            if not len(free):
                raise SteeringError(
                    f"{abi.PATHS - 1} paths are watched already, no more fit",
                    "use fewer source ports a destination",
                )
            number = int(free[0]) + 1
            record = np.zeros((), dtype=abi.PATH)
            record["dst"], record["sport"] = address_words(dst), sport
            paths[number] = record
        paths["users"][number] += 1
        return number

    def _leave_path(self, dst: Address, sport: int) -> None:
        number = self._find_path(dst, sport)
        if number is not None:
            self._maps.paths["users"][number] -= 1

    def _state(self, dst: Address, sport: int) -> PathState:
        number = self._find_path(dst, sport)
        return PathState.UP if number is None else PathState(int(self._maps.paths["state"][number]))


def _pack(wanted: Steer, paths: list[int]) -> bytes:
    record = np.zeros((), dtype=abi.STEER)
    flags = int(SteerFlag.ON)
    record["sport"], record["path"], record["managed"] = wanted.sport, paths[0], wanted.managed
    if wanted.backup_sport is not None:
        record["backup_sport"], record["backup_path"] = wanted.backup_sport, paths[1]
        flags |= SteerFlag.BACKUP
    if wanted.flow_label:
        flags |= SteerFlag.FLOW_LABEL
    record["flags"] = flags
    return record.tobytes()


def _unpack(value: bytes) -> Steer:
    record = np.frombuffer(value, dtype=abi.STEER)[0]
    flags = int(record["flags"])
    return Steer(
        sport=int(record["sport"]),
        backup_sport=int(record["backup_sport"]) if flags & SteerFlag.BACKUP else None,
        flow_label=bool(flags & SteerFlag.FLOW_LABEL),
        managed=bool(record["managed"]),
    )


def parse_address(text: str) -> Address:
    """An IPv4 or IPv6 address.

    Raises:
        SteeringError: it is none.
    """
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise SteeringError(f"{text} is no IP address", "give one like 10.0.0.2 or fd00::2") from error

"""Which path each TCP connection takes from here: what is wanted, kept in maps of one interface.

A connection's segments bear the ports of its path on the wire, over IPv6 its flow label, or both. Ports change only once the
far end has said that it restores them; until then, and whenever neither path nor backup is alive, segments leave as
they would without us.
"""

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState, SteerFlag
from cwdp.dataplane.addresses import address_words, words_address
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.barrier import store_barrier
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.tree import TIMERS_PROGRAM
from cwdp.dataplane.steering.pathtable import PathKey, PathTable
from cwdp.dataplane.steering.steering import Managed, require_ports
from cwdp.errors import SteeringError
from cwdp.shared.addresses import Address, address_bytes

LEASE_NS = abi.TCP_LEASE_MS * 1_000_000
KEPT_NS = 120_000_000_000
"""For so long after the last announcement of a connection its ports are known; a sender gives up much earlier."""

_OWN_NS: Final = 2**64 - 1
_NUMBER_BYTES = 4


@dataclass(frozen=True, order=True)
class TcpConnection:
    """A connection as this host has it.

    Raises:
        SteeringError: a port is none, or the addresses are of two families.
    """

    local: Address
    remote: Address
    local_port: int
    remote_port: int

    def __post_init__(self) -> None:
        for port in (self.local_port, self.remote_port):
            if not 0 < port <= 0xFFFF:
                raise SteeringError(f"{port} is no TCP port", "give one from 1 to 65535")
        if self.local.version != self.remote.version:
            raise SteeringError(
                f"{self.local} and {self.remote} are of two families", "give both as IPv4 or both as IPv6"
            )
        for address in (self.local, self.remote):
            if address.version == 6 and address.ipv4_mapped:
                raise SteeringError(f"{address} is an address of IPv4", f"write {address.ipv4_mapped}")

    def __str__(self) -> str:
        return f"{_end(self.local, self.local_port)} > {_end(self.remote, self.remote_port)}"

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6."""
        return socket.AF_INET if self.local.version == 4 else socket.AF_INET6

    @property
    def port_sum(self) -> int:
        """The one's complement sum of the ports, by which segments on the wire are told apart."""
        return (self.local_port + self.remote_port - 1) % 0xFFFF + 1

    def pack(self) -> bytes:
        """As a record of `abi.TCP_KEY`."""
        return self.record().tobytes()

    def record(self) -> NDArray[np.void]:
        """A record of `abi.TCP_KEY`."""
        record = np.zeros((), dtype=abi.TCP_KEY)
        record["local_addr"], record["remote_addr"] = address_words(self.local), address_words(self.remote)
        record["local_port"], record["remote_port"] = self.local_port, self.remote_port
        return record

    def wire_key(self) -> bytes:
        """Of its segments from here, as a record of `abi.TCP_WIRE_KEY`."""
        record = np.zeros((), dtype=abi.TCP_WIRE_KEY)
        record["from_addr"], record["to_addr"] = address_words(self.local), address_words(self.remote)
        record["port_sum"] = self.port_sum << 8 & 0xFF00 | self.port_sum >> 8
        return record.tobytes()


@dataclass(frozen=True)
class TcpSteer:
    """Where a connection's segments are to go.

    Attributes:
        sport: source port of the path, 49152 to 65535.
        backup_sport: of the one to take while that path is down.
        ports: have the segments bear the path's ports.
        flow_label: over IPv6, have the flow label follow the path's source port.
        managed: wanted by the agent's desired state; otherwise set by hand.
        override: wanted there by an operator; otherwise by the planner. The dataplane only keeps this.

    Raises:
        SteeringError: a port is out of range, both are the same, or nothing is to change.
    """

    sport: int
    backup_sport: int | None = None
    ports: bool = True
    flow_label: bool = False
    managed: bool = False
    override: bool = False

    def __post_init__(self) -> None:
        require_ports(self.sport, self.backup_sport)
        if not self.ports and not self.flow_label:
            raise SteeringError("neither ports nor the flow label are to change", "have one of them change")

    def path_keys(self, connection: TcpConnection) -> list[PathKey]:
        """Its one or two paths, the primary first."""
        dst = address_bytes(connection.remote)
        sports = [self.sport] if self.backup_sport is None else [self.sport, self.backup_sport]
        return [PathKey(dst, sport, socket.IPPROTO_TCP) for sport in sports]


@dataclass(frozen=True)
class SteeredConnection:
    """A steered connection as the dataplane has it.

    Attributes:
        confirmed: the far end has said of late that it restores the ports; True where they stay.
        used_sport: of its last segment by a path; 0 before the first.
        buffers, nbytes: that left by its paths.
        primary_state, backup_state: of its paths.
    """

    connection: TcpConnection
    steer: TcpSteer
    confirmed: bool
    used_sport: int
    buffers: int
    nbytes: int
    primary_state: PathState
    backup_state: PathState | None


class TcpSteering:
    """What is wanted on one interface. Callers that change it hold `tree.locked()`.

    Args:
        maps: the interface's open maps; they stay the caller's.
    """

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._conns = maps.tcp_conns

    def all(self) -> dict[TcpConnection, TcpSteer]:
        """Everything that is wanted."""
        return {_connection(self._conns[n]): _steer(self._conns[n]) for n in self._present().tolist()}

    def users(self) -> list[list[PathKey]]:
        """The paths of each connection, the primary first."""
        return [steer.path_keys(connection) for connection, steer in self.all().items()]

    def path_pairs(self) -> NDArray[np.intp]:
        """Numbers of the path and of the backup of each connection that has one, each pair once; shape (pairs, 2)."""
        records = self._conns[self._conns["flags"] & SteerFlag.BACKUP > 0]
        return np.unique(np.stack([records["path"], records["backup_path"]], axis=1).astype(np.intp), axis=0)

    def listed(self, now_ns: int) -> list[SteeredConnection]:
        """Everything that is wanted, in order, and how it is at a CLOCK_MONOTONIC."""
        return sorted(
            (self._listed(self._conns[n], now_ns) for n in self._present().tolist()),
            key=lambda one: str(one.connection),
        )

    def set(self, connection: TcpConnection, wanted: TcpSteer) -> None:
        """Steer a connection, or move it.

        Raises:
            SteeringError: the tables are full, or another connection would look the same on the wire.
        """
        with self._changes() as changes:
            changes.put(connection, wanted)

    def unset(self, connection: TcpConnection) -> None:
        """Let a connection go where its own ports lead.

        Raises:
            SteeringError: it is not steered.
        """
        with self._changes() as changes:
            changes.drop(connection)

    def reconcile(self, wanted: dict[TcpConnection, TcpSteer]) -> list[SteeringError]:
        """Have what is managed be what is wanted; what was set by hand stays, and is not overruled.

        Returns:
            Why some could not be steered as wanted.
        """
        refused: list[SteeringError] = []
        present = self.all()
        with self._changes() as changes:
            for connection, steer in present.items():
                if steer.managed and connection not in wanted:
                    changes.drop(connection)
            for connection, steer in wanted.items():
                before = present.get(connection)
                if before is not None and not before.managed:
                    refused.append(SteeringError(f"{connection} was steered by hand", "let go of it first"))
                elif before != steer:
                    try:
                        changes.put(connection, steer)
                    except SteeringError as error:
                        refused.append(error)
        return refused

    def repair(self) -> None:
        """Put right what a process killed in the middle of a change has left; the records tell what is wanted."""
        kept = {_connection(self._conns[n]): n for n in self._present().tolist()}
        numbers = {connection.pack(): number for connection, number in kept.items()}
        for key, _ in self._numbers():
            if key not in numbers:
                libbpf.hash_delete(self._maps.tcp_out_fd, key)
        own = {one.wire_key() for one, n in kept.items() if _steer(self._conns[n]).ports}
        for key, value in self._ports():
            if _announced_ns(value) == _OWN_NS and key not in own:
                libbpf.hash_delete(self._maps.tcp_in_fd, key)
        sums = np.array([_place(connection) for connection in kept], dtype=np.intp)
        self._maps.tcp_steered["by_sum"][0] = np.bincount(sums, minlength=abi.TCP_SUMS)
        self._maps.tcp_steered["total"] = len(kept)
        for connection, number in kept.items():
            _enter(self._maps, connection, number)

    def forget_silent(self, now_ns: int) -> int:
        """Forget the connections of hosts that have not announced them for KEPT_NS; returns how many those were.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        items = self._ports()
        old = {key for key, value in items if _is_old(_announced_ns(value), now_ns)}
        announcing = {_host(key) for key, _ in items if key not in old and key != _host(key)}
        forgotten = [key for key in old if key != _host(key) or key not in announcing]
        return sum(libbpf.hash_delete(self._maps.tcp_in_fd, key) for key in forgotten)

    def set_timers(self) -> None:
        """Have sockets of connections that are steered here or at the far end not wait for as long as Linux would have them.

        Of this network namespace, and until they are closed.

        Raises:
            OSError: the kernel does not permit it.
        """
        if self._maps.tcp_steered["total"][0] or self._ports():
            with libbpf.opened(self._maps.where.path / TIMERS_PROGRAM) as program:
                libbpf.iterate(program)

    def _present(self) -> NDArray[np.intp]:
        return np.flatnonzero(self._conns["flags"])

    def _numbers(self) -> list[tuple[bytes, bytes]]:
        return libbpf.hash_items(self._maps.tcp_out_fd, abi.TCP_KEY.itemsize, _NUMBER_BYTES)

    def _ports(self) -> list[tuple[bytes, bytes]]:
        return libbpf.hash_items(self._maps.tcp_in_fd, abi.TCP_WIRE_KEY.itemsize, abi.TCP_PORTS.itemsize)

    def _listed(self, record: NDArray[np.void], now_ns: int) -> SteeredConnection:
        steer, states = _steer(record), self._maps.paths["state"]
        confirmed_ns = int(record["confirmed_ns"])
        return SteeredConnection(
            connection=_connection(record),
            steer=steer,
            confirmed=not steer.ports or (confirmed_ns > 0 and now_ns - confirmed_ns <= LEASE_NS),
            used_sport=int(record["used_sport"]),
            buffers=int(record["buffers"]),
            nbytes=int(record["bytes"]),
            primary_state=PathState(int(states[record["path"]])),
            backup_state=None
            if steer.backup_sport is None
            else PathState(int(states[record["backup_path"]])),
        )

    @contextmanager
    def _changes(self) -> Iterator["_Changes"]:
        changes = _Changes(self._maps)
        try:
            yield changes
        finally:
            changes.finish()


class _Changes:
    """Changes made together. Paths are let go of at the end: the dataplane may use them until then."""

    def __init__(self, maps: Maps) -> None:
        self._maps, self._conns = maps, maps.tcp_conns
        self._paths = PathTable(maps.paths)
        present = np.flatnonzero(self._conns["flags"]).tolist()
        self._numbers = {_connection(self._conns[n]): n for n in present}
        self._wires = {
            one.wire_key(): one for one, n in self._numbers.items() if _steer(self._conns[n]).ports
        }
        self._free = deque((np.flatnonzero(self._conns["flags"][1:] == 0) + 1).tolist())
        self._left: list[list[PathKey]] = []
        self._is_any = False

    def put(self, connection: TcpConnection, wanted: TcpSteer) -> None:
        """Steer a connection; raises what `TcpSteering.set` does."""
        if wanted.ports and connection.port_sum == abi.TCP_PROBE_SUM:
            raise SteeringError(f"the ports of {connection} add up as those of probes do", "it is left alone")
        alike = self._wires.get(connection.wire_key())
        if wanted.ports and alike not in (None, connection):
            raise SteeringError(
                f"{connection} would look like {alike} on the wire", "it is steered once that has ended"
            )
        number = self._numbers.get(connection)
        if number is None and not self._free:
            raise SteeringError(
                f"{abi.TCP_CONNS - 1} connections are steered already", "steer fewer services"
            )
        paths = self._paths.use(wanted.path_keys(connection))
        self._is_any = True
        if number is None:
            self._add(connection, wanted, paths)
        else:
            self._alter(connection, number, wanted, paths)

    def drop(self, connection: TcpConnection) -> None:
        """Steer a connection no more; raises what `TcpSteering.unset` does."""
        number = self._numbers.pop(connection, None)
        if number is None:
            raise SteeringError(f"{connection} is not steered", "nothing is to be done")
        self._is_any = True
        libbpf.hash_delete(self._maps.tcp_out_fd, connection.pack())
        steer = _steer(self._conns[number])
        if steer.ports:
            self._forget_ports(connection)
        self._left.append(steer.path_keys(connection))
        self._conns["flags"][number] = 0
        self._maps.tcp_steered["by_sum"][0, _place(connection)] -= 1
        self._maps.tcp_steered["total"] -= 1
        self._free.append(number)

    def finish(self) -> None:
        """Let go of what the dataplane does not use any more, and tell those who follow changes of the steering."""
        if self._is_any:
            self._maps.next_generation()
        for paths in self._left:
            self._paths.leave(paths)
        self._left.clear()

    def _add(self, connection: TcpConnection, wanted: TcpSteer, paths: list[int]) -> None:
        number = self._numbers[connection] = self._free.popleft()
        self._conns[number] = np.zeros((), dtype=abi.TCP_CONN)
        self._conns["key"][number] = connection.record()
        self._write(number, wanted, paths)
        self._maps.tcp_steered["by_sum"][0, _place(connection)] += 1
        self._maps.tcp_steered["total"] += 1
        store_barrier()
        self._have_found(connection, number, wanted)

    def _alter(self, connection: TcpConnection, number: int, wanted: TcpSteer, paths: list[int]) -> None:
        before = _steer(self._conns[number])
        self._left.append(before.path_keys(connection))
        self._write(number, wanted, paths)
        if wanted.ports and not before.ports:
            self._have_found(connection, number, wanted)
        elif before.ports and not wanted.ports:
            self._forget_ports(connection)

    def _have_found(self, connection: TcpConnection, number: int, wanted: TcpSteer) -> None:
        """Have the dataplane find it; where there is no room, it is steered no more."""
        if wanted.ports:
            self._wires[connection.wire_key()] = connection
        try:
            _enter(self._maps, connection, number)
        except OSError as error:
            self.drop(connection)
            raise SteeringError(
                f"{abi.TCP_ANNOUNCED_MAX} connections are known already, no more fit",
                "it is tried again by itself",
            ) from error

    def _forget_ports(self, connection: TcpConnection) -> None:
        libbpf.hash_delete(self._maps.tcp_in_fd, connection.wire_key())
        self._wires.pop(connection.wire_key(), None)

    def _write(self, number: int, wanted: TcpSteer, paths: list[int]) -> None:
        conns = self._conns
        flags = int(SteerFlag.ON)
        flags |= SteerFlag.PORTS if wanted.ports else 0
        flags |= SteerFlag.FLOW_LABEL if wanted.flow_label else 0
        flags |= SteerFlag.BACKUP if wanted.backup_sport is not None else 0
        conns["sport"][number], conns["path"][number] = wanted.sport, paths[0]
        if wanted.backup_sport is not None:
            conns["backup_sport"][number], conns["backup_path"][number] = wanted.backup_sport, paths[1]
        conns["route"][number] = conns["left_ns"][number] = 0
        conns["managed"][number] = Managed.BY_AGENT * wanted.managed | Managed.OVERRIDE * wanted.override
        conns["flags"][number] = flags


def _enter(maps: Maps, connection: TcpConnection, number: int) -> None:
    """Have the dataplane find a connection, by its segments and by ICMP errors that quote them."""
    ports = np.zeros((), dtype=abi.TCP_PORTS)
    ports["from_port"], ports["to_port"] = connection.local_port, connection.remote_port
    ports["announced_ns"] = _OWN_NS
    if maps.tcp_conns["flags"][number] & SteerFlag.PORTS:
        libbpf.hash_update(maps.tcp_in_fd, connection.wire_key(), ports.tobytes())
    libbpf.hash_update(maps.tcp_out_fd, connection.pack(), number.to_bytes(_NUMBER_BYTES, "little"))


def _place(connection: TcpConnection) -> int:
    """Where it is counted in `by_sum`: by the sum in the order of the wire, as the dataplane has it."""
    swapped = connection.port_sum << 8 & 0xFF00 | connection.port_sum >> 8
    return swapped % abi.TCP_SUMS


def _connection(record: NDArray[np.void]) -> TcpConnection:
    key = record["key"]
    return TcpConnection(
        words_address(key["local_addr"]),
        words_address(key["remote_addr"]),
        int(key["local_port"]),
        int(key["remote_port"]),
    )


def _steer(record: NDArray[np.void]) -> TcpSteer:
    flags, managed = int(record["flags"]), int(record["managed"])
    return TcpSteer(
        sport=int(record["sport"]),
        backup_sport=int(record["backup_sport"]) if flags & SteerFlag.BACKUP else None,
        ports=bool(flags & SteerFlag.PORTS),
        flow_label=bool(flags & SteerFlag.FLOW_LABEL),
        managed=bool(managed & Managed.BY_AGENT),
        override=bool(managed & Managed.OVERRIDE),
    )


def _announced_ns(value: bytes) -> int:
    return int(np.frombuffer(value, dtype=abi.TCP_PORTS)["announced_ns"][0])


def _is_old(announced_ns: int, now_ns: int) -> bool:
    return announced_ns != _OWN_NS and now_ns - announced_ns > KEPT_NS


def _host(key: bytes) -> bytes:
    """The key under which the host of a connection is known to announce."""
    return key[:32] + bytes(4)


def _end(address: Address, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"

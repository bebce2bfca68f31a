"""A program with the verbs shim, as the agent's process sees it."""

import mmap
import os
import select
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cwdp.rdma import shimwire
from cwdp.rdma.ib.lid import gid_lid
from cwdp.rdma.shimwire import (
    ACTUATORS,
    COUNTS,
    HELLO,
    MAGIC,
    MOVE,
    MOVED,
    QP,
    ROUTE,
    RTS,
    SENT,
    SOURCE,
    TABLE,
    UNCOUNTED,
    VERSION,
    How,
    Kind,
)
from cwdp.rdma.sport import flow_label_to_sport, sport_to_flow_label
from cwdp.shared.bus.messages import Actuator

WAIT_S = 10.0


@dataclass(frozen=True)
class Order:
    """A MOVE; `sport` is a DLID in a step of a migration, `lmc` of its port."""

    device: str
    qpn: int
    number: int
    deadline_ns: int
    sport: int
    how: How
    lmc: int

    @property
    def with_sqd(self) -> bool:
        """Whether it may be drained."""
        return self.how == How.MAY_DRAIN


class FakeShim:
    """A connection to the agent's process; what comes is read when it is asked for.

    Args:
        path: of the socket.
        greets: whether it says what it is at once.
    """

    def __init__(self, path: Path, *, greets: bool = True) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(str(path))
        self.sock.setblocking(False)
        self.tables: list[bytes] = []
        self.orders: list[Order] = []
        if greets:
            self.greet()

    def greet(self, version: int = VERSION, refused: int = 0, untold: int = 0, job: bytes = b"") -> None:
        """Say what it is."""
        self._say(HELLO.pack(MAGIC, Kind.HELLO, b"", 0, 0, version, refused, untold, job))

    def connect_qp(
        self, qpn: int, dst: bytes, sport: int, *, device: str = "mlx5_0", gid_index: int = 3,
        actuator: Actuator = "mlx5dv", state: int = RTS, dest_qpn: int | None = None, by_table: int = 1,
        count_place: int = UNCOUNTED,
    ) -> None:  # fmt: skip
        """Tell that a queue pair has a path; `sport` 0 for the device's own choice."""
        label = sport_to_flow_label(sport) if sport else 0
        dest = qpn + 1_000_000 if dest_qpn is None else dest_qpn
        self._say(
            QP.pack(
                MAGIC, Kind.QP_RTR, device.encode(), qpn, state, 1, gid_index, dest, label, dst, by_table,
                ACTUATORS.index(actuator), count_place, 0, 0, 0,
            )
        )  # fmt: skip

    def connect_lid_qp(self, qpn: int, lid: int, dlid: int) -> None:
        """Tell that a queue pair has a path over InfiniBand from the port of a LID, on a device `ib_0` that has APM."""
        self._say(
            QP.pack(
                MAGIC, Kind.QP_RTR, b"ib_0", qpn, RTS, 1, 0, qpn + 1_000_000, 0, bytes(16), 1,
                ACTUATORS.index("apm"), UNCOUNTED, lid, dlid, 0,
            )
        )  # fmt: skip

    def count(self, sent: dict[int, int]) -> None:
        """Tell what queue pairs were given to send, by the places of their counts; of COUNTS at most."""
        fill = (0,) * (COUNTS - len(sent))
        counts = len(sent), *sent, *fill, *sent.values(), *fill
        self._say(SENT.pack(MAGIC, Kind.SENT, b"", 0, 0, *counts))

    def state_qp(self, qpn: int, state: int, device: str = "mlx5_0") -> None:
        """Tell that a queue pair is in another state."""
        self._say(shimwire.head(Kind.QP_STATE, device, qpn, state))

    def answer(self, order: Order, error: int = 0, actuator: Actuator = "mlx5dv") -> None:
        """Tell what came of an order."""
        self._say(
            MOVED.pack(
                MAGIC, Kind.MOVED, order.device.encode(), order.qpn, RTS, order.number, 1_000, error,
                ACTUATORS.index(actuator),
            )
        )  # fmt: skip

    def _say(self, data: bytes) -> None:
        """Send a message, when there is room."""
        while True:
            try:
                self.sock.send(data)
            except BlockingIOError:
                if not select.select([], [self.sock], [], WAIT_S)[1]:
                    raise
            else:
                return

    def read(self) -> None:
        """Take in all that has come."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, 1024, 1)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionResetError
            for fd in fds:
                with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
                    self.tables.append(mapped[:])
                os.close(fd)
            if len(data) == MOVE.size:
                _, kind, device, qpn, _, number, deadline_ns, sport, lmc, how = MOVE.unpack(data)
                assert kind == Kind.MOVE
                name = device.rstrip(b"\0").decode()
                self.orders.append(Order(name, qpn, number, deadline_ns, sport, How(how), lmc))

    def take_orders(self) -> list[Order]:
        """Orders that have come since the last call."""
        self.read()
        taken, self.orders = self.orders, []
        return taken

    def await_orders(self, count: int, within_s: float = 5.0) -> list[Order]:
        """So many orders, once they have come."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            self.read()
            if len(self.orders) >= count:
                break
            time.sleep(0.001)
        return self.take_orders()

    def is_cut_off(self) -> bool:
        """Whether the agent has closed the connection."""
        try:
            self.read()
        except ConnectionResetError:
            return True
        return False

    def close(self) -> None:
        """The program ends."""
        self.sock.close()


def lids_of(table: bytes) -> dict[tuple[bytes, bytes], tuple[int, list[int], list[float]]]:
    """LMC, DLIDs and shares of each route of a table that is between LIDs."""
    return {
        (row["src"].tobytes(), row["dst"].tobytes()): (
            int(row["lmc"]),
            row["path"][: row["choices"]].tolist(),
            np.round(np.diff(row["up_to"][: row["choices"]] + 1.0, prepend=0) / 2**32, 6).tolist(),
        )
        for row in _routes(table)
        if gid_lid(row["dst"].tobytes()) is not None
    }


def _routes(table: bytes) -> NDArray[np.void]:
    header = np.frombuffer(table, TABLE, 1)[0]
    rows = np.frombuffer(table[TABLE.itemsize + SOURCE.itemsize * int(header["sources"]) :], ROUTE)
    used: NDArray[np.void] = rows[rows["used"] == 1]
    return used


def ports(table: bytes) -> dict[tuple[bytes, bytes], list[int]]:
    """Source ports of each route of a table, in order."""
    return {
        (row["src"].tobytes(), row["dst"].tobytes()): [
            flow_label_to_sport(int(label)) for label in row["path"][: row["choices"]]
        ]
        for row in _routes(table)
    }

"""What a host's agent is to the shims of its programs: a socket that gives a table, hears of queue pairs and orders moves."""

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import Hello, How, Kind, Message, Moved

WAIT_S = 10.0
T = TypeVar("T", bound=Message)


class Peer:
    """One program."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.heard: list[Message] = []
        self._waiting: deque[Message] = deque()
        self._number = 0

    def give(self, table: bytes) -> None:
        """A table, sealed."""
        fd = shimwire.sealed(table)
        self.give_fd(fd)
        os.close(fd)

    def give_fd(self, fd: int) -> None:
        """A table, whatever it is."""
        socket.send_fds(self.connection, [shimwire.head(Kind.TABLE)], [fd])

    def settle(self) -> None:
        """Wait until it has taken in what it was given: it answers what follows that."""
        self.move("", 0, 0)

    def hear(self, wait_s: float = WAIT_S) -> Message | None:
        """The next message; None where there is none in time, or the program has ended."""
        message = self._waiting.popleft() if self._waiting else self._receive(wait_s)
        if message is not None:
            self.heard.append(message)
        return message

    def _receive(self, wait_s: float) -> Message | None:
        if not select.select([self.connection], [], [], wait_s)[0]:
            return None
        data = self.connection.recv(shimwire.MOST_BYTES + 1)
        if not data:
            return None
        message = shimwire.read(data)
        if message is None:
            raise ValueError(f"this is none of the shim's: {data.hex()}")
        return message

    def hear_all(self, wait_s: float = 0.3) -> list[Message]:
        """All that comes until there is nothing for some time."""
        found = []
        while (message := self.hear(wait_s)) is not None:
            found.append(message)
        return found

    def await_one(self, kind: type[T], fits: Callable[[T], bool] = lambda _: True) -> T:
        """The next message of a kind that fits; others pass by.

        Raises:
            TimeoutError: none came.
        """
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            message = self.hear(max(0, end - time.monotonic()))
            if isinstance(message, kind) and fits(message):
                return message
            if message is None:
                break
        raise TimeoutError(f"no {kind.__name__} came, but {self.heard[-5:]}")

    def send(self, data: bytes) -> None:
        """Send it a message, and take in what comes meanwhile: it takes none in while its own waits for room."""
        while not select.select([], [self.connection], [], 0.001)[1]:
            message = self._receive(0)
            if message is not None:
                self._waiting.append(message)
        self.connection.send(data)

    def order(
        self, device: str, qpn: int, sport: int, *, with_sqd: bool = False, deadline_s: float = 5.0
    ) -> int:
        """Tell it to move a queue pair, and return the number of the order."""
        self._number += 1
        deadline_ns = time.monotonic_ns() + int(deadline_s * 1e9)
        self.send(shimwire.move(device, qpn, self._number, deadline_ns, sport, with_sqd=with_sqd))
        return self._number

    def move(
        self, device: str, qpn: int, sport: int, *, with_sqd: bool = False, deadline_s: float = 5.0
    ) -> Moved:
        """Have it move a queue pair, and return what came of it."""
        number = self.order(device, qpn, sport, with_sqd=with_sqd, deadline_s=deadline_s)
        return self.await_one(Moved, lambda moved: moved.number == number)

    def migrate(
        self, device: str, qpn: int, to: tuple[int, int], how: How, *, deadline_s: float = 5.0
    ) -> Moved:
        """Have it take a step towards another path of InfiniBand, and return what came of it."""
        self._number += 1
        number, deadline_ns = self._number, time.monotonic_ns() + int(deadline_s * 1e9)
        self.send(shimwire.migrate((device, qpn), number, deadline_ns, to, how))
        return self.await_one(Moved, lambda moved: moved.number == number)

    def close(self) -> None:
        """Leave it alone."""
        self.connection.close()


class ProgramSocket:
    """A socket to which programs connect; to be used in `with`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        self._socket.listen(64)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connection(self, wait_s: float) -> socket.socket:
        """That of the next program.

        Raises:
            TimeoutError: none came.
        """
        if not select.select([self._socket], [], [], wait_s)[0]:
            raise TimeoutError("no program came")
        return self._socket.accept()[0]

    def close(self) -> None:
        """As if it had died: whoever connects afterwards is refused."""
        self._socket.close()


class FakeAgent(ProgramSocket):
    """Listens on a socket; to be used in `with`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.peers: list[Peer] = []

    def accept(self, wait_s: float = WAIT_S) -> Peer:
        """The next program, once it has said hello.

        Raises:
            TimeoutError: none came.
        """
        peer = Peer(self.connection(wait_s))
        self.peers.append(peer)
        peer.await_one(Hello)
        return peer

    def close(self) -> None:
        """As if it had died: whoever connects afterwards is refused."""
        for peer in self.peers:
            peer.close()
        super().close()

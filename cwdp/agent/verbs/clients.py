"""The connections of programs that have loaded the shim, and what each may take of this host's time and memory.

Any user of the host may connect. What a program sends is taken in turn with all others' and so much of it at once; who sends
more than its rate is not read for a while, which its socket tells it. Who sends what no shim sends is cut off.
"""

import array
import select
import socket
import struct
from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from typing import Protocol

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import VERSION, Hello, Kind, Message, Sent

MOST_CLIENTS, MOST_OF_A_USER = 1_024, 512
SEND_BYTES = 1 << 20
"""Of the kernel's memory for what a program has not read; orders for 1,000 queue pairs fit."""

MESSAGES_A_TURN, MESSAGES_OF_ONE, ACCEPTED_A_TURN = 256, 32, 16
BURST, PER_S = 32_768, 5_000
"""Messages of one program at once, and in a second from then on."""

COUNTS_COST = 8
"""One of counts costs as much time as so many others."""

MOST_UNTOLD = 1_000_000
GREETING_NS = 10_000_000_000
"""So long a program may be connected without a word."""

COUNTERS = (
    "clients", "clients_refused", "clients_garbage", "clients_other_version", "clients_mute", "clients_paused",
    "labels_refused", "untold",
)  # fmt: skip

_CREDENTIALS = struct.Struct("=iII")
_NS_PER_S = 1_000_000_000


class Client:
    """One program.

    Attributes:
        number: names it among all that this process has had.
        pid, uid: whose it was when it connected, as the kernel says.
    """

    def __init__(self, number: int, sock: socket.socket, now_ns: int) -> None:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.number, self.sock = number, sock
        self.pid, self.uid, _ = _CREDENTIALS.unpack(credentials)
        self.since_ns = now_ns
        self.hello = Hello(0, 0, 0)
        self.is_owed_table = False
        self.owed: dict[Hashable, bytes] = {}
        self.is_paused = self.is_full = False
        self._tokens, self._filled_ns = float(BURST), now_ns

    @property
    def is_known(self) -> bool:
        """Whether it has said what it is."""
        return self.hello.version == VERSION

    def tokens(self, now_ns: int) -> float:
        """How many messages it may send now."""
        self._tokens = min(BURST, self._tokens + (now_ns - self._filled_ns) * PER_S / _NS_PER_S)
        self._filled_ns = now_ns
        return self._tokens

    def spend(self, messages: int) -> None:
        """So many were taken in that it was not asked for."""
        self._tokens -= messages


class Listening(Protocol):
    """Whoever is told what programs say."""

    def hear(self, client: Client, message: Message) -> bool:
        """A program says something other than its hello; whether it was asked to."""

    def end(self, client: Client) -> None:
        """A program is gone."""


class Clients:
    """All of them.

    Args:
        listener: a socket that listens; it stays the caller's.
        ear: is told what they say.
        counters: of COUNTERS.
    """

    def __init__(self, listener: socket.socket, ear: Listening, counters: Counter[str]) -> None:
        self._listener, self._ear, self._counters = listener, ear, counters
        self._clients: dict[int, Client] = {}
        self._numbers = 0
        self._table = -1
        self._epoll = select.epoll()
        listener.setblocking(False)
        self._epoll.register(listener, select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._clients)

    def fileno(self) -> int:
        """Readable when there is something to do, but for the time that has come to read somebody again."""
        return self._epoll.fileno()

    def give_table(self, fd: int) -> None:
        """Have every program take this table, now or when it comes; the descriptor stays the caller's, open."""
        self._table = fd
        for client in list(self._clients.values()):
            if client.is_known:
                client.is_owed_table = True
                self._flush(client)

    def send(self, client: Client, what: Hashable, data: bytes) -> None:
        """Send a message, or when there is room again what was sent last of `what`."""
        client.owed.pop(what, None)
        if client.is_full or client.owed or not self._sent(client, data):
            client.owed[what] = data
            self._await_room(client)

    def forget(self, client: Client, what: Hashable) -> None:
        """What was to be sent when there is room need not be."""
        client.owed.pop(what, None)

    def turn(self, now_ns: int) -> bool:
        """Take in some of what there is; whether there may be more."""
        left = MESSAGES_A_TURN
        ready = self._epoll.poll(0, 64)
        for fd, events in ready:
            client = self._clients.get(fd)
            if fd == self._listener.fileno():
                self._accept(now_ns)
            elif client is not None and client.is_paused and events & ~(select.EPOLLIN | select.EPOLLOUT):
                self._drop(client)
            elif client is not None:
                if events & select.EPOLLOUT:
                    self._flush(client)
                if events & ~select.EPOLLOUT and left > 0:
                    left -= self._read(client, now_ns)
        return bool(ready)

    def tidy(self, now_ns: int) -> None:
        """Read those again whose time has come, and let go of those that never said a word."""
        for client in list(self._clients.values()):
            if client.is_paused and client.tokens(now_ns) >= MESSAGES_OF_ONE:
                client.is_paused = False
                self._rearm(client)
            if not client.is_known and now_ns - client.since_ns > GREETING_NS:
                self._drop(client, "clients_mute")

    def close(self) -> None:
        """Let go of all."""
        for client in list(self._clients.values()):
            self._drop(client)
        self._epoll.close()

    def _accept(self, now_ns: int) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._numbers += 1
            client = Client(self._numbers, sock, now_ns)
            same = sum(other.uid == client.uid for other in self._clients.values())
            if same >= MOST_OF_A_USER or len(self._clients) >= MOST_CLIENTS:
                self._counters["clients_refused"] += 1
                sock.close()
                continue
            sock.setblocking(False)
            _widen(sock)
            self._clients[sock.fileno()] = client
            self._epoll.register(sock, select.EPOLLIN)
            self._counters["clients"] = len(self._clients)

    def _read(self, client: Client, now_ns: int) -> int:
        """Take in some messages of one; how many."""
        most = min(MESSAGES_OF_ONE, int(client.tokens(now_ns)))
        if most < 1:
            self._counters["clients_paused"] += 1
            client.is_paused = True
            self._rearm(client)
            return 0
        taken = 0
        while taken < most and client.sock.fileno() >= 0:
            try:
                data = client.sock.recv(shimwire.MOST_BYTES + 1)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            taken += 1
            client.spend(self._take(client, data))
        return taken

    def _take(self, client: Client, data: bytes) -> int:
        """Take in a message; what it costs the client."""
        message = shimwire.read(data) if data else None
        if message is None:
            self._drop(client, "clients_garbage" if data else None)
        elif isinstance(message, Hello):
            self._greet(client, message)
        elif not client.is_known:
            self._drop(client, "clients_garbage")
        elif self._ear.hear(client, message):
            return 0
        return COUNTS_COST if isinstance(message, Sent) else 1

    def _greet(self, client: Client, hello: Hello) -> None:
        if hello.version != VERSION:
            self._drop(client, "clients_other_version")
            return
        if not client.is_known:
            self._counters["labels_refused"] += hello.refused
            self._counters["untold"] += min(hello.untold, MOST_UNTOLD)
        client.hello = hello
        client.is_owed_table = self._table >= 0
        self._flush(client)

    def _flush(self, client: Client) -> None:
        """Send what is owed, as far as there is room."""
        client.is_full = False
        if client.is_owed_table:
            client.is_owed_table = not self._sent(client, shimwire.head(Kind.TABLE), self._table)
        while client.owed and not client.is_owed_table:
            what = next(iter(client.owed))
            if not self._sent(client, client.owed[what]):
                break
            client.owed.pop(what, None)
        self._await_room(client)

    def _await_room(self, client: Client) -> None:
        client.is_full = bool(client.owed or client.is_owed_table)
        self._rearm(client)

    def _rearm(self, client: Client) -> None:
        """Watch it for what is to be done with it."""
        if client.sock.fileno() in self._clients:
            wanted = (0 if client.is_paused else select.EPOLLIN) | (select.EPOLLOUT if client.is_full else 0)
            self._epoll.modify(client.sock, wanted)

    def _sent(self, client: Client, data: bytes, fd: int = -1) -> bool:
        """Whether a message was sent, or nobody is there any more who could take it."""
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
        try:
            client.sock.sendmsg([data], passed, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _drop(self, client: Client, why: str | None = None) -> None:
        if why is not None:
            self._counters[why] += 1
        fd = client.sock.fileno()
        if self._clients.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            client.sock.close()
            self._counters["clients"] = len(self._clients)
            self._ear.end(client)


def _widen(sock: socket.socket) -> None:
    """Have the kernel hold more than its usual share for a program."""
    force = 32  # SO_SNDBUFFORCE
    with suppress(PermissionError):
        sock.setsockopt(socket.SOL_SOCKET, force, SEND_BYTES)
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)

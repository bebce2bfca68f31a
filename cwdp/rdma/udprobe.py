"""Probes by UD queue pair: the transport where the NIC takes UDP port 4791 before XDP could see it.

The same questions are answered as by the kernel's probes, per destination and source port: does the path live, how
long is the round trip, and how do the two clocks stand to each other. Stamps are read in user space at both ends. What
a message waits in the responder's program between arrival and answer is taken off, what it waits before the program
looks is not: whoever owns a prober watches `fileno()` and calls `poll()` when it becomes readable.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cwdp.errors import ConfigError
from cwdp.rdma import udwire
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.ib.lid import LID_MAX, LMC_MAX, gid_lid
from cwdp.rdma.sport import SPORT_MAX, SPORT_MIN, check_sport
from cwdp.rdma.udwire import UNSYNCED, Arrival, Head, Kind, Message, Reading, WireError
from cwdp.shared.bus.messages import UdAddress

REPLY_TIMEOUT_NS = 100_000_000
SEQ_MASK = 0xFFFFFFFF
COUNTERS = (
    "sent",
    "unsent",
    "answered",
    "lost",
    "reflected",
    "unreflected",
    "malformed",
    "unknown_key",
    "bad_mac",
    "time_reversed",
    "unexpected_reply",
)

Timeline = Callable[[int], Reading]
"""From a time of this host's clock, ns, to how that clock stood to the common timeline then."""


@dataclass(frozen=True)
class UdPath:
    """A path there and back: the peer, and the source port of each direction; on InfiniBand the LID that is sent to."""

    peer: UdAddress
    sport: int
    reply_sport: int


@dataclass(frozen=True)
class Exchange:
    """The stamps of an answered probe: t1 and t4 on this host's clock, t2 and t3 on the peer's, ns.

    `reading` is how the peer's clock stood to the timeline.
    """

    t1_ns: int
    t2_ns: int
    t3_ns: int
    t4_ns: int
    reading: Reading

    @property
    def rtt_ns(self) -> int:
        """The round trip without the time at the far end."""
        return (self.t4_ns - self.t1_ns) - (self.t3_ns - self.t2_ns)

    @property
    def is_possible(self) -> bool:
        """Whether nothing in it happened before its cause, or beyond the end of time (2**63 ns)."""
        return self.t2_ns <= self.t3_ns < 1 << 63 and self.rtt_ns >= 0


@dataclass(frozen=True)
class UdSample:
    """What became of a probe; `exchange` is None where REPLY_TIMEOUT_NS was over and no answer had come."""

    path: UdPath
    seq: int
    sent_ns: int
    exchange: Exchange | None

    @property
    def rtt_ns(self) -> int | None:
        """The round trip, where there was one."""
        return None if self.exchange is None else self.exchange.rtt_ns


@dataclass(frozen=True)
class Received:
    """A message as the link hands it over: when it was seen, who sent it (GID, 16 bytes), and what it says."""

    arrived_ns: int
    source: bytes
    data: bytes


class Link(Protocol):
    """What carries messages: a `UdLink`, or in tests a stand-in."""

    @property
    def address(self) -> UdAddress:
        """Where this end can be reached."""

    def send(self, gid: bytes, qpn: int, sport: int, data: bytes) -> bool:
        """Send a message from a source port; False where it could not be sent."""

    def poll(self) -> list[Received]:
        """What has arrived since the last call."""

    def suspect(self, gid: bytes) -> None:
        """Nothing came back from here: its next hop may have changed."""

    def fileno(self) -> int:
        """Readable when there is something to poll."""

    def check(self) -> None:
        """See whether what carries messages is still there; raises ConfigError or RdmaError where not."""

    def close(self) -> None:
        """Give back what the link holds."""


@dataclass(frozen=True)
class _Pending:
    path: UdPath
    key: bytes
    mac: int
    sent_ns: int


class UdProber:
    """Sends probes over a link, and answers those of others.

    Args:
        link: the queue pairs; closed with the prober.
        keys: the cluster's keys by number, 16 bytes each.
        send_key: the number of the one to sign with.
        clock: ns; the same for all stamps of this host, and for the link.
        timeline: told to whoever probes this host.
    """

    def __init__(
        self,
        link: Link,
        keys: Mapping[int, bytes],
        send_key: int,
        clock: Callable[[], int] = time.monotonic_ns,
        timeline: Timeline = lambda _local_ns: UNSYNCED,
    ) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.address = link.address
        self._link = link
        self._keys = dict(keys)
        self._send_key = send_key
        self._clock, self._timeline = clock, timeline
        self._gid = gid_bytes(self.address.gid)
        self._seq = 0
        self._pending: dict[int, _Pending] = {}

    def fileno(self) -> int:
        """Readable when there is something to poll."""
        return self._link.fileno()

    def check(self) -> None:
        """See whether the link is still there.

        Raises:
            ConfigError: its address has changed.
            RdmaError: its device has gone.
        """
        self._link.check()

    def close(self) -> None:
        """Give back the queue pairs; probes under way are forgotten."""
        self._link.close()

    def use_keys(self, keys: Mapping[int, bytes], send_key: int) -> None:
        """Accept exactly these keys from now on, and sign with the one named; probes under way keep theirs."""
        self._keys, self._send_key = dict(keys), send_key

    def send(self, paths: Sequence[UdPath]) -> list[int | None]:
        """Send one probe on each path.

        Returns:
            Their sequence numbers; None for one that could not be sent, of which there will be no sample.

        Raises:
            ConfigError: a path asks for a source port that its sender cannot use.
        """
        for path in paths:
            check_path(self.address, path)
        return [self._send_one(path) for path in paths]

    def poll(self) -> list[UdSample]:
        """Take in what has arrived, answer requests, and tell what became of probes.

        Returns:
            Answered probes, and those whose time to be answered is over.
        """
        samples = [sample for one in self._link.poll() if (sample := self._take(one)) is not None]
        return samples + self._expire()

    def _send_one(self, path: UdPath) -> int | None:
        self._seq = self._seq + 1 & SEQ_MASK
        peer = gid_bytes(path.peer.gid)
        key = self._keys[self._send_key]
        head = Head(Kind.REQUEST, self._send_key, self.address.qpn, self._seq, path.sport, path.reply_sport)
        request = udwire.sign_request(key, head, self._gid, peer, self._clock)
        if not self._link.send(peer, path.peer.qpn, path.sport, request.data):
            self.counters["unsent"] += 1
            return None
        self.counters["sent"] += 1
        self._pending[self._seq] = _Pending(path, key, request.mac, request.stamp_ns)
        return self._seq

    def _take(self, received: Received) -> UdSample | None:
        try:
            message = Message.unpack(received.data)
        except WireError:
            self.counters["malformed"] += 1
            return None
        if message.head.kind is Kind.REPLY:
            return self._take_reply(received, message)
        self._reflect(received, message)
        return None

    def _take_reply(self, received: Received, message: Message) -> UdSample | None:
        pending = self._pending.get(message.head.seq)
        if pending is None or received.source != gid_bytes(pending.path.peer.gid):
            self.counters["unexpected_reply"] += 1
            return None
        if not udwire.reply_is_valid(pending.key, message, pending.mac):
            self.counters["bad_mac"] += 1
            return None
        exchange = Exchange(pending.sent_ns, *message.stamps, received.arrived_ns, message.reading)
        if not exchange.is_possible:
            self.counters["time_reversed"] += 1
            return None
        del self._pending[message.head.seq]
        self.counters["answered"] += 1
        return UdSample(pending.path, message.head.seq, pending.sent_ns, exchange)

    def _reflect(self, received: Received, message: Message) -> None:
        asked = message.head
        key = self._keys.get(asked.key_id)
        if key is None:
            self.counters["unknown_key"] += 1
            return
        if not udwire.request_is_valid(key, message, received.source, self._gid):
            self.counters["bad_mac"] += 1
            return
        if not _can_reply(received.source, asked.reply_sport):
            self.counters["unreflected"] += 1
            return
        head = Head(Kind.REPLY, asked.key_id, self.address.qpn, asked.seq, asked.reply_sport, asked.sport)
        arrival = Arrival(received.arrived_ns, self._timeline(received.arrived_ns))
        reply = udwire.sign_reply(key, head, message.mac, arrival, self._clock)
        done = self._link.send(received.source, asked.qpn, asked.reply_sport, reply.data)
        self.counters["reflected" if done else "unreflected"] += 1

    def _expire(self) -> list[UdSample]:
        """Give up the oldest probes; they are in the order of sending."""
        before = self._clock() - REPLY_TIMEOUT_NS
        samples = []
        while self._pending:
            seq, pending = next(iter(self._pending.items()))
            if pending.sent_ns > before:
                break
            del self._pending[seq]
            self.counters["lost"] += 1
            self._link.suspect(gid_bytes(pending.path.peer.gid))
            samples.append(UdSample(pending.path, seq, pending.sent_ns, None))
        return samples


def _can_reply(source: bytes, path: int) -> bool:
    """Whether a reply can take a path: a source port of RoCE v2, or a LID that can be of the port that asked."""
    lid = gid_lid(source)
    if lid is None:
        return SPORT_MIN <= path <= SPORT_MAX
    return lid <= path < lid + (1 << LMC_MAX) and path <= LID_MAX


def check_path(own: UdAddress, path: UdPath) -> None:
    """Refuse a path that one of its ends cannot send on.

    Raises:
        ConfigError: a source port outside of the dynamic range, or not among those that an end has; on InfiniBand a LID that
            is not of the end that is sent to.
    """
    by_lid = [gid_lid(gid_bytes(end.gid)) is not None for end in (own, path.peer)]
    if all(by_lid):
        _check_lids(own, path)
        return
    if any(by_lid):
        raise ConfigError(
            f"{own.gid} cannot reach {path.peer.gid}",
            "one of them is a LID of InfiniBand, the other a GID of RoCE",
        )
    for end, sport in ((own, path.sport), (path.peer, path.reply_sport)):
        check_sport(sport)
        if end.sports and sport not in end.sports:
            raise ConfigError(
                f"{end.gid} cannot send from source port {sport}",
                f"its device has these only: {', '.join(map(str, end.sports))}",
            )


def _check_lids(own: UdAddress, path: UdPath) -> None:
    for end, lid in ((path.peer, path.sport), (own, path.reply_sport)):
        if lid not in end.sports:
            raise ConfigError(
                f"LID {lid} is not of the port whose first is {gid_lid(gid_bytes(end.gid))}",
                f"it has these: {', '.join(map(str, end.sports)) or 'none'}",
            )

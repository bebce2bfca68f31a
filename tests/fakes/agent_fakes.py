"""A dataplane in arithmetic: the slots of a NIC, and a sender that fills them as the programs would; netlink messages."""

import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from bus_fakes import POD
from numpy.typing import NDArray

from cwdp.agent.links import IFF_UP_LOWER_UP
from cwdp.agent.probing import prober
from cwdp.agent.probing.prober import Prober
from cwdp.agent.probing.schedule import Schedule, make_schedule
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Sender, SlotState
from cwdp.shared.bus.messages import ClockUpdate, Desired, ProbeEdge
from cwdp.shared.bus.subjects import down
from cwdp.shared.identity.credential import Credential
from cwdp.shared.tcp import SteerTcp
from cwdp.shared.verbs import MigrationOrder

CONNECTION = SteerTcp(
    nic="nic0",
    local_addr="10.0.0.1",
    remote_addr="10.0.0.2",
    local_port=40_000,
    remote_port=5_201,
    sport=50_000,
)

MS = 1_000_000
OFFSET_NS = 500_000
ONE_WAY_NS = 10_000


def edges(peers: int = 2, paths: int = 4, pairs_per_s: float = 1000.0) -> list[ProbeEdge]:
    """Edges from `a/nic0` to some peers over IPv4; `pairs_per_s` is for all of them together."""
    return [
        ProbeEdge(
            src="a/nic0",
            dst=f"p{peer}/nic0",
            src_addr="10.0.0.1",
            dst_addr=f"10.0.1.{peer + 1}",
            sports=[50_000 + path for path in range(paths)],
            reply_sports=[60_000 + path for path in range(paths)],
            pairs_per_s=pairs_per_s / peers,
        )
        for peer in range(peers)
    ]


def schedule(probe_edges: list[ProbeEdge]) -> Schedule:
    """What `make_schedule` makes of edges."""
    return make_schedule(probe_edges, key_id=1, port=4791, rng=np.random.default_rng(1))


@dataclass
class FakeDataplane:
    """Takes packets as sendmmsg does and answers them at once, unless told otherwise.

    Attributes:
        slots: the table that the prober reads.
        answers: which sequence numbers are answered.
        errors: error numbers to give in place of sending, one a call; 0 sends.
        at_most: how many packets one call takes.
        unstamped: sequence numbers that are taken but never reach the egress program.
        sent: every sequence number taken, in order.
    """

    slots: NDArray[np.void] = field(default_factory=lambda: np.zeros(abi.SLOTS, dtype=abi.SLOT))
    answers: Callable[[int], bool] = lambda _: True
    errors: list[int] = field(default_factory=list)
    at_most: int = 1 << 30
    unstamped: set[int] = field(default_factory=set)
    sent: list[int] = field(default_factory=list)
    now_ns: int = 1_000_000_000

    def sign_for(self, sender: Sender, cookie: int) -> None:
        """All are signed."""

    def take(self, seqs: list[int]) -> tuple[int, int]:
        """Send packets: how many were taken, and the error number."""
        code = self.errors.pop(0) if self.errors else 0
        if code:
            return 0, code
        taken = seqs[: self.at_most]
        self.sent += taken
        for seq in taken:
            if seq not in self.unstamped:
                self._stamp(seq)
                if self.answers(seq):
                    self.reply(seq)
        return len(taken), 0

    def _stamp(self, seq: int) -> None:
        self.now_ns += 1000
        slot = self.slots[seq % abi.SLOTS]
        slot["tag"] = seq << 32 | SlotState.SENT
        slot["t1"] = self.now_ns

    def reply(self, seq: int) -> bool:
        """An answer comes in; False where the program would refuse it."""
        slot = self.slots[seq % abi.SLOTS]
        if int(slot["tag"]) != seq << 32 | SlotState.SENT:
            return False
        t1 = int(slot["t1"])
        slot["t2"] = slot["t3"] = t1 + ONE_WAY_NS + OFFSET_NS
        slot["t4"] = t1 + 2 * ONE_WAY_NS
        slot["tag"] = seq << 32 | SlotState.DONE
        return True


class _FakeSender:
    cookie = raw = 1

    def __init__(self, dataplane: FakeDataplane, templates: NDArray[np.void]) -> None:
        self._dataplane = dataplane
        self._templates = templates

    def send(self, start: int, stop: int) -> tuple[int, int]:
        return self._dataplane.take(self._templates["packet"]["probe"]["seq"][start:stop].tolist())

    def close(self) -> None:
        pass


def make_prober(
    monkeypatch: pytest.MonkeyPatch, dataplane: FakeDataplane, what: Schedule, seq: int = 1000
) -> Prober:
    """A prober on a fake dataplane."""

    def sender(
        _ifname: str, _family: int, templates: NDArray[np.void], _opened: int | None = None
    ) -> _FakeSender:
        return _FakeSender(dataplane, templates)

    monkeypatch.setattr(prober, "BatchSender", sender)
    return Prober("nic0", dataplane, what, seq)


class Message(dict[str, Any]):
    """As pyroute2 hands it over: fixed fields by name, attributes by `get_attr`."""

    def get_attr(self, name: str) -> Any:
        return dict(self["attrs"]).get(name)


def link(
    name: str, index: int = 2, *, up: bool = True, mac: str = "02:00:00:00:00:01", **more: Any
) -> Message:
    fields = {"event": "RTM_NEWLINK", "family": socket.AF_UNSPEC} | more
    attributes = [("IFLA_IFNAME", name), ("IFLA_ADDRESS", mac)]
    return Message(index=index, flags=IFF_UP_LOWER_UP if up else 0x1, attrs=attributes, **fields)


def address(text: str, index: int = 2, *, new: bool = True, scope: int = 0, flags: int = 0x80) -> Message:
    attributes: list[tuple[str, Any]] = [("IFA_ADDRESS", text), ("IFA_FLAGS", flags)]
    if "." in text:
        attributes.insert(0, ("IFA_LOCAL", text))
    event = "RTM_NEWADDR" if new else "RTM_DELADDR"
    return Message(event=event, index=index, scope=scope, flags=flags & 0xFF, attrs=attributes)


class NoteOrders:
    """A bus by which a leader orders migrations; keeps what is said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def hear(self, kind: str, _of: type, handler: Callable[[MigrationOrder], None]) -> None:
        assert kind == "migrate"
        self.order = handler

    def say(self, kind: str, message: Any) -> bool:
        self.said.append((kind, message))
        return True


class NoteBus:
    """Keeps what is published, and the handlers."""

    def __init__(
        self, _url: str, credential: Credential, *_: object, on_change: Callable[[bool], None], **__: object
    ) -> None:
        assert credential.name == "a"
        self.change = on_change
        self.connected = True
        self.counters: Counter[str] = Counter(published=3)
        self.published: list[tuple[str, Any]] = []

    def watch(self, _host: str, handler: Callable[[Desired], None]) -> None:
        self.take_desired = handler

    def subscribe(self, subject: str, kind: type, handler: Callable[[ClockUpdate], None]) -> None:
        assert subject in [
            down(POD, "a", said) for said in ("clock", "bounce", "migrate", "audit", "audit-flows")
        ]
        if kind is ClockUpdate:
            self.take_clock = handler

    def use(self, credential: Credential) -> None:
        """No other is given here."""

    def publish(self, subject: str, message: Any) -> bool:
        if self.connected:
            self.published.append((subject, message))
        return self.connected

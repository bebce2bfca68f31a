"""Watched paths and the pulses over them: failover on a clock of its own.

Time does not pass by waiting: `pass_time` puts the host's local clock ahead, by seconds where the test itself takes
milliseconds, so that no result hangs on the speed of the machine.
"""

import time

import numpy as np
import roce
from machine import Machine, Run
from numpy.typing import NDArray
from probes import Probe, reflected, request
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from cwdp.dataplane.abi import PathState, Position
from cwdp.dataplane.steering.steering import Steer

PRIMARY, BACKUP = 51_000, 52_000
SECOND_NS = 10**9
DEAD_AFTER_NS, HOLD_DOWN_NS, HOLD_DOWN_MAX_NS = 10 * SECOND_NS, 100 * SECOND_NS, 1000 * SECOND_NS
UNANSWERED_MIN = 4
BEHIND_MIN = 2


class Paths:
    """A steered queue pair with its two paths, pulses over both."""

    def __init__(self, dataplane: Machine, packet: Packet | None = None) -> None:
        self.dataplane = dataplane
        self.packet = packet or roce.data()
        settings = dataplane.maps.control
        settings["dead_after_ns"] = DEAD_AFTER_NS
        settings["hold_down_ns"] = HOLD_DOWN_NS
        settings["hold_down_max_ns"] = HOLD_DOWN_MAX_NS
        dataplane.steer(self.packet, Steer(PRIMARY, BACKUP))
        self.numbers = {int(port): n for n, port in enumerate(dataplane.maps.paths["sport"]) if port}
        self.pulses = 0
        self._ahead_ns = 0

    def path(self, port: int) -> NDArray[np.void]:
        """The record of a path, dtype `abi.PATH`."""
        record: NDArray[np.void] = self.dataplane.maps.paths[self.numbers[port]]
        return record

    def state(self, port: int) -> PathState:
        return PathState(int(self.path(port)["state"]))

    def send(self, port: int) -> Packet:
        """A pulse leaves; as the dataplane has stamped it."""
        template = request(path=self.numbers[port], pair_position=Position.PULSE, seq=self.pulses)
        self.pulses += 1
        return Ether(self.dataplane.egress(template).packet)

    def answer(self, sent: Packet) -> Run:
        """A pulse comes home."""
        t1 = sent[Probe].t1
        return self.dataplane.ingress(reflected(sent, t1, t1))

    def ask(self, *answering: int, times: int = UNANSWERED_MIN) -> None:
        """Pulses over both paths, of which some answer."""
        for _ in range(times):
            for port in (PRIMARY, BACKUP):
                sent = self.send(port)
                if port in answering:
                    self.answer(sent)

    def pass_time(self, span_ns: int) -> None:
        """The local clock goes ahead by so much."""
        self._ahead_ns += span_ns
        self.dataplane.maps.write_base(ref_mono_ns=time.monotonic_ns(), ahead_ns=self._ahead_ns, rate=0.0)

    def local_ns(self) -> int:
        """The host's local time."""
        return time.monotonic_ns() + self._ahead_ns

    def port(self, packet: Packet | None = None) -> int:
        """The source port that a packet of the queue pair leaves with now."""
        out: int = self.dataplane.leave(packet or self.packet).dissected["UDP"].sport
        return out

    def silence_primary(self) -> None:
        """The primary falls silent, while the backup answers."""
        self.ask(PRIMARY, BACKUP)
        self.ask(BACKUP)
        self.pass_time(DEAD_AFTER_NS + SECOND_NS)
        self.ask(BACKUP, times=1)

    def fail_primary(self) -> None:
        """The same, and a packet notices."""
        self.silence_primary()
        assert self.port() == BACKUP
        assert self.state(PRIMARY) == PathState.DOWN


def events(dataplane: Machine) -> NDArray[np.void]:
    """All events so far, in order, dtype `abi.EVENT`."""
    records = dataplane.maps.events
    return np.sort(records[records["number"] > 0], order="number")

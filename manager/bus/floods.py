"""How much is taken in from each host: a stolen credential, or an agent gone wrong, must not keep others from being heard. No I/O.

Each host has four token buckets: of messages, of questions among them, of bytes as they come, and of bytes once they are
unpacked. What is over is dropped before it is unpacked, so that dropping is cheap, and the host is named: once when it begins,
and once when it is over.
Hosts are told apart by the subjects that the bus lets them publish on, so nobody can use up what another host may send.
Times are seconds of the manager's monotonic clock.
"""

from dataclasses import dataclass
from typing import NamedTuple

from cwdp.shared.bus.subjects import host_token_of, is_of_pod, kind_of
from cwdp.shared.identity.joining import RENEW
from cwdp.shared.identity.probe_keys import KEYS

MESSAGES_PER_S = 1_000.0
"""Agents report at most 8 times a second; of 16 NICs with 4,096 busy queue pairs each, and full rings of samples, that is 90 messages each time."""

BURST_MESSAGES = 131_072.0
"""One event for each of the 4,096 paths of 16 NICs that are given up at once, and one for each that is used again."""

QUESTIONS_PER_S = 4.0
"""An agent asks for keys once a second at most, and to join or for a new credential every 5 s; one that begins anew over and over, no more."""

BURST_QUESTIONS = 64.0
"""What has waited for 16 s. Hosts' questions are answered in turn, and a new credential takes some ms."""

BYTES_PER_S = float(1 << 25)
"""16 NICs with 4,096 busy queue pairs each, and one in 256 packets of 100 Gbit/s stamped, are some 16 MB/s; usual are 8 kB/s a NIC."""

BURST_BYTES = float(1 << 26)
"""As much as a bus server keeps for a manager that does not read (`max_pending`), were it all one host's."""

UNPACKED_PER_S = float(1 << 26)
"""The same 16 NICs tell 50 MB/s before they are packed. To unpack and decode so much takes half a processor."""

BURST_UNPACKED = float(1 << 28)
"""What a bus server keeps, unpacked: rows become about a quarter when they are packed."""

OVER_S = 60.0
"""A host floods no more once nothing of it was dropped for so long: one that stops and goes on is told of once."""


class News(NamedTuple):
    """A host begins to flood, or does no more; `host` is as subjects have it."""

    host: str
    kind: str
    detail: str


@dataclass(slots=True, kw_only=True)
class _Host:
    """What one host may still send, and what it has sent.

    Attributes:
        at_s: when its buckets were filled last.
        messages, questions, size_bytes, unpacked_bytes: left in them; the last may be less than none, as only what was unpacked tells its size.
        came, came_bytes: since the last step, with what was dropped.
        dropped: since it began to flood.
        dropped_s: when something was dropped last; None for never.
        floods_s: since when it floods; None where it does not.
    """

    at_s: float
    messages: float = BURST_MESSAGES
    questions: float = BURST_QUESTIONS
    size_bytes: float = BURST_BYTES
    unpacked_bytes: float = BURST_UNPACKED
    came: int = 0
    came_bytes: int = 0
    dropped: int = 0
    dropped_s: float | None = None
    floods_s: float | None = None

    def fill(self, now_s: float) -> None:
        """Add to the buckets what has come to them since."""
        passed_s, self.at_s = max(0.0, now_s - self.at_s), max(now_s, self.at_s)
        self.messages = min(BURST_MESSAGES, self.messages + passed_s * MESSAGES_PER_S)
        self.questions = min(BURST_QUESTIONS, self.questions + passed_s * QUESTIONS_PER_S)
        self.size_bytes = min(BURST_BYTES, self.size_bytes + passed_s * BYTES_PER_S)
        self.unpacked_bytes = min(BURST_UNPACKED, self.unpacked_bytes + passed_s * UNPACKED_PER_S)

    def take(self, size_bytes: int, questions: int) -> bool:
        """Take a message out of the buckets, if there is room for it."""
        if self.messages < 1 or self.size_bytes < size_bytes or self.unpacked_bytes <= 0:
            return False
        if self.questions < questions:
            return False
        self.messages -= 1
        self.questions -= questions
        self.size_bytes -= size_bytes
        return True

    @property
    def is_idle(self) -> bool:
        """Whether it is as good as unknown."""
        left = self.messages, self.questions, self.size_bytes, self.unpacked_bytes
        full = BURST_MESSAGES, BURST_QUESTIONS, BURST_BYTES, BURST_UNPACKED
        return left == full and self.dropped_s is None


class Floods:
    """Decides what is taken in; hosts that have been silent for a while take no memory."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._stepped_s: float | None = None

    @property
    def known(self) -> int:
        """Of how many hosts account is kept."""
        return len(self._hosts)

    def admits(self, subject: str, size_bytes: int, now_s: float) -> bool:
        """Whether to take in a message of so many bytes, packed; what leaders tell each other always is."""
        if is_of_pod(subject):
            return True
        name = host_token_of(subject)
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host(at_s=now_s)
        host.fill(now_s)
        host.came += 1
        host.came_bytes += size_bytes
        if host.take(size_bytes, _asks(subject)):
            return True
        host.dropped += 1
        host.dropped_s = now_s
        return False

    def unpacked(self, subject: str, size_bytes: int) -> None:
        """A message that was taken in had so many bytes once it was unpacked."""
        host = None if is_of_pod(subject) else self._hosts.get(host_token_of(subject))
        if host is not None:
            host.unpacked_bytes -= size_bytes

    def step(self, now_s: float) -> list[News]:
        """Who begins to flood, and who does no more; to be called about once a second."""
        passed_s = 1.0 if self._stepped_s is None else max(now_s - self._stepped_s, 0.001)
        self._stepped_s = now_s
        news = [told for name, host in self._hosts.items() if (told := _news(name, host, passed_s, now_s))]
        for host in self._hosts.values():
            host.fill(now_s)
            host.came = host.came_bytes = 0
        self._hosts = {name: host for name, host in self._hosts.items() if not host.is_idle}
        return news


def _news(name: str, host: _Host, passed_s: float, now_s: float) -> News | None:
    if host.dropped_s is None:
        return None
    if host.floods_s is None:
        host.floods_s = host.dropped_s
        told = (
            f"{_rate(host, passed_s)}, more than is taken in; unless its agent does that: cwdp fleet revoke"
        )
        return News(name, "host_floods", told)
    if now_s - host.dropped_s < OVER_S:
        return None
    lasted_s, dropped = host.dropped_s - host.floods_s, host.dropped
    host.floods_s, host.dropped_s, host.dropped = None, None, 0
    return News(name, "host_floods_over", f"after {lasted_s:.0f} s; {dropped} messages were dropped")


def _asks(subject: str) -> bool:
    """Whether a host awaits an answer: keys, another credential, or to be taken in."""
    return kind_of(subject) in (KEYS, RENEW) or subject.split(".")[3:4] == ["join"]


def _rate(host: _Host, passed_s: float) -> str:
    """What comes from a host, for people."""
    return f"{host.came / passed_s:,.0f} messages/s, {host.came_bytes / passed_s / 1e6:,.1f} MB/s"

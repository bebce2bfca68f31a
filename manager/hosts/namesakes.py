"""Two agents with one name: the first is heard, the second is not. No I/O; times are seconds of a monotonic clock.

An agent that begins anew has another boot ID, and so has a second one of the same name. They are told apart by what
comes next: of an agent that was replaced nothing is heard any more. Hellos decide which one it is; all else that an agent
says bears its boot ID too, and counts only if it is that one's.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from cwdp.shared.bus.messages import HELLO_INTERVAL_S, FromAgent, Hello
from manager.hosts.members import Host

GONE_S = 3.5 * HELLO_INTERVAL_S
"""An agent that has said nothing for so long may be replaced by one of which it was known that there are two."""

REMIND_S = 600.0
MOST_REFUSED = 16
KINDS = (
    "report", "qp", "steer", "sample", "burst", "window", "trace", "bounced", "event", "verbs", "migrated", "tcp", "collective", "audit",
    "audit-flows", "ib-subnet", "ib-tables", "ib-growth",
)  # fmt: skip
"""Of messages that bear a boot ID, as their subjects name them; hellos are counted by themselves."""


@dataclass(kw_only=True)
class _Name:
    """What is known of the agents with one name.

    Attributes:
        before: the boot ID that the present one took the place of; empty for none.
        refused: boot IDs that are not heard, with when they last spoke.
        told_s: when that was told last.
    """

    before: str = ""
    refused: dict[str, float] = field(default_factory=dict)
    told_s: float = float("-inf")


class Namesakes:
    """Decides which of several agents with one name is heard.

    Attributes:
        news: hosts, and what is to be told of them; for the caller to take.
        refused: messages by kind (`KINDS`) of agents that are not heard.
    """

    def __init__(self) -> None:
        self.news: list[tuple[str, str]] = []
        self.refused: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._names: dict[str, _Name] = {}

    def admits(self, hello: Hello, host: Host | None, now_s: float) -> bool:
        """Whether to hear an agent; `host` is what is known by its name."""
        if host is None or host.hello.boot_id == hello.boot_id:
            return True
        name = self._names.setdefault(hello.host, _Name())
        present = host.hello
        if host.state == "lost" or now_s - host.last_seen_s > GONE_S:
            name.refused.pop(hello.boot_id, None)
            name.before = present.boot_id
            return True
        if hello.boot_id == name.before:
            self._refuse(name, heard=hello, refused=present, now_s=now_s)
            name.before = ""
            return True
        two_speak = any(now_s - spoke_s <= GONE_S for spoke_s in name.refused.values())
        if two_speak or hello.boot_id in name.refused:
            self._refuse(name, heard=present, refused=hello, now_s=now_s)
            return False
        name.before = present.boot_id
        return True

    def hears(self, kind: str, message: FromAgent, host: Host | None) -> bool:
        """Whether to take in what an agent says; `host` is what is known by its name.

        An older agent does not tell its boot ID: what it says counts.
        """
        if host is None or message.boot_id in (host.hello.boot_id, ""):
            return True
        self.refused[kind] += 1
        return False

    def keep_only(self, hosts: Collection[str]) -> None:
        """Forget the names of hosts that are gone."""
        self._names = {host: name for host, name in self._names.items() if host in hosts}

    def _refuse(self, name: _Name, *, heard: Hello, refused: Hello, now_s: float) -> None:
        name.refused.pop(refused.boot_id, None)
        name.refused[refused.boot_id] = now_s
        if len(name.refused) > MOST_REFUSED:
            del name.refused[next(iter(name.refused))]
        if now_s - name.told_s >= REMIND_S:
            name.told_s = now_s
            told = (
                f"two agents have this name: {_shown(heard)} is heard, {_shown(refused)} is not; rename one"
            )
            self.news.append((heard.host, told))


def _shown(hello: Hello) -> str:
    """An agent for people, by what tells it from another one."""
    nic = next(iter(hello.nics), None)
    place = "" if nic is None else f" at {nic.mac} {nic.ipv4 or nic.ipv6 or ''}".rstrip()
    return f"{hello.boot_id[:8]}{place}"

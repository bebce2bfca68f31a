"""What the agent and its process for the verbs shim (`cwdp.agent.verbs.process`) tell each other."""

from typing import NamedTuple

from msgspec import Struct

from cwdp.shared.bus.messages import Actuator, Spread, SteerQp
from cwdp.shared.verbs import MigrationAnswer


class VerbsSource(Struct, frozen=True):
    """A GID of a NIC's RDMA device, written as an IPv6 address.

    A port of InfiniBand is its own NIC, `DEVICE:PORT`, by its first LID and its LMC; elsewhere these are 0.
    """

    nic: str
    device: str
    port: int
    gid_index: int
    gid: str
    lid: int = 0
    lmc: int = 0


class VerbsOrder(Struct, frozen=True, kw_only=True):
    """All that the agent orders.

    Attributes:
        sources: what queue pairs of this host are sent from.
        spreads: how new queue pairs are spread over ports.
        steer: where those go that are there.
        moved: the NICs whose queue pairs are moved by the shim; those of others have a dataplane.
        drains: whether a queue pair may be drained to be moved.
    """

    sources: list[VerbsSource] = []
    spreads: list[Spread] = []
    steer: list[SteerQp] = []
    moved: list[str] = []
    drains: bool = False


class VerbsQp(NamedTuple):
    """A queue pair with a path, as it is now.

    Attributes:
        number: names it for as long as the process lives.
        nic: that it leaves by; empty where its GID is of none.
        sport: None where the device has chosen it; over InfiniBand the DLID.
        actuator: as `cwdp.shared.bus.messages.Actuator`, but for `tc`.
        refused: why it was not moved the last time, an errno; 0 where nothing is amiss.
        told_job: a variable of its program's environment that names its job, NAME=VALUE, as the program says; "" for none.
        is_seen: by uprobes; its program has no shim that would move it.
        alternate: the DLID of the alternate path that it was ordered to load; 0 for none.
    """

    number: int
    pid: int
    device: str
    lqpn: int
    state: int
    nic: str
    dst_addr: str
    qpn: int
    sport: int | None
    by_table: bool
    actuator: Actuator
    refused: int
    told_job: str = ""
    is_seen: bool = False
    alternate: int = 0


class VerbsPathChange(NamedTuple):
    """A path of queue pairs is down, or is not any more; so many were ordered off it."""

    nic: str
    dst_addr: str
    sport: int
    is_down: bool
    queue_pairs: int


class VerbsWord(Struct, frozen=True, kw_only=True):
    """What the process says.

    Attributes:
        anew: what was said before counts no more.
        changed, gone: queue pairs that have changed, and the numbers of those that are gone.
        paths: that are down since the last word, or not any more.
        sent: bytes that queue pairs have been given to send, by their numbers; those whose have grown.
        migrated: what came of steps of migrations.
        counters: totals by name.
    """

    anew: bool = False
    changed: list[VerbsQp] = []
    gone: list[int] = []
    paths: list[VerbsPathChange] = []
    sent: dict[int, int] = {}
    migrated: list[MigrationAnswer] = []
    counters: dict[str, int] = {}

"""A NIC that probes by UD queue pairs, where its hardware takes UDP port 4791 before XDP could see it.

It has no dataplane: probes are sent, answered and stamped by a process of its own (`cwdp.agent.ud.process`). What becomes of
them is handed on as that of a dataplane's probes is.
"""

import socket
from collections import Counter
from dataclasses import replace
from ipaddress import IPv6Address

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.clock.hostclock import LocalClock
from cwdp.agent.config import InterfaceConfig, TestClockConfig
from cwdp.agent.links import LinkTable
from cwdp.agent.probing.packets import round_robin
from cwdp.agent.probing.prober import ProbeResults
from cwdp.agent.probing.schedule import PathKey, Schedule
from cwdp.agent.probing.windows import PathWindows
from cwdp.agent.ud.keeper import UdKeeper
from cwdp.agent.ud.orders import ROW_FIELDS, Fate, Row, UdOrder, UdPathOrder, UdWatched, WatchPace
from cwdp.dataplane import abi
from cwdp.errors import RdmaError
from cwdp.rdma import netlink
from cwdp.rdma.port import PortChoice, RdmaPort, find_port, require_usable
from cwdp.rdma.udprobe import REPLY_TIMEOUT_NS
from cwdp.shared.bus.messages import ClockLine, Nic, ProbeEdge, UdAddress, nic_id
from cwdp.shared.bus.records import WINDOW_ROW
from cwdp.shared.identity.probe_keys import KeyFile

COUNTERS = ("unusable", "edges_refused", "windows_unsynced")
STAMP_NOISE_NS = 1_000.0
TELL_NS = 200_000_000


class UdNic:
    """A NIC that is to be probed from by UD queue pairs; its RDMA device may go and come back.

    Args:
        host: its name.
        ifname: the NIC.
        config: which device, port and GID; what it leaves open is looked for.
        test_clock: this host's, in a lab.
        clock: this host's local time.
        links: whose addresses and carrier are told.
    """

    def __init__(
        self,
        host: str,
        ifname: str,
        config: InterfaceConfig,
        test_clock: TestClockConfig | None,
        *,
        clock: LocalClock,
        links: LinkTable,
    ) -> None:
        self.name = nic_id(host, ifname)
        self.ifname = ifname
        self.edges: list[ProbeEdge] = []
        self.schedule: Schedule | None = None
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.keeper = UdKeeper()
        self._host, self._links = host, links
        self._choice = PortChoice(config.rdma_device, config.rdma_port, config.gid_index)
        self._test_clock = None if test_clock is None else test_clock.file
        self._clock = clock
        self.port: RdmaPort | None = None
        self._driver: str | None = None
        self._keys: KeyFile | None = None
        self._told: UdAddress | None = None
        self._line: ClockLine | None = None
        self._version = 0
        self._paths: list[UdPathOrder] = []
        self._turns: list[int] = []
        self._pairs_per_s = 0.0
        self._windows: PathWindows | None = None
        self._watched: list[UdWatched] = []
        self._pace = WatchPace()

    def require(self) -> None:
        """See whether its device can be used now.

        Raises:
            ConfigError: there is no such port or GID.
            RdmaError: there is no such device, pyverbs is missing, or the caller may not use the device.
        """
        require_usable(find_port(self.ifname, self._choice))

    def ensure(self, keys: KeyFile) -> bool:
        """Have the queue pairs; True when there are new ones.

        Raises:
            ConfigError: there is no such port or GID any more.
            RdmaError: the device is not to be had, or failed.
        """
        self._keys = keys
        address, before = self.keeper.address, self._told
        self._told = address
        if self.port is None or (address is None and self.keeper.trouble) or self._may_have_better():
            self.port = find_port(self.ifname, self._choice)
            self._driver = netlink.drivers().get(self.port.device)
        self._order()
        if address is None and self.keeper.trouble:
            raise RdmaError(self.keeper.trouble)
        return address not in (None, before)

    def use_keys(self, keys: KeyFile) -> None:
        """Accept exactly these keys and sign with the one named."""
        self._keys = keys
        self._order()

    def follow(self, line: ClockLine | None) -> None:
        """Take in how this host's clock stands to the timeline."""
        self._line = line
        self._order()

    def probe(self, edges: list[ProbeEdge], _key_id: int) -> None:
        """Send these edges' probes from now on."""
        self.edges = edges
        self._version += 1
        self.schedule, self._paths, rates = _schedule(edges)
        self.counters["edges_refused"] += sum(edge.dst_ud is None for edge in edges)
        self._turns = round_robin(rates, np.random.default_rng()).tolist() if len(rates) else []
        self._pairs_per_s = float(rates.sum())
        self._windows = PathWindows(self.schedule, edges)
        self._order()

    def watch(self, watched: list[UdWatched], pace: WatchPace) -> None:
        """Watch these paths of queue pairs from now on."""
        if (watched, pace) != (self._watched, self._pace):
            self._watched, self._pace = watched, pace
            self._order()

    def drain(self, _now_ns: int) -> ProbeResults | None:
        """Results that have come in."""
        rows, self.keeper.rows = self.keeper.rows, []
        return read_rows(rows) if rows else None

    def add_windows(self, results: ProbeResults, offset_ns: int | None) -> None:
        """Take in what a drain has found, without delays: a queue of the fabric is less than their noise."""
        if self._windows is None:
            return
        if offset_ns is None:
            self.counters["windows_unsynced"] += len(results.path)
            return
        slots = results.slots.copy()
        slots["bound_ns"] = abi.BOUND_UNSYNCED
        self._windows.add(replace(results, slots=slots), offset_ns)

    def take_windows(self, now_local_ns: int, offset_ns: int | None, *, sums: bool) -> NDArray[np.void]:
        """WINDOW_ROWs of the windows that drains have completed; `sums` as for `PathWindows.take`."""
        if self._windows is None or offset_ns is None:
            return np.zeros(0, WINDOW_ROW)
        return self._windows.take(now_local_ns + offset_ns - REPLY_TIMEOUT_NS - TELL_NS, sums=sums)

    def describe(self) -> Nic:
        """The NIC as the manager is told of it."""
        link, address = self._links.get(self.ifname), self.keeper.address
        gid = None if address is None else IPv6Address(address.gid)
        if gid is not None:
            ipv4, ipv6 = (str(gid.ipv4_mapped), None) if gid.ipv4_mapped else (None, str(gid))
        else:
            ipv4 = link.address(socket.AF_INET) if link else None
            ipv6 = link.address(socket.AF_INET6) if link else None
        return Nic(
            ifname=self.ifname,
            mac=link.mac if link else "",
            ipv4=ipv4,
            ipv6=ipv6,
            carrier=link.carrier if link else False,
            mode="absent",
            transport="ud",
            ud=address,
        )

    def totals(self) -> dict[str, int]:
        """Counters of the sending and answering, by name."""
        total = self.counters + self.keeper.counters
        names = self.counters.keys() | self.keeper.counters.keys()
        return {f"agent.{self.ifname}.ud_{name.removeprefix('ud_')}": total[name] for name in sorted(names)}

    def _may_have_better(self) -> bool:
        """Whether an IPv4 address has come, which is preferred, while that of the queue pairs is another."""
        if self.port is None or self._choice.gid_index is not None or IPv6Address(self.port.gid).ipv4_mapped:
            return False
        link = self._links.get(self.ifname)
        return link is not None and link.address(socket.AF_INET) is not None

    def _order(self) -> None:
        if self.port is None or self._keys is None:
            return
        order = UdOrder(
            device=self.port.device,
            port=self.port.port,
            gid_index=self.port.gid_index,
            driver=self._driver,
            keys={number: secret.hex() for number, secret in self._keys.secrets().items()},
            send_key=self._keys.send,
            version=self._version,
            paths=self._paths,
            turns=self._turns,
            pairs_per_s=self._pairs_per_s,
            line=self._line,
            ahead_of_raw_ns=self._clock.ahead_of_raw_ns,
            test_clock=self._test_clock,
            nic=self.ifname,
            watched=self._watched,
            pace=self._pace,
        )
        self.keeper.order(order)


def _schedule(edges: list[ProbeEdge]) -> tuple[Schedule, list[UdPathOrder], NDArray[np.float64]]:
    """Every path of the edges that are by UD, as it is known here and as it is ordered, and pairs per second of each."""
    keys: list[PathKey] = []
    paths: list[UdPathOrder] = []
    owner: list[int] = []
    rates: list[float] = []
    for index, edge in enumerate(edges):
        ports = list(zip(edge.sports, edge.reply_sports, strict=False))
        if edge.dst_ud is None or edge.pairs_per_s <= 0:
            continue
        for sport, reply_sport in ports:
            keys.append(PathKey(edge.src, edge.dst, sport, reply_sport))
            paths.append(UdPathOrder(edge.dst_ud, sport, reply_sport))
            owner.append(index)
            rates.append(edge.pairs_per_s / len(ports))
    return Schedule(keys, np.array(owner, dtype=np.intp), []), paths, np.array(rates)


def read_rows(rows: list[Row]) -> ProbeResults:
    """What the process tells of probes, in the form of a dataplane's."""
    table = np.array(rows, dtype=np.int64)
    columns = dict(zip(ROW_FIELDS, table.T, strict=True))
    slots = np.zeros(len(table), dtype=abi.SLOT)
    for name in ROW_FIELDS[2:]:
        slots[name] = columns[name]
    fate = columns["fate"]
    return ProbeResults(
        columns["path"].astype(np.intp), fate > Fate.UNSENT, fate == Fate.ANSWERED, slots, STAMP_NOISE_NS
    )

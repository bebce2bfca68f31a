"""One NIC of this host: its dataplane, its maps, its prober."""

import logging
import socket
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.config import AgentConfig, CongestionConfig
from cwdp.agent.goback.process import GoBackOrder
from cwdp.agent.inet import family_of
from cwdp.agent.links import LinkTable
from cwdp.agent.liveness.failover import PathEvents
from cwdp.agent.liveness.pulses import PulseOrder
from cwdp.agent.liveness.watchedpaths import WayKey
from cwdp.agent.probing import prober
from cwdp.agent.probing.packets import Path, requests
from cwdp.agent.probing.prober import Prober, ProbeResults, Told
from cwdp.agent.probing.schedule import Schedule, make_schedule
from cwdp.agent.probing.windows import PathWindows
from cwdp.agent.queuepairs import QueuePairs
from cwdp.congestion.order import Order
from cwdp.dataplane import abi
from cwdp.dataplane.abi import XdpMode
from cwdp.dataplane.loading import attached, loader
from cwdp.dataplane.loading.loader import Loaded, Settings
from cwdp.dataplane.pinned import meta, tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.dataplane.steering.steering import Steering
from cwdp.dataplane.steering.tcp import TcpSteering
from cwdp.errors import DataplaneError, InterfaceError
from cwdp.shared.bus.messages import DataplaneMode, Event, Nic, ProbeEdge, nic_id
from cwdp.shared.bus.records import WINDOW_ROW
from cwdp.shared.identity.probe_keys import KeyFile
from cwdp.slices.borrowing import Borrowing
from cwdp.slices.linkspeed import LinkSpeed, wire_bps

MODES: dict[XdpMode, DataplaneMode] = {XdpMode.NATIVE: "native", XdpMode.GENERIC: "generic"}
SINCE_DRAINED_NS = 10_000_000
"""At most so much later than results are drained it is asked which windows they complete."""

COUNTERS = ("probe_socket_failed", "events_lost", "samples_lost", "samples_unsynced", "windows_unsynced")
BURST_COUNTERS = ("bursts_lost", "bursts_unsynced", "bursts_unlisted")

_log = logging.getLogger("cwdp.agent")


class HostNic:
    """A NIC that is to be probed from; it may be absent now and come, or go and come back."""

    def __init__(self, config: AgentConfig, ifname: str, settings: Settings, links: LinkTable) -> None:
        self.name = nic_id(config.host, ifname)
        self.ifname = ifname
        self.counters: Counter[str] = Counter(
            dict.fromkeys((*prober.COUNTERS, *COUNTERS, *BURST_COUNTERS), 0)
        )
        self.maps: Maps | None = None
        self.edges: list[ProbeEdge] = []
        self._host, self._burst_gap_ms = config.host, config.burst_gap_ms
        self._settings = settings
        self._links = links
        self._loaded: Loaded | None = None
        self._prober: Prober | None = None
        self._windows: PathWindows | None = None
        self._path_events: PathEvents | None = None
        self.queue_pairs: QueuePairs | None = None
        self._borrowing: Borrowing | None = None
        self._speed = LinkSpeed(lambda: wire_bps(ifname))
        self._awaited = self._lacks_metadata = False
        self._loads = self._key_id = 0
        self._next_seq = int(np.random.default_rng().integers(0, 1 << 31)) * 2

    def ensure(self, keys: KeyFile) -> Loaded | None:
        """Have the dataplane on the NIC; what has just been found, loaded or put right, else None.

        Raises:
            DataplaneError: the NIC is there and its dataplane is not to be had.
        """
        if self._loaded and not self._is_same_tree():
            self._release()
        if self._loaded and _is_well(self._loaded.where):
            return None
        try:
            loaded = loader.load(self.ifname, self._settings)
        except InterfaceError as error:
            self._release()
            if not self._awaited:
                _log.warning("waiting for an interface: %s (%s)", error.message, error.hint)
            self._awaited = True
            return None
        if self._loaded and self._is_same_tree():
            return loaded if loaded.repaired else None
        self._release()
        self._take_up(loaded, keys)
        return loaded

    def _is_same_tree(self) -> bool:
        """Whether the dataplane is still the one whose maps are open."""
        return self.maps is not None and self.maps.still_pinned()

    def _take_up(self, loaded: Loaded, keys: KeyFile) -> None:
        try:
            maps = Maps(loaded.where)
        except OSError as error:
            raise DataplaneError(
                f"cannot open the maps of {self.ifname}: {error.strerror}", "the agent tries again by itself"
            ) from error
        self._loaded, self.maps, self._awaited = loaded, maps, False
        self._path_events = PathEvents(maps)
        self.queue_pairs = QueuePairs(self.ifname, maps, self._burst_gap_ms)
        self._borrowing = Borrowing(maps)
        self._loads += 1
        with tree.locked():
            tcp = TcpSteering(maps)
            tcp.repair()
            Steering(maps).recount(tcp.users())
        if loaded.mode is XdpMode.GENERIC:
            _log.warning(
                "no native XDP, timestamps will be later and noisier nic=%s why=%s",
                self.ifname,
                loaded.why_generic,
            )
        self.use_keys(keys)

    def use_keys(self, keys: KeyFile) -> None:
        """Accept exactly these keys and sign with the one named."""
        if self.maps is None:
            return
        secrets = keys.secrets()
        for key_id in set(self.maps.key_ids()) - set(secrets):
            self.maps.drop_key(key_id)
        for key_id, secret in secrets.items():
            self.maps.set_key(key_id, secret)
        self.probe(self.edges, keys.send)

    def probe(self, edges: list[ProbeEdge], key_id: int) -> None:
        """Send these edges' probes from now on."""
        self.edges, self._key_id = edges, key_id
        self._stop_probing()
        if self.maps is None:
            return
        schedule = make_schedule(
            edges, key_id=key_id, port=self._settings.probe_port, rng=np.random.default_rng()
        )
        try:
            self._prober = Prober(self.ifname, self.maps, schedule, self._next_seq)
            self._windows = PathWindows(schedule, edges)
        except OSError as error:
            self.counters["probe_socket_failed"] += 1
            _log.warning("cannot send probes nic=%s error=%s", self.ifname, error.strerror)

    @property
    def schedule(self) -> Schedule | None:
        """What is being sent."""
        return self._prober.schedule if self._prober else None

    def send(self, now_ns: int) -> None:
        """Send the probes that are due."""
        if self._prober:
            self._prober.send(now_ns, carrier=self._links.carrier(self.ifname))

    def ask(self, asked: Sequence[tuple[str, int]], now_ns: int, tell: Told) -> bool:
        """Send a request to each of some addresses over a port; False where the NIC cannot send them now.

        Args:
            asked: destination addresses of one family, that the NIC has one of, and source ports, which replies have too;
                at most MAX_BATCH.
            now_ns: the monotonic clock.
            tell: called by a later `drain`, or never where what is probed changes before.
        """
        source = self.address(family_of(asked[0][0]))
        if self._prober is None or source is None or not self._links.carrier(self.ifname):
            return False
        paths = [Path(0, source, address, sport, sport) for address, sport in asked]
        try:
            return self._prober.ask(requests(paths, self._key_id, self._settings.probe_port), now_ns, tell)
        except OSError:
            self.counters["probe_socket_failed"] += 1
            return False

    def share_unused(self, now_ns: int) -> bool:
        """Let slices borrow what others leave unused; False where the kernel does that, or there are none."""
        return self._borrowing is not None and self._borrowing.step(now_ns)

    def drain(self, now_ns: int) -> ProbeResults | None:
        """Results that have come in, or come no more."""
        return self._prober.drain(now_ns) if self._prober else None

    def add_windows(self, results: ProbeResults, offset_ns: int | None) -> None:
        """Take in what a drain has found; the timeline is `offset_ns` ahead of this host's clock."""
        if self._windows is None:
            return
        if offset_ns is None:
            self.counters["windows_unsynced"] += len(results.path)
            return
        self._windows.add(results, offset_ns)

    def take_windows(self, now_local_ns: int, offset_ns: int | None, *, sums: bool) -> NDArray[np.void]:
        """WINDOW_ROWs of the windows that drains have completed; `sums` as for `PathWindows.take`."""
        if self._windows is None or self._prober is None or offset_ns is None:
            return np.zeros(0, WINDOW_ROW)
        return self._windows.take(
            now_local_ns + offset_ns - self._prober.waited_ns - SINCE_DRAINED_NS, sums=sums
        )

    def describe(self) -> Nic:
        """The NIC as the manager is told of it."""
        link = self._links.get(self.ifname)
        return Nic(
            ifname=self.ifname,
            mac=link.mac if link else "",
            ipv4=self.address(socket.AF_INET),
            ipv6=self.address(socket.AF_INET6),
            carrier=link.carrier if link else False,
            speed_bps=self._speed.bps(carrier=link is not None and link.carrier),
            mode=MODES[self._loaded.mode] if self._loaded else "absent",
            takes_detours=self._takes_detours(),
        )

    def _takes_detours(self) -> bool:
        """Whether the driver has room for metadata; until a probe has shown that it has not."""
        if self._loaded is None:
            return True
        try:
            lacks = meta.read(self._loaded.where.path)["metadata"][0] == abi.METADATA_LACKS
        except OSError:
            return True
        if lacks and not self._lacks_metadata:
            _log.warning("no detours over this NIC: its driver has no XDP metadata nic=%s", self.ifname)
        self._lacks_metadata = bool(lacks)
        return not lacks

    def path_events(self) -> list[Event]:
        """What the dataplane has decided about paths since the last call."""
        return self._path_events.take(self._host, self.ifname) if self._path_events else []

    def pulse_order(self, key_id: int) -> PulseOrder | None:
        """What the NIC's pulses are sent from; None while it has no dataplane."""
        if self.maps is None:
            return None
        return PulseOrder(
            ifname=self.ifname,
            load=self._loads,
            key_id=key_id,
            port=self._settings.probe_port,
            ipv4=self.address(socket.AF_INET),
            ipv6=self.address(socket.AF_INET6),
        )

    def go_back_order(self) -> GoBackOrder | None:
        """Whose queue pairs are told to go back; None while it has no dataplane."""
        if self.maps is None:
            return None
        return GoBackOrder(
            ifname=self.ifname,
            load=self._loads,
            ipv4=self.address(socket.AF_INET),
            ipv6=self.address(socket.AF_INET6),
        )

    def address(self, family: socket.AddressFamily) -> str | None:
        """The NIC's own; None where it has none of the family."""
        link = self._links.get(self.ifname)
        return link.address(family) if link else None

    def watched(self) -> set[WayKey]:
        """The paths that have pulses."""
        if self.maps is None:
            return set()
        paths = self.maps.paths
        records = paths[(paths["users"] > 0) | (paths["detours"] > 0)]
        dsts = [dst.tobytes() for dst in records["dst"]]
        flows = zip(dsts, records["sport"].tolist(), records["protocol"].tolist(), strict=True)
        return {(self.ifname, *flow) for flow in flows}

    def congestion_order(self, config: CongestionConfig) -> Order | None:
        """How the congestion of what it sends is controlled; None while it has no dataplane."""
        if self.maps is None:
            return None
        return Order(self.ifname, self._loads, config.threshold_us, config.link_rate)

    def totals(self) -> dict[str, int]:
        """Counters of the dataplane and of the sending, by name."""
        totals = {f"agent.{self.ifname}.{name}": n for name, n in self._all_counters().items()}
        if self.maps:
            totals |= {f"dataplane.{self.ifname}.{name}": n for name, n in self.maps.counters().items()}
        return totals

    def close(self) -> None:
        """Let go of sockets and maps; the dataplane stays."""
        self._release()

    def _all_counters(self) -> Counter[str]:
        total = self.counters.copy()
        if self._prober:
            total.update(self._prober.counters)
        total.update(self._reader_counters())
        return total

    def _reader_counters(self) -> Counter[str]:
        """What those count that read the dataplane's rings."""
        if self._path_events is None or self.queue_pairs is None:
            return Counter()
        return Counter(events_lost=self._path_events.lost) + self.queue_pairs.counters

    def _stop_probing(self) -> None:
        if self._prober:
            self._next_seq = self._prober.seq
            self.counters.update(self._prober.counters)
            self._prober.close()
            self._prober = self._windows = None

    def _release(self) -> None:
        self._stop_probing()
        self.counters.update(self._reader_counters())
        self._path_events = self.queue_pairs = self._borrowing = None
        if self.maps:
            self.maps.close()
        self.maps, self._loaded = None, None


def _is_well(where: TreePath) -> bool:
    """Whether nobody has touched the interface's hooks, or given it another name."""
    try:
        return not attached.faults(where)
    except OSError:
        return False

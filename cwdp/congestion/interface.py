"""One interface under congestion control, as the process sees it: opened, kept in shape, stepped, closed."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from pyroute2 import IPRoute

from cwdp.congestion import control
from cwdp.congestion.control import NicControl
from cwdp.congestion.episodes import Episodes, Held
from cwdp.congestion.order import Happened, Order
from cwdp.congestion.pacing import Pacer
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.slices.slicing import ETHERNET_BYTES, Slicing

COUNTERS = (*control.COUNTERS, "congestion_episodes", "congestion_steps_late")
TELL_NS = 100_000_000
LATE_NS = 100_000_000
"""A step that comes so long after the one before has let a queue grow."""


class CongestionNic:
    """Congestion control on one interface.

    Args:
        order: which one, and how.

    Attributes:
        held: the queue pairs that were held back a moment ago.

    Raises:
        CwdpError: the interface is not there, or it is shaped by somebody else.
        OSError: its maps cannot be opened.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self.held: list[Held] = []
        self._episodes = Episodes(order.threshold_us * 1e3)
        self._late: Counter[str] = Counter(congestion_steps_late=0)
        self._stepped_ns = self._told_ns = 0
        self._is_apart, self._refused = False, 0
        index = ifindex_of(order.ifname)
        self._maps = Maps(tree.here(order.ifname))
        self._ip = IPRoute()
        frame_bytes = self._ip.get_links(index)[0].get_attr("IFLA_MTU") + ETHERNET_BYTES
        self._slicing = Slicing(self._maps, self._ip, order.ifname)
        self._pacer = Pacer(self._maps, index, frame_bytes)
        self._control = NicControl(self._maps, self._pacer, order.threshold_us * 1e3, frame_bytes)

    @property
    def following(self) -> bool:
        """Whether there are queue pairs that may have to be held back."""
        return self._control.following

    @property
    def counters(self) -> Counter[str]:
        """Totals by name."""
        return self._control.counters + self._late + Counter(congestion_episodes=self._episodes.count)

    def look_after(self) -> None:
        """Have the queue pairs be held apart: at first, and after somebody has deleted the slices or their qdisc.

        Raises:
            CwdpError: the kernel refused, or the interface is shaped by somebody else.
        """
        refused = self._pacer.failed
        if self._is_apart and self._pacer.enforcer and refused == self._refused:
            return
        with tree.locked():
            self._slicing.hold_apart(self._order.link_rate)
        self._is_apart, self._refused = True, refused

    def step(self, now_ns: int) -> list[Happened]:
        """One step of the control; what there is to tell.

        Args:
            now_ns: CLOCK_MONOTONIC.

        Raises:
            OSError: the maps or the netlink socket are gone.
        """
        self._late["congestion_steps_late"] += 0 < self._stepped_ns < now_ns - LATE_NS
        self._stepped_ns = now_ns
        self._control.step(now_ns)
        if now_ns - self._told_ns < TELL_NS:
            return []
        self._told_ns = now_ns
        self.held = self._control.held()
        told = self._episodes.follow(self.held, now_ns)
        return [Happened(one.kind, self._order.ifname, one.detail) for one in told]

    def close(self) -> None:
        """Hold nothing back any more; the slices stay."""
        self._control.close()
        self._pacer.close()
        self._ip.close()
        self._maps.close()


def clear(ifname: str) -> None:
    """Take away what earlier congestion control has left on an interface where there is to be none.

    In a thread, as a netlink socket cannot be made in one whose event loop runs.

    Raises:
        CwdpError: the kernel refused.
    """
    with ThreadPoolExecutor(max_workers=1) as executor:
        executor.submit(_clear, ifname).result()


def _clear(ifname: str) -> None:
    with tree.locked(), Maps(tree.here(ifname)) as maps, IPRoute() as ip:
        Slicing(maps, ip, ifname).hold_together()

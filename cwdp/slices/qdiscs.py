"""What shapes an interface now, and where a qdisc of ours may go.

The root is taken over where nobody chose what is there. Below a token bucket (TBF), which has room for one qdisc
inside, ours goes there: it decides the order, and the bucket's rate is the link's. Anything else is somebody's
choice and stays.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute, NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_pfifo

from cwdp.errors import DataplaneError, ForeignQdiscError
from cwdp.slices import fq_options
from cwdp.slices.linkspeed import link_bps

plugins.update(fq=fq_options, bfifo=sched_pfifo)

HANDLE = 0x4791_0000
"""Of our own qdisc, by which it is known again."""

NOBODYS = {"noqueue", "mq", "pfifo_fast", "fq", "fq_codel"}
FILTERS_ONLY = {"clsact", "ingress"}
PLAIN = "bfifo"
WAIT_S, POLL_S = 1.0, 0.002
UNKNOWN_KIND = errno.ENOENT


@dataclass(frozen=True)
class Place:
    """Where a qdisc of ours goes, or is.

    Attributes:
        parent: what it is below; TC_H_ROOT for nothing.
        ours: the kind of our qdisc there, None where there is none yet.
        link_bps: rate of the link, None where the kernel does not know it.
        limit_bytes: of the queue that a token bucket had inside before.
        queues: transmit queues of the interface.
    """

    parent: int
    ours: str | None
    link_bps: int | None
    limit_bytes: int
    queues: int


def find_place(ip: IPRoute, index: int, ifname: str) -> Place:
    """Look at an interface.

    Raises:
        ForeignQdiscError: somebody shapes it already, in a way that leaves no room.
    """
    qdiscs = [q for q in ip.get_qdiscs(index=index) if q.get_attr("TCA_KIND") not in FILTERS_ONLY]
    queues = ip.get_links(index)[0].get_attr("IFLA_NUM_TX_QUEUES")
    root = next((q for q in qdiscs if q["parent"] == TC_H_ROOT), None)
    if root is not None and root["handle"] == HANDLE:
        return Place(TC_H_ROOT, root.get_attr("TCA_KIND"), link_bps(ifname), 0, queues)
    if root is not None and root.get_attr("TCA_KIND") == "tbf":
        return _inside_bucket(root, [q for q in qdiscs if q is not root], queues, ifname)
    kinds = [q.get_attr("TCA_KIND") for q in qdiscs]
    if set(kinds) - NOBODYS:
        raise _foreign(ifname, next(kind for kind in kinds if kind not in NOBODYS))
    return Place(TC_H_ROOT, None, link_bps(ifname), 0, queues)


def _inside_bucket(root: Any, others: list[Any], queues: int, ifname: str) -> Place:
    parent = root["handle"] | 1
    inside = next((q for q in others if q["parent"] in (root["handle"], parent)), None)
    if inside is not None and inside["handle"] != HANDLE and inside.get_attr("TCA_KIND") != PLAIN:
        raise _foreign(ifname, f"{inside.get_attr('TCA_KIND')} inside tbf")
    ours = inside.get_attr("TCA_KIND") if inside is not None and inside["handle"] == HANDLE else None
    parms = root.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
    return Place(parent, ours, parms["rate"] * 8, parms["limit"], queues)


def put(ip: IPRoute, index: int, place: Place, kind: str, **settings: Any) -> None:
    """Make a qdisc of ours at a place.

    Raises:
        NetlinkError: with `UNKNOWN_KIND` where the kernel does not have that kind.
    """
    ip.tc("replace", kind, index=index, parent=place.parent, handle=HANDLE, **settings)


def take_away(ip: IPRoute, index: int, place: Place) -> None:
    """Remove our qdisc: the root becomes what the kernel makes of it, a token bucket gets a plain queue again."""
    if place.parent == TC_H_ROOT:
        ip.tc("del", index=index, parent=TC_H_ROOT)
    else:
        ip.tc("replace", PLAIN, index=index, parent=place.parent, handle=0, limit=place.limit_bytes)


def becomes(condition: Callable[[], bool]) -> bool:
    """Wait for a queue to come to something, a second at most; whether it did."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def is_idle(look: Callable[[], tuple[int, int]]) -> bool:
    """Whether nothing waits and nothing passes for a moment: a packet that comes while a qdisc is taken away is lost with it.

    Args:
        look: how many packets wait, and how many bytes have passed so far.
    """
    before = look()
    time.sleep(POLL_S)
    return before[0] == 0 and look() == before


@contextmanager
def kernel_errors(ifname: str) -> Iterator[None]:
    """Turn what netlink refuses inside the block into an error for people."""
    try:
        yield
    except NetlinkError as error:
        raise DataplaneError(
            f"the kernel refused to shape {ifname}: {error}", f"see what is there: tc qdisc show dev {ifname}"
        ) from error


def _foreign(ifname: str, kind: str) -> ForeignQdiscError:
    return ForeignQdiscError(
        f"{ifname} is shaped by somebody else already ({kind})",
        f"if nobody needs that any more: tc qdisc del dev {ifname} root",
    )

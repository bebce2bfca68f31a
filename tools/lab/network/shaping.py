"""The rate and the queue of a port (TBF), and the chance with which it drops (an eBPF classifier on clsact)."""

import errno
import math
import socket
from typing import Literal

from pyroute2 import IPRoute, NetlinkError

_ROOT_HANDLE = 0x10000
_TIMER_SLACK_S = 2e-6
_PARENTS = {"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}
_ETH_P_ALL = 3
_PRIORITY = 1
_FILTER_HANDLE = 1

Hook = Literal["ingress", "egress"]


def set_rate(ip: IPRoute, index: int, rate_bps: int, queue_bytes: int, frame_bytes: int) -> None:
    """Shape what leaves by an interface to `rate_bps` behind a queue of `queue_bytes`.

    The bucket holds little more than one frame, so that a queue forms as soon as frames come faster than the rate;
    with one frame alone, each late timer costs rate (8 % of 200 Mbit/s on two busy cores).
    """
    ip.tc(
        "replace",
        "tbf",
        index=index,
        handle=_ROOT_HANDLE,
        rate=f"{rate_bps}bit",
        burst=frame_bytes + math.ceil(rate_bps / 8 * _TIMER_SLACK_S),
        limit=queue_bytes,
    )


def attach_classifier(ip: IPRoute, index: int, hook: Hook, program_fd: int, name: str) -> None:
    """Attach an eBPF classifier to an interface, in place of the one at this hook and beside the other's.

    One in place of another is there at once. The first one is not: while it is being attached the kernel (6.1, 6.18)
    was seen to lose some packets, pass others and only then obey.
    """
    _attach(ip, index, program_fd, name, hook=hook, priority=_PRIORITY)


def attach_redirect(ip: IPRoute, index: int, program_fd: int, name: str) -> None:
    """Attach an eBPF classifier to what comes in by an interface, behind the one that `attach_classifier` puts there."""
    _attach(ip, index, program_fd, name, hook="ingress", priority=_PRIORITY + 1)


def detach_redirect(ip: IPRoute, index: int) -> None:
    """Remove what `attach_redirect` attached."""
    ip.tc("del-filter", index=index, parent=_PARENTS["ingress"], info=_info(_PRIORITY + 1))


def _attach(ip: IPRoute, index: int, program_fd: int, name: str, *, hook: Hook, priority: int) -> None:
    try:
        ip.tc("add", "clsact", index=index)
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise
    ip.tc(
        "replace-filter",
        "bpf",
        index=index,
        handle=_FILTER_HANDLE,
        parent=_PARENTS[hook],
        info=_info(priority),
        fd=program_fd,
        name=name,
        direct_action=True,
    )


def _info(priority: int) -> int:
    return socket.htons(_ETH_P_ALL) | priority << 16


def detach_classifiers(ip: IPRoute, index: int) -> None:
    """Remove every classifier of an interface; it need not have any."""
    try:
        ip.tc("del", "clsact", index=index)
    except NetlinkError as error:
        if error.code not in {errno.EINVAL, errno.ENOENT}:
            raise

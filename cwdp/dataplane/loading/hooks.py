"""Attaching to an interface: XDP by a link; tc by TCX links, or by clsact on kernels before 6.6."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from pyroute2 import IPRoute, NetlinkError

from cwdp.dataplane.abi import XdpMode
from cwdp.dataplane.kernel import interface, libbpf, rtnetlink
from cwdp.dataplane.pinned import tree
from cwdp.errors import DataplaneError, ForeignProgramError, KernelError

FILTER_PRIORITY = 4791
ETH_P_ALL = 0x0003
NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _apart(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have a function run in a thread of its own, in the same namespace.

    pyroute2 runs an event loop of its own, which it cannot where the caller's runs already, as the agent's does.
    """

    @wraps(work)
    def in_thread(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(work, *args, **kwargs).result()

    return in_thread


@dataclass(frozen=True)
class Hook:
    """A hook of an interface.

    Attributes:
        program: the program that belongs there.
        attach_type: of a link.
        link: the name under which a link is pinned.
        parent: of a filter of clsact, for a hook of tc.
    """

    program: str
    attach_type: int
    link: str
    parent: int = 0


XDP = Hook("xdp_ingress", libbpf.BPF_XDP, tree.XDP_LINK)
EGRESS = Hook("tc_egress", libbpf.BPF_TCX_EGRESS, tree.TCX_LINK, 0xFFFFFFF3)
INGRESS = Hook("tc_ingress", libbpf.BPF_TCX_INGRESS, tree.TCX_INGRESS_LINK, 0xFFFFFFF2)
TC_HOOKS = (EGRESS, INGRESS)
HOOKS = (XDP, *TC_HOOKS)


def attach_xdp(
    program_fd: int, ifindex: int, ifname: str, pin: Path, *, generic: bool
) -> tuple[XdpMode, str]:
    """Attach by a pinned link, in the driver; where that cannot, in the generic path, if that will do.

    Returns:
        Where it is, and why it is not in the driver.

    Raises:
        ForeignProgramError: another program is there already.
        KernelError: XDP cannot be used so.
    """
    try:
        link, mode, why = (
            _link_xdp(program_fd, ifindex, ifname, libbpf.XDP_FLAGS_DRV_MODE),
            XdpMode.NATIVE,
            "",
        )
    except OSError as error:
        why = rtnetlink.why_no_native_xdp(ifindex, program_fd) or error.strerror or ""
        if not generic:
            raise interface.no_native_xdp(ifindex, ifname, why) from error
        link, mode = _link_generic_xdp(program_fd, ifindex, ifname), XdpMode.GENERIC
    _keep(link, pin)
    return mode, why


def _link_generic_xdp(program_fd: int, ifindex: int, ifname: str) -> int:
    try:
        return _link_xdp(program_fd, ifindex, ifname, libbpf.XDP_FLAGS_SKB_MODE)
    except OSError as error:
        raise KernelError(
            f"{ifname} takes no XDP program: {error.strerror}",
            "a kernel of 5.18 or newer is needed, and an interface that carries Ethernet frames",
        ) from error


def _link_xdp(program_fd: int, ifindex: int, ifname: str, flags: int) -> int:
    try:
        return libbpf.link_create(program_fd, ifindex, libbpf.BPF_XDP, flags)
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EEXIST):
            raise _foreign(ifindex, ifname) from error
        raise


@_apart
def _foreign(ifindex: int, ifname: str) -> ForeignProgramError:
    program_id = None
    with IPRoute() as ip, suppress(NetlinkError, IndexError):
        xdp = ip.get_links(ifindex)[0].get_attr("IFLA_XDP")
        program_id = xdp and xdp.get_attr("IFLA_XDP_PROG_ID")
    named = f" (id {program_id})" if program_id else ""
    return ForeignProgramError(
        f"another XDP program{named} is attached to {ifname}",
        f"see what it is with `bpftool net show dev {ifname}` and have its owner remove it",
    )


def _keep(link_fd: int, pin: Path) -> None:
    try:
        libbpf.pin(link_fd, pin)
    finally:
        os.close(link_fd)


def attach_tc(program_fd: int, ifindex: int, directory: Path, hook: Hook) -> None:
    """Attach at a hook of tc: by a pinned TCX link where the kernel has them, else by clsact."""
    try:
        link = libbpf.link_create(program_fd, ifindex, hook.attach_type)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise DataplaneError(f"{hook.program} cannot be attached: {error.strerror}") from error
        attach_clsact(program_fd, ifindex, hook)
        return
    _keep(link, directory / hook.link)


@_apart
def attach_clsact(program_fd: int, ifindex: int, hook: Hook) -> None:
    """Attach, or swap atomically, our filter at clsact; others' filters stay."""
    with IPRoute() as ip:
        with suppress(NetlinkError):
            ip.tc("add", "clsact", ifindex)
        arguments = {
            "parent": hook.parent,
            "fd": program_fd,
            "name": f"cwdp:{hook.program}",
            "prio": FILTER_PRIORITY,
            "protocol": ETH_P_ALL,
            "direct_action": True,
            "classid": 1,
        }
        try:
            ip.tc("replace-filter", "bpf", ifindex, 1, **arguments)
        except NetlinkError as error:
            raise DataplaneError(
                f"clsact takes no program: {os.strerror(error.code)}", "is the kernel built with cls_bpf?"
            ) from error


def clsact_program(ifindex: int, hook: Hook) -> int | None:
    """The kernel's number of the program of our filter at a hook of clsact; None where we have none there."""
    return rtnetlink.filter_program(ifindex, hook.parent, FILTER_PRIORITY)


@_apart
def detach_clsact(ifindex: int) -> None:
    """Remove our filters, and clsact itself where nobody else uses it."""
    parents = [hook.parent for hook in TC_HOOKS]
    with IPRoute() as ip:
        for parent in parents:
            with suppress(NetlinkError):
                ip.tc(
                    "del-filter", "bpf", ifindex, 1, parent=parent, prio=FILTER_PRIORITY, protocol=ETH_P_ALL
                )
        with suppress(NetlinkError):
            if not any(ip.get_filters(ifindex, parent=parent) for parent in parents):
                ip.tc("del", "clsact", ifindex)

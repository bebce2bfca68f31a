"""What system calls tell of the host, and what cwdp's own dataplane does."""

import ctypes
import os
from contextlib import closing

from cwdp import __version__
from cwdp.audit.answers import KernelClock, Own, Uname
from cwdp.audit.unreadable import of_error
from cwdp.dataplane.abi import BOUND_UNSYNCED
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import CwdpError

STATUS_AT = 5 * ctypes.sizeof(ctypes.c_long)
"""Of `status` in `struct timex` (adjtimex(2)): behind modes and four longs."""
TIMEX_BYTES = 512


def name_and_release() -> Uname:
    """Release and machine, as uname(2) has them."""
    told = os.uname()
    return Uname(told.release, told.machine)


def kernel_clock() -> KernelClock:
    """What adjtimex(2) says; nothing is changed, as `modes` is 0."""
    timex = (ctypes.c_byte * TIMEX_BYTES)()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        raise of_error(OSError(ctypes.get_errno(), ""))
    return KernelClock(state, ctypes.c_int.from_buffer(timex, STATUS_AT).value)


def own() -> Own:
    """The version of cwdp, and how far off the clocks of the dataplanes in this network namespace may be."""
    try:
        tree.require_privileges()
        trees = tree.trees_here()
        bounds = {where.ifname: bound for where in trees if (bound := _bound_ns(where)) is not None}
    except (CwdpError, OSError) as error:
        return Own(__version__, problem=getattr(error, "message", None) or "its dataplane cannot be read")
    if not trees:
        return Own(__version__, problem="no dataplane is loaded here")
    return Own(__version__, bounds, "" if bounds else "its clock is not synchronised")


def _bound_ns(where: TreePath) -> int | None:
    from cwdp.dataplane.pinned.maps import Maps  # noqa: PLC0415 - numpy, which hosts without a dataplane need not load

    with closing(Maps(where)) as maps:
        clock = maps.read_clock()
    bound_ns = int(clock["bound_ns"])
    return bound_ns if clock["synced"] and bound_ns != BOUND_UNSYNCED else None

"""Order among stores to maps that the dataplane reads meanwhile.

Processors such as those of arm64 may show two stores to others in any order. What a reader is led to by a second
store has to be there before it.
"""

import ctypes
import os
import platform

from cwdp.errors import KernelError

SYS_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
GLOBAL_EXPEDITED = 1 << 1

_libc = ctypes.CDLL(None, use_errno=True)


def store_barrier() -> None:
    """Have all that this thread has stored be seen before what it stores from now on; some 2 us.

    By membarrier(2), a full barrier for whoever calls it: neither Python nor numpy has one.

    Raises:
        KernelError: the kernel does not have it, or does not permit it.
    """
    if _libc.syscall(SYS_MEMBARRIER[platform.machine()], GLOBAL_EXPEDITED, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise KernelError(
            f"membarrier(2) failed: {reason}", "permit it, or use a kernel with CONFIG_MEMBARRIER"
        )

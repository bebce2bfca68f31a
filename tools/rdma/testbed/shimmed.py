"""Programs that have loaded the verbs shim, each of a host and its agent."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.rdma.testbed.fabric import RdmaHost
from tools.vm.machine import CHECKOUT

SHIM = CHECKOUT / "build/shim/libcwdp_verbs.so"
PLUGIN = CHECKOUT / "build/nccl/libcwdp_nccl.so"
AS_NCCL = CHECKOUT / "build/rdma/as_nccl"

Environment = Callable[[RdmaHost], Mapping[str, str]]
"""More of the environment of a program on a host."""


def bare(_host: RdmaHost) -> Mapping[str, str]:
    """Nothing more."""
    return {}


def with_shim(program: str, socket: Callable[[RdmaHost], Path]) -> Environment:
    """What has a program load the shim, with the agent of its host at this socket."""
    how = "NCCL_IBVERBS_LIB" if program == "as_nccl" else "LD_PRELOAD"
    return lambda host: {how: str(SHIM), "CWDP_VERBS": str(socket(host))}

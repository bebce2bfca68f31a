"""UDP source ports of RoCEv2 queue pairs: what a flow label makes of them, and how to set one.

RoCEv2 leaves the source port to the sender (IBTA annex A17.9.2). Linux drivers and libibverbs derive it from
the flow label of the address vector, in the dynamic range 0xC000 to 0xFFFF (`rdma_flow_label_to_udp_sport`,
include/rdma/ib_verbs.h); a flow label of 0 leaves the choice to the driver.
"""

import errno
from typing import Any

from cwdp.errors import ConfigError, RdmaError
from cwdp.rdma import verbs

SPORT_MIN = 0xC000
SPORT_MAX = 0xFFFF
SPORT_MASK = 0x3FFF
GOLDEN_RATIO_32 = 0x61C88647  # hash_32(), include/linux/hash.h


def flow_label_to_sport(flow_label: int) -> int:
    """The source port that a flow label of 20 bits leads to."""
    return SPORT_MIN | (flow_label & SPORT_MASK) ^ (flow_label >> 14)


def sport_to_flow_label(sport: int) -> int:
    """The lowest flow label, never 0, that leads to a source port.

    Raises:
        ConfigError: the port is outside of the dynamic range.
    """
    check_sport(sport)
    low = sport & SPORT_MASK
    return low or 1 << 14 | 1


def rxe_ud_sport(qpn: int) -> int:
    """The source port of a Soft-RoCE UD queue pair: it heeds no flow label, but hashes its own number.

    `rxe_qp_init_req` in drivers/infiniband/sw/rxe/rxe_qp.c.
    """
    return SPORT_MIN + ((qpn * GOLDEN_RATIO_32 & 0xFFFFFFFF) >> 18)


def check_sport(sport: int) -> None:
    """Refuse a source port that RoCEv2 does not use.

    Raises:
        ConfigError: the port is outside of the dynamic range.
    """
    if not SPORT_MIN <= sport <= SPORT_MAX:
        raise ConfigError(
            f"{sport} is no source port of RoCEv2", f"choose one from {SPORT_MIN} to {SPORT_MAX}"
        )


def set_udp_sport(queue_pair: Any, sport: int) -> None:
    """Move a queue pair of the calling program to another path, in the NIC.

    Only the program that owns a queue pair can do this, and only on mlx5 devices
    (`mlx5dv_modify_qp_udp_sport`). The connection stays as it is.

    Args:
        queue_pair: a pyverbs QP, RC or UC, in the state RTS.
        sport: the UDP source port that its packets are to have from now on.

    Raises:
        ConfigError: the port is outside of the dynamic range.
        RdmaError: pyverbs is missing, or the device or the queue pair cannot do it.
    """
    check_sport(sport)
    mlx5 = verbs.load("providers.mlx5.mlx5dv")
    failed = verbs.failure()
    try:
        mlx5.Mlx5QP.modify_udp_sport(queue_pair, sport)
    except failed as error:
        if getattr(error, "error_code", None) == errno.EOPNOTSUPP:
            raise RdmaError(
                "this device cannot change the UDP source port of a queue pair",
                "only mlx5 devices can, for RC and UC; for Soft-RoCE and virtual NICs use `cwdp steer set`",
            ) from error
        raise RdmaError(
            f"the UDP source port of queue pair {queue_pair.qp_num} was not changed: {verbs.reason(error)}",
            "the queue pair must be in the state RTS",
        ) from error

"""The kernel's RDMA netlink: which devices there are, what drives them, and their queue pairs.

Commands and attributes: include/uapi/rdma/rdma_netlink.h of the Linux kernel.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, nla, nlmsg

from cwdp.errors import RdmaError
from cwdp.rdma.sysfs import NO_DEVICE_HINT

NETLINK_RDMA = 20
RDMA_NL_NLDEV = 5
CMD_GET = 1
CMD_RES_QP_GET = 10
CMD_GET_CHARDEV = 15
CMD_STAT_GET = 17
ATTR_RES_QP = 19
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence number, port
RECEIVE_BYTES = 1 << 18  # the kernel fills what it is given, up to 32 KiB a message

QP_TYPES = {
    0: "SMI", 1: "GSI", 2: "RC", 3: "UC", 4: "UD", 5: "RAW_IPV6", 6: "RAW_ETHERTYPE",
    8: "RAW_PACKET", 9: "XRC_INI", 10: "XRC_TGT", 0xFF: "DRIVER",
}  # fmt: skip
"""enum ib_qp_type."""

QP_STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
"""enum ib_qp_state; IBTA 10.3.1."""

PATH_MIGRATION_STATES = ("MIGRATED", "REARM", "ARMED")
"""enum ib_mig_state; IBTA 17.2.8."""

DRIVERS = {
    1: "mlx5", 2: "mlx4", 3: "cxgb3", 4: "cxgb4", 5: "mthca", 6: "bnxt_re", 7: "ocrdma", 8: "nes", 9: "irdma",
    10: "vmw_pvrdma", 11: "qedr", 12: "hns", 13: "usnic", 14: "rxe", 15: "hfi1", 16: "qib", 17: "efa",
    18: "siw", 19: "erdma", 20: "mana",
}  # fmt: skip
"""enum rdma_driver_id."""


@dataclass(frozen=True)
class QueuePair:
    """One queue pair.

    Attributes:
        device, port: where it is; `port` is None before the queue pair has one.
        lqpn, rqpn: its own number and the peer's; `rqpn` is None where it is not connected.
        type, state: as in QP_TYPES and QP_STATES.
        sq_psn, rq_psn: packet sequence numbers of the send and the receive queue, None where there is none.
        path_migration: as in PATH_MIGRATION_STATES, None where the type has no such state.
        pid: the owning process, None for the kernel's own and for those of other PID namespaces.
        kernel_owner: the kernel module that owns it, None for a process.
    """

    device: str
    port: int | None
    lqpn: int
    rqpn: int | None
    type: str
    state: str
    sq_psn: int | None
    rq_psn: int | None
    path_migration: str | None
    pid: int | None
    kernel_owner: str | None


@dataclass(frozen=True)
class BoundCounter:
    """A hardware counter that queue pairs are bound to (`rdma statistic qp`): their numbers, and its values by name."""

    device: str
    lqpns: tuple[int, ...]
    values: dict[str, int]


class NldevMessage(nlmsg):  # type: ignore[misc]
    """A message of the nldev client; of `enum rdma_nldev_attr` what is read or sent here."""

    nla_map = (
        (1, "DEV_INDEX", "uint32"),
        (2, "DEV_NAME", "asciiz"),
        (19, "RES_QP", "QueuePairTable"),
        (69, "CHARDEV_TYPE", "asciiz"),
        (73, "UVERBS_DRIVER_ID", "uint32"),
        (75, "STAT_RES", "uint32"),
        (77, "STAT_COUNTER", "CounterTable"),
    )

    class QueuePairTable(nla):  # type: ignore[misc]
        """The queue pairs of a device, one entry each."""

        nla_map = ((20, "RES_QP_ENTRY", "QueuePairEntry"),)

        class QueuePairEntry(nla):  # type: ignore[misc]
            """One queue pair."""

            nla_map = (
                (3, "PORT_INDEX", "uint32"),
                (21, "RES_LQPN", "uint32"),
                (22, "RES_RQPN", "uint32"),
                (23, "RES_RQ_PSN", "uint32"),
                (24, "RES_SQ_PSN", "uint32"),
                (25, "RES_PATH_MIG_STATE", "uint8"),
                (26, "RES_TYPE", "uint8"),
                (27, "RES_STATE", "uint8"),
                (28, "RES_PID", "uint32"),
                (29, "RES_KERN_NAME", "asciiz"),
            )

    class CounterTable(nla):  # type: ignore[misc]
        """The counters of a device that queue pairs are bound to, one entry each."""

        nla_map = ((78, "STAT_COUNTER_ENTRY", "CounterEntry"),)

        class CounterEntry(nla):  # type: ignore[misc]
            """One counter."""

            nla_map = ((19, "RES_QP", "BoundTable"), (80, "STAT_HWCOUNTERS", "ValueTable"))

            class BoundTable(nla):  # type: ignore[misc]
                """The queue pairs that are bound to it."""

                nla_map = ((20, "RES_QP_ENTRY", "BoundEntry"),)

                class BoundEntry(nla):  # type: ignore[misc]
                    """One of them."""

                    nla_map = ((21, "RES_LQPN", "uint32"),)

            class ValueTable(nla):  # type: ignore[misc]
                """What it counts."""

                nla_map = ((81, "STAT_HWCOUNTER_ENTRY", "ValueEntry"),)

                class ValueEntry(nla):  # type: ignore[misc]
                    """One number."""

                    nla_map = (
                        (82, "STAT_HWCOUNTER_ENTRY_NAME", "asciiz"),
                        (83, "STAT_HWCOUNTER_ENTRY_VALUE", "uint64"),
                    )


def drivers() -> dict[str, str]:
    """What drives each RDMA device; devices whose driver has no user-space verbs are left out.

    Raises:
        RdmaError: this kernel has no RDMA.
    """
    with _open() as sock:
        found = {}
        for device in _devices(sock):
            request = (("DEV_INDEX", device.get_attr("DEV_INDEX")), ("CHARDEV_TYPE", "uverbs"))
            for answer in _ask(sock, CMD_GET_CHARDEV, NLM_F_ACK, request):
                number = answer.get_attr("UVERBS_DRIVER_ID")
                if number is not None:
                    found[device.get_attr("DEV_NAME")] = DRIVERS.get(number, f"driver {number}")
        return found


def queue_pairs() -> list[QueuePair]:
    """Every queue pair of every device, those of the kernel too.

    Raises:
        RdmaError: this kernel has no RDMA, or it refused.
    """
    with _open() as sock:
        return [
            qp
            for device in _devices(sock)
            for answer in _ask(
                sock, CMD_RES_QP_GET, NLM_F_DUMP, (("DEV_INDEX", device.get_attr("DEV_INDEX")),)
            )
            for qp in read_queue_pairs(answer)
        ]


def read_queue_pairs(message: Any) -> Iterator[QueuePair]:
    """The queue pairs in one decoded NldevMessage."""
    table = message.get_attr("RES_QP")
    for entry in table.get_attrs("RES_QP_ENTRY") if table else ():
        kind, state = entry.get_attr("RES_TYPE"), entry.get_attr("RES_STATE")
        migration = entry.get_attr("RES_PATH_MIG_STATE")
        yield QueuePair(
            device=message.get_attr("DEV_NAME"),
            port=entry.get_attr("PORT_INDEX"),
            lqpn=entry.get_attr("RES_LQPN"),
            rqpn=entry.get_attr("RES_RQPN"),
            type=QP_TYPES.get(kind, f"type {kind}"),
            state=_named(QP_STATES, state),
            sq_psn=entry.get_attr("RES_SQ_PSN"),
            rq_psn=entry.get_attr("RES_RQ_PSN"),
            path_migration=None if migration is None else _named(PATH_MIGRATION_STATES, migration),
            pid=entry.get_attr("RES_PID") or None,
            kernel_owner=entry.get_attr("RES_KERN_NAME"),
        )


def bound_counters() -> list[BoundCounter]:
    """Every counter of every device that queue pairs are bound to.

    Raises:
        RdmaError: this kernel has no RDMA or no such counters, or it refused.
    """
    with _open() as sock:
        return [
            counter
            for device in _devices(sock)
            for answer in _ask(
                sock,
                CMD_STAT_GET,
                NLM_F_DUMP,
                (("DEV_INDEX", device.get_attr("DEV_INDEX")), ("STAT_RES", ATTR_RES_QP)),
            )
            for counter in read_bound_counters(answer)
        ]


def read_bound_counters(message: Any) -> Iterator[BoundCounter]:
    """The counters in one decoded NldevMessage."""
    table = message.get_attr("STAT_COUNTER")
    for entry in table.get_attrs("STAT_COUNTER_ENTRY") if table else ():
        bound, numbers = entry.get_attr("RES_QP"), entry.get_attr("STAT_HWCOUNTERS")
        values = numbers.get_attrs("STAT_HWCOUNTER_ENTRY") if numbers else ()
        yield BoundCounter(
            device=message.get_attr("DEV_NAME"),
            lqpns=tuple(qp.get_attr("RES_LQPN") for qp in bound.get_attrs("RES_QP_ENTRY")) if bound else (),
            values={
                one.get_attr("STAT_HWCOUNTER_ENTRY_NAME"): one.get_attr("STAT_HWCOUNTER_ENTRY_VALUE")
                for one in values
            },
        )


def split(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The messages in what was received at once, as (type, whole message), each aligned to 4 bytes."""
    while len(data) >= HEADER.size:
        length, kind, *_ = HEADER.unpack_from(data)
        yield kind, data[:length]
        data = data[(length + 3) & ~3 :]


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else str(number)


def _open() -> socket.socket:
    try:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_RDMA)
    except OSError as error:
        if error.errno == errno.EPROTONOSUPPORT:
            raise RdmaError("this kernel has no RDMA", NO_DEVICE_HINT) from error
        raise RdmaError(f"no RDMA netlink socket: {error.strerror}") from error


def _devices(sock: socket.socket) -> list[Any]:
    return list(_ask(sock, CMD_GET, NLM_F_DUMP))


def _ask(
    sock: socket.socket, command: int, flags: int, attributes: tuple[tuple[str, int | str], ...] = ()
) -> Iterator[Any]:
    """Send one request and decode what comes back, to its end.

    Raises:
        RdmaError: the kernel refused.
    """
    request = NldevMessage()
    request["attrs"] = list(attributes)
    request["header"]["type"] = RDMA_NL_NLDEV << 10 | command
    request["header"]["flags"] = NLM_F_REQUEST | flags
    request.encode()
    sock.send(request.data)
    while True:
        for kind, data in split(sock.recv(RECEIVE_BYTES)):
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                code = -struct.unpack_from("=i", data, HEADER.size)[0]
                if code:
                    raise RdmaError(f"the kernel refused to list RDMA resources: {os.strerror(code)}")
                return
            message = NldevMessage(bytearray(data))
            message.decode()
            yield message

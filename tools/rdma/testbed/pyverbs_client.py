"""`python -m tools.rdma.testbed.pyverbs_client`: a transfer of our own over a reliable queue pair, checked byte by byte.

The receiver (`receive`) posts a buffer for every message before the sender (`send`) may begin, so that no message ever
finds the receiver unready. The ends learn each other's address over TCP on loopback. Each prints one JSON object, with
`failed` alone where the transfer failed. A sender that gets SIGUSR1 sends no more, and the transfer ends with what it has sent.
"""

import json
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedRWPair
from typing import Any

import click
from pyverbs import enums
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, cqe_status_to_str
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

DEVICE_PORT = 1
LOOPBACK = "127.0.0.1"
SENDS_UNDER_WAY = 8
FIRST_PSN = 0xFFFF00
"""Near the end of the 24-bit space, so that every transfer wraps round it."""
RETRIES = 6
UNREADY_WITHOUT_END = 7
ACK_TIMEOUT = 20  # 4.096 us * 2**20 = 4.3 s (IBTA 9.7.6.1.3)
HOP_LIMIT = 64
POLL_S = 0.001


@dataclass(frozen=True)
class Plan:
    """What one end needs to know of a transfer.

    Attributes:
        device: name of the RDMA device.
        gid_index: the GID to send from.
        port: of TCP on loopback, where the ends meet.
        messages: how many.
        size: bytes of each, a multiple of 8.
        ack_timeout: exponent of the timer, 4.096 us * 2**exponent (IBTA 9.7.6.1.3).
        retries: until a message has failed; of 7, `rdma_rxe` makes retries without end.
    """

    device: str
    gid_index: int
    port: int
    messages: int
    size: int
    ack_timeout: int
    retries: int


class Endpoint:
    """A reliable queue pair with one registered buffer.

    Args:
        device: name of the RDMA device.
        gid_index: the GID to send from.
        buffer_bytes: size of the buffer.
        receives: how many messages may be awaited at once.
    """

    def __init__(self, device: str, gid_index: int, buffer_bytes: int, receives: int) -> None:
        self._gid_index = gid_index
        self._context = Context(name=device)
        domain = PD(self._context)
        self.buffer = MR(domain, buffer_bytes, enums.IBV_ACCESS_LOCAL_WRITE)
        self._completions = CQ(self._context, SENDS_UNDER_WAY + receives)
        capacity = QPCap(max_send_wr=SENDS_UNDER_WAY, max_recv_wr=receives)
        queues = {"scq": self._completions, "rcq": self._completions}
        self._qp = QP(domain, QPInitAttr(qp_type=enums.IBV_QPT_RC, cap=capacity, sq_sig_all=1, **queues))
        self._qp.to_init(QPAttr(port_num=DEVICE_PORT))

    @property
    def address(self) -> dict[str, Any]:
        """What the other end needs to know."""
        return {"qpn": self._qp.qp_num, "gid": str(self._context.query_gid(DEVICE_PORT, self._gid_index))}

    def connect(
        self,
        peer: dict[str, Any],
        ack_timeout: int = ACK_TIMEOUT,
        retries: int = RETRIES,
        flow_label: int = 0,
    ) -> None:
        """Take the queue pair to the state in which it sends and receives (IBTA 10.3.1)."""
        route = GlobalRoute(
            dgid=GID(peer["gid"]), sgid_index=self._gid_index, flow_label=flow_label, hop_limit=HOP_LIMIT
        )
        attributes = QPAttr(port_num=DEVICE_PORT)
        attributes.path_mtu = self._context.query_port(DEVICE_PORT).active_mtu
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=DEVICE_PORT)
        attributes.dest_qp_num = peer["qpn"]
        attributes.rq_psn = attributes.sq_psn = FIRST_PSN
        attributes.timeout = ack_timeout
        attributes.retry_cnt = retries
        attributes.rnr_retry = UNREADY_WITHOUT_END
        self._qp.to_rts(attributes)

    def post_receive(self, number: int, offset: int, size: int) -> None:
        """Offer a part of the buffer to the next message."""
        self._qp.post_recv(RecvWR(number, sg=[self._part(offset, size)], num_sge=1))

    def post_send(self, number: int, offset: int, size: int) -> None:
        """Send a part of the buffer."""
        self._qp.post_send(SendWR(number, sg=[self._part(offset, size)], num_sge=1))

    def completed(self) -> list[int]:
        """Return the numbers of what has completed since, after a short wait where there is nothing.

        Raises:
            TransferError: something failed.
        """
        count, completions = self._completions.poll(SENDS_UNDER_WAY)
        for completion in completions:
            if completion.status != enums.IBV_WC_SUCCESS:
                raise TransferError(f"message {completion.wr_id}: {cqe_status_to_str(completion.status)}")
        if count == 0:
            time.sleep(POLL_S)
        return [completion.wr_id for completion in completions]

    def _part(self, offset: int, size: int) -> SGE:
        return SGE(self.buffer.buf + offset, size, self.buffer.lkey)


class TransferError(Exception):
    """A message was not delivered."""


def pattern(number: int, size: int) -> bytes:
    """Return the content of a message, different for each."""
    return number.to_bytes(8, "big") * (size // 8)


def receive_all(plan: Plan) -> dict[str, Any]:
    """Take in every message of a transfer and compare its content with what was meant."""
    end = Endpoint(plan.device, plan.gid_index, plan.messages * plan.size, receives=plan.messages)
    for number in range(plan.messages):
        end.post_receive(number, number * plan.size, plan.size)
    with socket.create_server((LOOPBACK, plan.port)) as server:
        connection, _ = server.accept()
    with connection, connection.makefile("rwb") as channel, ThreadPoolExecutor(1) as reader:
        end.connect(exchange(channel, end.address), plan.ack_timeout, plan.retries)
        exchange(channel, "ready")
        arrived: list[int] = []
        arrived_ns: list[int] = []
        told = reader.submit(heard, channel)
        while not told.done() or len(arrived) < told.result():
            arrived += end.completed()
            arrived_ns += [time.monotonic_ns()] * (len(arrived) - len(arrived_ns))
        sent = told.result()
        numbers = range(sent)
        read = (end.buffer.read(plan.size, number * plan.size) for number in numbers)
        intact = sum(data == pattern(number, plan.size) for number, data in zip(numbers, read, strict=True))
        exchange(channel, "done")
    return {
        "messages": sent,
        "intact": intact,
        "in_order": arrived == list(numbers),
        "arrived_ns": arrived_ns,
    }


def send_all(plan: Plan) -> dict[str, Any]:
    """Send every message of a transfer, or those before SIGUSR1."""
    is_ended = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: is_ended.set())
    end = Endpoint(plan.device, plan.gid_index, SENDS_UNDER_WAY * plan.size, receives=1)
    with socket.create_connection((LOOPBACK, plan.port)) as connection, connection.makefile("rwb") as channel:
        end.connect(exchange(channel, end.address), plan.ack_timeout, plan.retries)
        exchange(channel, "ready")
        began_ns = time.monotonic_ns()
        sent = acknowledged = 0
        while acknowledged < (sent if is_ended.is_set() else plan.messages):
            while not is_ended.is_set() and sent < min(plan.messages, acknowledged + SENDS_UNDER_WAY):
                offset = sent % SENDS_UNDER_WAY * plan.size
                end.buffer.write(pattern(sent, plan.size), plan.size, offset)
                end.post_send(sent, offset, plan.size)
                sent += 1
            acknowledged += len(end.completed())
        duration_ns = time.monotonic_ns() - began_ns
        say(channel, sent)
        exchange(channel, "done")
    return {"messages": sent, "bytes": sent * plan.size, "duration_ns": duration_ns}


def exchange(channel: BufferedRWPair, said: Any) -> Any:
    """Say something and return what the other end says.

    The channel is binary: a text file drops what it has read ahead whenever it is written to.
    """
    say(channel, said)
    return heard(channel)


def heard(channel: BufferedRWPair) -> Any:
    """Return what the other end says.

    Raises:
        TransferError: it has ended.
    """
    line = channel.readline()
    if not line:
        raise TransferError("the other end has ended")
    return json.loads(line)


def say(channel: BufferedRWPair, said: Any) -> None:
    """Say something to the other end."""
    channel.write(json.dumps(said).encode() + b"\n")
    channel.flush()


@click.command()
@click.argument("role", type=click.Choice(["receive", "send"]))
@click.option("--device", required=True, help="RDMA device.")
@click.option("--gid-index", required=True, type=int, help="The GID to send from.")
@click.option("--port", required=True, type=int, help="TCP port on loopback where both ends meet.")
@click.option("--messages", required=True, type=click.IntRange(1), help="How many messages.")
@click.option("--size", required=True, type=click.IntRange(8), help="Bytes of a message, a multiple of 8.")
@click.option("--ack-timeout", required=True, type=click.IntRange(1, 31), help="Exponent of the timer.")
@click.option("--retries", default=RETRIES, type=click.IntRange(0, 7), help="Until a message has failed.")
def main(role: str, **plan: Any) -> None:
    """Be one end of a transfer."""
    transfer = receive_all if role == "receive" else send_all
    try:
        click.echo(json.dumps(transfer(Plan(**plan))))
    except TransferError as error:
        click.echo(json.dumps({"failed": str(error)}))
        sys.exit(1)


if __name__ == "__main__":
    main()

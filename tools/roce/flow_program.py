"""What a lab's agents send flows by (`[flows]` of their configuration): the traffic generator, for the flows of one host.

The two ends of a flow are started by two agents that know nothing of each other: all that both must know follows from the
numbers of flow and round. All hosts of a lab start it at once on the processors of one machine, so it imports little.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path
from socket import AF_INET, SOCK_DGRAM, socket
from typing import Any

import msgspec

from cwdp.agent.flows.protocol import ProgramAnswer, ProgramFlow, ProgramOrder, ProgramTold
from cwdp.agent.walking.mtu import mtu_bytes
from cwdp.errors import CwdpError
from cwdp.shared.bus.audits import LATE
from tools.roce.flows import Endpoint, Flow, largest_mtu
from tools.roce.process import HostProcess

FIRST_QPN = 1 << 22
ACK_SPORTS = range(49_152, 65_536)
WINDOW = 28
"""Two such windows of 4,096-byte packets fit a queue of 256 KiB: flows that meet on a link lose nothing."""

MESSAGE_BYTES = 64 * 1024
RETRIES = 10_000
"""More than fit into the longest flow: one whose packets all vanish goes on to its end."""

LINGER_S = 0.5
"""Who receives stays so long for what is on its way."""

READY_S, RESULT_S = 10.0, 5.0
_PSNS, _PAIRS, _SPREAD = 1 << 24, 1 << 21, 2_654_435_761
_NS_PER_S = 1_000_000_000


def generator_flow(flow: ProgramFlow, order: ProgramOrder, mtu: int) -> Flow:
    """A flow as the generator has it: the same at both ends, but for the path MTU, which the sender alone needs.

    Its queue pairs have other numbers in each round, so that nothing that is known of those of before is taken for theirs.

    Args:
        flow: as one end has it.
        order: whose it is.
        mtu: payload of a full packet in bytes.
    """
    local, peer = Endpoint("here", ip_address(flow.local_addr)), Endpoint("there", ip_address(flow.peer_addr))
    source, target = (local, peer) if flow.sends else (peer, local)
    drawn = order.number * _SPREAD + flow.id
    first_qpn = FIRST_QPN + 2 * (drawn % _PAIRS)
    return Flow(
        id=flow.id,
        source=source,
        target=target,
        qpn=first_qpn,
        remote_qpn=first_qpn + 1,
        sport=flow.sport,
        ack_sport=ACK_SPORTS[drawn * _SPREAD % len(ACK_SPORTS)],
        first_psn=drawn * _SPREAD % _PSNS,
        mtu=mtu,
        window=WINDOW,
        retries=RETRIES,
        message_bytes=MESSAGE_BYTES,
        rate_bps=order.cap_bps or None,
    )


def told(flows: Sequence[ProgramFlow], result: Mapping[str, Any], until_ns: int) -> list[ProgramTold]:
    """What came of the flows that are sent.

    Args:
        flows: of this host.
        result: the generator's message of that name.
        until_ns: when sending was over, as CLOCK_MONOTONIC.
    """
    ends = {end["id"]: end for end in result["send"]}
    return [_told_of(ends[flow.id], until_ns) for flow in flows if flow.sends]


def _told_of(end: Mapping[str, Any], until_ns: int) -> ProgramTold:
    took_ns = max(until_ns, end["last_ns"]) - end["first_ns"]
    return ProgramTold(id=end["id"], carried_bytes=end["acked_bytes"], took_s=took_ns / _NS_PER_S)


def run(order: ProgramOrder) -> ProgramAnswer:
    """Have the flows made.

    Raises:
        LabError: the generator is not built, or does not run.
    """
    until_ns = order.begin_at_ns + round(order.lasts_s * _NS_PER_S)
    with tempfile.TemporaryDirectory(prefix="cwdp-flows-") as folder:
        process = HostProcess("here", _lines(order), _spawn, Path(folder), threading.Condition())
        with closing(process):
            process.wait_for("ready", READY_S)
            if time.monotonic_ns() > order.begin_at_ns:
                return ProgramAnswer(flows=[ProgramTold(id=flow.id, trouble=LATE) for flow in order.flows])
            process.tell(f"start {order.begin_at_ns} {until_ns}")
            time.sleep(max(0, until_ns - time.monotonic_ns()) / _NS_PER_S + LINGER_S)
            process.tell("stop")
            result = process.wait_for("result", RESULT_S)
    return ProgramAnswer(flows=told(order.flows, result, until_ns))


def _lines(order: ProgramOrder) -> list[str]:
    """The generator's plan."""
    with socket(AF_INET, SOCK_DGRAM) as of:
        mtus = {flow.nic: largest_mtu(int(mtu_bytes(of, flow.nic))) for flow in order.flows}
    lines = []
    for flow in order.flows:
        made = generator_flow(flow, order, mtus[flow.nic])
        lines.append(made.send_line() if flow.sends else made.receive_line())
    return lines


def _spawn(_host: str, argv: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    return subprocess.Popen(argv, **options)


if __name__ == "__main__":
    try:
        answer = run(msgspec.json.decode(sys.stdin.buffer.read(), type=ProgramOrder))
    except CwdpError as error:
        sys.exit(" ".join(str(error).split()))
    sys.stdout.buffer.write(msgspec.json.encode(answer))

"""Transfers that nobody touches, and those that are moved from path to path while they run."""

import random
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from cwdp.dataplane.loading import loader
from tools.rdma.scenarios.moves import mover
from tools.rdma.scenarios.scenario import Bench, Scenario, recorded
from tools.rdma.testbed.counters import Counters
from tools.rdma.testbed.programs import Transfer, started
from tools.waiting import wait_for

PLAIN = {
    "ibv_rc_pingpong": Transfer("ibv_rc_pingpong", 6, messages=100, size=16384),
    "ib_write_bw": Transfer("ib_write_bw", 6, messages=64),
    "ib_send_bw": Transfer("ib_send_bw", 6, messages=64),
    "ib_read_bw": Transfer("ib_read_bw", 6, messages=64),
    "pyverbs": Transfer("pyverbs", 6, messages=64),
}
"""Transfers that nobody touches."""

STEERED = {
    "ibv_rc_pingpong": Transfer("ibv_rc_pingpong", 4, messages=800, size=16384),
    "ib_write_bw": Transfer("ib_write_bw", 4, messages=384),
    "ib_send_bw": Transfer("ib_send_bw", 4, messages=384),
    "ib_read_bw": Transfer("ib_read_bw", 4, messages=384),
    "pyverbs": Transfer("pyverbs", 4, messages=384),
    "ib_write_bw over IPv6": Transfer("ib_write_bw", 6, messages=384),
    "pyverbs over IPv6": Transfer("pyverbs", 6, messages=384),
}
"""Transfers that are moved from path to path all the time; 24 MiB last 10 s at the rate of a host's link."""

WITHOUT_ICRC = Transfer("ibv_rc_pingpong", 4, messages=1, size=64)
"""The control: a transfer whose ports are rewritten and nothing else. It never ends."""

_CONTROL_TIMEOUT_S = 60.0
_CONTROL_POLL_S = 0.2
_SEED = 20
_ROCE_PORT = "4791"
_ROCE = ("protocol", "ip", "flower", "ip_proto", "udp", "dst_port", _ROCE_PORT)
_REWRITE = ("action", "pedit", "ex", "munge", "udp", "sport", "set", "50000")


def plan() -> Iterator[tuple[str, Scenario]]:
    """Yield every scenario with its name, in the order in which they are run."""
    for name, transfer in PLAIN.items():
        yield f"plain: {name}", partial(run_plain, transfer)
    yield "control: ports rewritten without the ICRC", run_control
    yield "dataplane", load_dataplane
    for name, transfer in STEERED.items():
        yield f"steered: {name}", partial(run_steered, transfer)


def run_plain(transfer: Transfer, bench: Bench) -> dict[str, Any]:
    """Run a transfer that nobody touches."""
    with recorded(bench) as record, started(transfer, bench.source, bench.target) as running:
        record.update(asdict(running.finish()))
    return record


def run_steered(transfer: Transfer, bench: Bench) -> dict[str, Any]:
    """Run a transfer whose both directions are moved until it ends."""
    with recorded(bench) as record, started(transfer, bench.source, bench.target) as running:
        with mover(running, bench.source, bench.target, transfer.version) as steering:
            record["moves"] = steering.move_while(running, random.Random(_SEED))
        record.update(asdict(running.finish()))
    return record


def run_control(bench: Bench) -> dict[str, Any]:
    """Rewrite source ports and leave the ICRC as it is, until some packets have been found wrong."""
    interface = ("dev", bench.source.ifname)
    with recorded(bench) as record:
        _tc("qdisc", "add", *interface, "clsact")
        try:
            _tc("filter", "add", *interface, "egress", *_ROCE, *_REWRITE)
            with started(WITHOUT_ICRC, bench.source, bench.target):
                record["seen"] = _await_wrong_icrcs(bench.counters)
        finally:
            _tc("qdisc", "del", *interface, "clsact")
    return record


def _await_wrong_icrcs(counters: Counters) -> bool:
    """Wait until more packets have a wrong ICRC than now; return whether it came to that."""
    before = counters.read().icrc_wrong
    return wait_for(lambda: counters.read().icrc_wrong > before, _CONTROL_TIMEOUT_S, poll_s=_CONTROL_POLL_S)


def load_dataplane(bench: Bench) -> dict[str, Any]:
    """Load the dataplane on both hosts' NICs."""
    return {host.ifname: loader.load(host.ifname).mode.name.lower() for host in (bench.source, bench.target)}


def _tc(*arguments: str) -> None:
    subprocess.run(("tc", *arguments), check=True, capture_output=True)

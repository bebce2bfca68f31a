"""What `cwdp.rdma` is asked in the virtual machine: listings, source ports by flow label, probes by UD queue pair."""

import json
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cwdp.errors import LabError
from cwdp.rdma import netlink, sysfs, verbs
from cwdp.rdma.netlink import QueuePair
from cwdp.rdma.sport import sport_to_flow_label
from cwdp.rdma.udlink import UdLink
from cwdp.rdma.udprobe import UdPath, UdProber, UdSample
from cwdp.shared.bus.messages import UdAddress
from tools.rdma.scenarios.scenario import Bench, Scenario
from tools.rdma.testbed.counters import Counters
from tools.rdma.testbed.fabric import RdmaHost, silent
from tools.rdma.testbed.programs import Transfer, started
from tools.rdma.testbed.pyverbs_client import Endpoint

TRANSFER = Transfer("ib_write_bw", 4, messages=512)
CONNECTED = ("RTR", "RTS")  # the end that only receives stays in the former
SPORTS = (49152, 50000, 65535)
KEY_ID, KEY, OTHER_KEY = 7, bytes(range(16)), bytes(16)
DEVICE_PORT = 1
PATHS = 8
PROBES = 8
MESSAGE_BYTES = 64
FRAME_BYTES = 256
ROCE_PORT = 4791
ETH_P_ALL = 0x0003
ETH_P_IP = 0x0800
IPV4_UDP_AT = 14 + 20  # Ethernet without VLAN tag, IPv4 without options
COMMAND_TIMEOUT_S = 180.0
_TIMEOUT_S = 20.0
_WAIT_S = 0.02


def plan() -> Iterator[tuple[str, Scenario]]:
    """Yield every scenario with its name."""
    yield "verbs: listing", run_listing
    yield "verbs: flow label", run_flow_labels
    for version in (4, 6):
        yield f"verbs: UD probes over IPv{version}", partial(run_ud_probes, version)
    yield "verbs: UD probes by command", run_ud_commands


def run_listing(bench: Bench) -> dict[str, Any]:
    """List all while a transfer runs, and what iproute2 says of the queue pairs at the same time."""
    with started(TRANSFER, bench.source, bench.target) as running:
        queue_pairs, reference = _listed_twice()
        running.finish()
    return {
        "devices": [asdict(device) for device in sysfs.devices()],
        "ports": [asdict(port) for port in sysfs.ports()],
        "gids": [asdict(gid) for gid in sysfs.gids()],
        "counters": [asdict(counter) for counter in sysfs.counters()],
        "drivers": netlink.drivers(),
        "limits": asdict(verbs.limits(bench.source.device, [DEVICE_PORT])),
        "queue_pairs": [asdict(qp) for qp in queue_pairs],
        "iproute2": reference,
    }


def run_flow_labels(bench: Bench) -> dict[str, Any]:
    """Connect queue pairs by the flow labels of some source ports; which ports are then seen on the wire."""
    return {"seen": {str(sport): _sport_on_the_wire(bench, sport) for sport in SPORTS}}


def _sport_on_the_wire(bench: Bench, sport: int) -> int | None:
    ends = [
        Endpoint(host.device, host.gid_index(4), MESSAGE_BYTES, 1) for host in (bench.source, bench.target)
    ]
    for one, other in (ends, reversed(ends)):
        one.connect(other.address, flow_label=sport_to_flow_label(sport))
    ends[1].post_receive(0, 0, MESSAGE_BYTES)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as capture:
        capture.bind((bench.source.ifname, ETH_P_ALL))
        capture.settimeout(_TIMEOUT_S)
        ends[0].post_send(0, 0, MESSAGE_BYTES)
        return _sport_seen(capture, time.monotonic() + _TIMEOUT_S)


def run_ud_probes(version: int, bench: Bench) -> dict[str, Any]:
    """Probe some paths: which spines each takes, what becomes of it while one is cut, and with another key."""
    with _probers(version, bench, KEY) as (prober, mirror):
        paths = _paths(prober.address, mirror.address)
        found = [_probe_alone(prober, mirror, path, bench.counters) for path in paths]
        cut = max(found[0]["spines"], key=found[0]["spines"].__getitem__)
        with silent(f"l1-{cut}"):
            while_cut = _probe_all(prober, mirror, paths)
        record = {
            "paths": found,
            "cut": cut,
            "answered_while_cut": while_cut,
            "answered_when_healed": _probe_all(prober, mirror, paths),
        }
    with _probers(version, bench, OTHER_KEY) as (prober, mirror):
        answered = _probe_all(prober, mirror, _paths(prober.address, mirror.address))
        return record | {"other_key": {"answered": answered, "bad_mac": mirror.counters["bad_mac"]}}


@contextmanager
def _probers(version: int, bench: Bench, key_there: bytes) -> Iterator[tuple[UdProber, UdProber]]:
    """A prober on the source, and one on the target that answers it."""
    with ExitStack() as stack:
        here, there = (
            stack.enter_context(closing(UdProber(_link(host, version), {KEY_ID: key}, KEY_ID)))
            for host, key in ((bench.source, KEY), (bench.target, key_there))
        )
        yield here, there


def run_ud_commands(bench: Bench) -> dict[str, Any]:
    """`cwdp rdma mirror` on the target, and what `cwdp rdma probe` says of the paths to it."""
    with TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.toml"
        keys.touch(mode=0o600)
        keys.write_text(f'send = {KEY_ID}\n[[key]]\nid = {KEY_ID}\nsecret = "{KEY.hex()}"\n')
        with _mirror(bench.target, keys) as address:
            command = _command(bench.source, keys, "probe", address, "--json")
            probed = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=COMMAND_TIMEOUT_S)
    answer: dict[str, Any] = json.loads(probed.stdout)
    return answer


@contextmanager
def _mirror(host: RdmaHost, keys: Path) -> Iterator[str]:
    """A mirror that runs; the address that it says."""
    command = _command(host, keys, "mirror")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().partition("probe ")[2].split()[0]
        finally:
            process.send_signal(signal.SIGINT)


def _command(host: RdmaHost, keys: Path, name: str, *arguments: str) -> list[str]:
    where = ["--dev", host.device, "--gid-index", str(host.gid_index(4)), "--keys", str(keys)]
    return [sys.executable, "-m", "cwdp", "rdma", name, *where, *arguments]


def _link(host: RdmaHost, version: int) -> UdLink:
    return UdLink(host.device, DEVICE_PORT, host.gid_index(version), "rxe")


def _paths(here: UdAddress, there: UdAddress) -> list[UdPath]:
    return [
        UdPath(there, sport, reply_sport)
        for sport, reply_sport in zip(here.sports[:PATHS], there.sports[:PATHS], strict=True)
    ]


def _probe_alone(prober: UdProber, mirror: UdProber, path: UdPath, counters: Counters) -> dict[str, Any]:
    """Probe one path while nothing else is under way, so that the spines' counters tell where it leads."""
    before = counters.settled()
    (answered,) = _probe_all(prober, mirror, [path])
    return {
        "sport": path.sport,
        "reply_sport": path.reply_sport,
        "answered": answered,
        "spines": counters.settled().since(before).spines,
    }


def _probe_all(prober: UdProber, mirror: UdProber, paths: list[UdPath]) -> list[int]:
    """Send PROBES on each path, one after the other; how many of each were answered."""
    samples = [sample for _ in range(PROBES) for sample in _probe_once(prober, mirror, paths)]
    return [sum(one.path == path and one.rtt_ns is not None for one in samples) for path in paths]


def _probe_once(prober: UdProber, mirror: UdProber, paths: list[UdPath]) -> list[UdSample]:
    prober.send(paths)
    samples: list[UdSample] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while len(samples) < len(paths) and time.monotonic() < deadline:
        select.select([prober, mirror], [], [], _WAIT_S)
        mirror.poll()
        samples += prober.poll()
    return samples


def _listed_twice() -> tuple[list[QueuePair], list[dict[str, Any]]]:
    """Our list and iproute2's, once two queue pairs are connected and nothing changed between the two."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        before = netlink.queue_pairs()
        reference = subprocess.run(("rdma", "-j", "res", "show", "qp"), check=True, capture_output=True)
        after = netlink.queue_pairs()
        connected = sum(qp.type == "RC" and qp.state in CONNECTED for qp in after) == 2
        if connected and list(map(_lasting, before)) == list(map(_lasting, after)):
            return after, json.loads(reference.stdout)
    raise LabError("no queue pairs were connected within the time")


def _lasting(qp: QueuePair) -> QueuePair:
    """A queue pair without what changes with every packet."""
    return replace(qp, sq_psn=None, rq_psn=None)


def _sport_seen(capture: socket.socket, deadline: float) -> int | None:
    """The source port of the first RoCEv2 packet that leaves."""
    while time.monotonic() < deadline:
        frame, (_, protocol, kind, *_) = capture.recvfrom(FRAME_BYTES)
        udp = frame[IPV4_UDP_AT : IPV4_UDP_AT + 4]
        if (
            kind == socket.PACKET_OUTGOING
            and protocol == ETH_P_IP
            and udp[2:] == ROCE_PORT.to_bytes(2, "big")
        ):
            return int.from_bytes(udp[:2], "big")
    return None

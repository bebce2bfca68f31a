"""One-way delays of data packets against the truth: the lab knows how far each host's clock is off.

The stamps of both ends are joined as the manager joins them, once by the times that the hosts claim and once by the
machine's own oscillator, which all hosts share. The difference of the two delays of a packet is the error.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.clock.discipline import best_of_tries
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.ring import Ring
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import LabError
from cwdp.shared.addresses import Address
from tools.bench.figures import Figure, figure
from tools.lab import Host, LabSpec
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import SETTLE_S, Traffic, lab_for_run, wait_for_lock
from tools.lab.network import netns
from tools.lab.truth.clocks import Truth, local_ns
from tools.lab.truth.stamps import joined, stamps, synced
from tools.roce.generator import Generator
from tools.roce.patterns import plan_flows

NAME = "qpowd"
SECONDS = 20.0
RATE_BPS = 10_000_000
LOADS = ((0.0, "idle"), (0.6, "loaded"))
TARGET_NS = 1000.0
TURNS = 5


def figures() -> Iterator[Figure]:
    """The error with nothing else on the fabric, and beside 60 % load."""
    for share, label in LOADS:
        yield owd_figure(share, label)


def owd_figure(share: float, label: str, seconds: float = SECONDS) -> Figure:
    """The 99th percentile of the error over all packets stamped at both ends.

    Raises:
        LabError: none was.
    """
    spec = LabSpec(name=NAME, hosts_per_leaf=2, spines=2)
    with lab_for_run(NAME, spec) as lab, Fleet(lab) as fleet, Truth(lab) as truth, ExitStack() as stack:
        wait_for_lock(fleet, truth)
        with Traffic(lab, share, SETTLE_S + seconds):
            time.sleep(SETTLE_S)
            rings = {host: stack.enter_context(_open(host)) for host in lab.hosts}
            readers = {host: Ring(m.samples, m.control["sample_head"]) for host, m in rings.items()}
            flows = plan_flows(lab, "ring", rate_bps=RATE_BPS)
            with Generator(flows, lab.popen, lab.run_dir) as generator:
                generator.start(seconds)
                generator.result(seconds + SETTLE_S)
            records = {host: reader.take() for host, reader in readers.items()}
            ahead_ns = {host: _ahead_of_raw_ns(host, maps) for host, maps in rings.items()}
    error_ns, bound_ns = _errors(records, ahead_ns)
    if not len(error_ns):
        raise LabError("no data packet was stamped at both ends", f"read the logs: {fleet.lab.run_dir}/*.log")
    p50, p99 = (float(np.quantile(np.abs(error_ns), q)) for q in (0.5, 0.99))
    reference = {
        "samples": len(error_ns),
        "p50_ns": round(p50, 1),
        "max_ns": int(np.abs(error_ns).max()),
        "bound_p50_ns": float(np.median(bound_ns)),
        "within_bound_share": round(float(np.mean(np.abs(error_ns) <= bound_ns)), 5),
    }
    return figure(f"data_packet_owd_error_p99_{label}", p99, "ns", reference, TARGET_NS, digits=1)


def _open(host: Host) -> Maps:
    return Maps(TreePath(netns.cookie(host.netns), host.nics[0].name))


def _errors(
    records: dict[Host, NDArray[np.void]], ahead_ns: dict[Host, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The error of each packet's delay, and its bound; both ns, shape (packets,)."""
    hosts = list(records)
    numbers: dict[Address, int] = {host.nics[0].ipv4: number for number, host in enumerate(hosts)}
    claimed, true = [], []
    for host, found in records.items():
        on_timeline = synced(found)
        made = stamps(on_timeline, numbers, numbers[host.nics[0].ipv4])
        claimed.append(made)
        made = made.copy()
        made["time_ns"] = _true_ns(host, on_timeline["local_ns"].astype(np.int64) - ahead_ns[host])
        true.append(made)
    by_claim, by_truth = (_delays(np.concatenate(parts)) for parts in (claimed, true))
    _, here, there = np.intersect1d(by_claim["flow"], by_truth["flow"], return_indices=True)
    error_ns: NDArray[np.int64] = by_claim["owd_ns"][here] - by_truth["owd_ns"][there]
    return error_ns, by_claim["bound_ns"][here]


def _delays(made: NDArray[np.void]) -> NDArray[np.void]:
    """Packets found at both ends; `flow` is the row of the stamp of the leaving one."""
    made["flow"] = np.arange(len(made))
    return joined(made)


def _ahead_of_raw_ns(host: Host, maps: Maps) -> int:
    """Local time of a host less its CLOCK_MONOTONIC_RAW: a constant."""
    _, mono_ns, raw_ns = best_of_tries()
    return local_ns(host, maps.read_base(), mono_ns) - host.clock.raw_ns(mono_ns, raw_ns)


def _true_ns(host: Host, raw_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The machine's CLOCK_MONOTONIC_RAW when a host's showed that; each turn is a thousand times as exact."""
    _, mono_ns, now_raw_ns = best_of_tries()
    mono_ahead_ns = mono_ns - now_raw_ns

    def true_ns(shown_ns: int) -> int:
        found_ns = shown_ns
        for _ in range(TURNS):
            found_ns += shown_ns - host.clock.raw_ns(found_ns + mono_ahead_ns, found_ns)
        return found_ns

    return np.array([true_ns(shown_ns) for shown_ns in raw_ns.tolist()], np.int64)

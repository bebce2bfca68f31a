"""Counters of errors, read twice: what they show, and which of them grew."""

import time
from collections.abc import Iterator

from msgspec import Struct

from cwdp.audit.notes import Notes, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import NET, Found, RdmaPort
from cwdp.audit.unreadable import Unreadable

OF_NICS = (
    "rx_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "rx_over_errors",
    "tx_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
)
"""Documentation/ABI/testing/sysfs-class-net-statistics."""

OF_PORTS = {
    "counters": (
        "symbol_error",
        "link_downed",
        "link_error_recovery",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_rcv_switch_relay_errors",
        "port_rcv_constraint_errors",
        "port_xmit_constraint_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "VL15_dropped",
    ),
    "hw_counters": (
        "out_of_sequence",
        "packet_seq_err",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "implied_nak_seq_err",
        "req_cqe_error",
        "resp_cqe_error",
        "resp_local_length_error",
        "rx_icrc_encapsulated",
        "out_of_buffer",
        "roce_adp_retrans_to",
        "to_retransmits",
        "seq_err_naks_rcvd",
        "max_retry_exceeded",
        "rnr_naks_rcvd",
        "res_oos_drop_count",
        "out_of_seq_request",
        "rcvd_seq_err",
        "completer_retry_err",
        "retry_exceeded_err",
        "retry_rnr_exceeded_err",
        "rcvd_rnr_err",
        "send_err",
        "link_downed",
    ),
}
"""Documentation/ABI/stable/sysfs-class-infiniband; the drivers' own are those of mlx5_ib, bnxt_re and rdma_rxe."""


class First(Struct, frozen=True):
    """The first reading.

    Attributes:
        taken_s: when, on CLOCK_MONOTONIC.
        counters: by name, of each subject by kind and name, such as `nic eth0`.
    """

    taken_s: float = 0.0
    counters: dict[str, dict[str, int]] = {}


def take(source: Source, found: Found) -> First:
    """Read counters for the first time."""
    nics = {f"nic {nic.name}": of_nic(source, nic.name) for nic in found.nics}
    ports = {f"rdma {port.name}": of_port(source, port) for port in found.ports}
    return First(time.monotonic(), nics | ports)


def wait(source: Source, first: First) -> None:
    """Let enough time go by for a second reading to have a meaning."""
    time.sleep(max(0.0, min(source.pause_s, first.taken_s + source.pause_s - time.monotonic())))


def of_nic(source: Source, name: str) -> dict[str, int]:
    """Counters of errors of a NIC that can be read now."""
    return dict(_readable(source, f"{NET}/{name}/statistics", OF_NICS))


def of_port(source: Source, port: RdmaPort) -> dict[str, int]:
    """Counters of errors of an RDMA port that can be read now."""
    return {
        name: value
        for group, names in OF_PORTS.items()
        for name, value in _readable(source, f"{port.path}/{group}", names)
    }


def note(notes: Notes, first: First, now: dict[str, int]) -> None:
    """Take down which counters grew; one that has become less was reset, and has grown if it is not 0."""
    before = first.counters.get(f"{notes.kind} {notes.name}", {})
    both = before.keys() & now.keys()
    if not both:
        notes.lack(("growing_errors",), "no counters of errors are told")
        return
    grown = [name for name in both if now[name] > before[name] or 0 < now[name] < before[name]]
    notes.note("growing_errors", lambda: sorted(grown))


def _readable(source: Source, folder: str, names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for name in names:
        try:
            yield name, whole(source.text(f"{folder}/{name}"))
        except Unreadable:
            continue

"""Metrics of TCP connections of named services, summed over the fleet."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from manager.api.metric_families import counter, counters, gauges
from manager.tcp.connections import REASONS, ConnectionStore
from manager.tcp.steered import SteeredConnections

_BYTES = {"bytes_sent": "sent", "bytes_received": "received"}


def tcp_metrics(store: ConnectionStore, steered: SteeredConnections) -> Iterator[Metric]:
    """Of all connections."""
    by_path = steered.count()
    yield gauges(
        "cwdp_tcp_steered", "Ends of steered TCP connections by the path that they take.", "path", by_path
    )
    yield gauges("cwdp_tcp_connections", "Ends of TCP connections by how many tell.", "ends", store.count())
    moved = {way: store.totals[name] for name, way in _BYTES.items()}
    yield counters("cwdp_tcp_bytes", "Bytes of TCP connections.", "direction", moved)
    resent = store.totals["bytes_retransmitted"]
    yield counter("cwdp_tcp_retransmitted_bytes", "Bytes that TCP connections sent again.", resent)
    yield counter("cwdp_tcp_closed", "Ends of TCP connections that are gone.", store.closed)
    reports = {reason: store.reports[reason] for reason in REASONS}
    yield counters("cwdp_tcp_reports", "Agents' reports of TCP connections by outcome.", "reason", reports)

"""What the hosts of a run say, put together by flow; all times are CLOCK_MONOTONIC in ns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tools.roce.flows import Flow

Message = Mapping[str, Any]

_NS_PER_S = 1_000_000_000
_QUANTILES = (50, 99)


def merge(
    flows: Sequence[Flow],
    hosts: Mapping[str, Message],
    snapshots: Mapping[str, Sequence[Message]],
    start_ns: int,
) -> dict[str, Any]:
    """Put the results of all hosts together.

    Args:
        flows: of the run.
        hosts: the message "result" of each host.
        snapshots: the messages "snapshot" of each host.
        start_ns: when the run began.
    """
    senders = {end["id"]: end for host in hosts.values() for end in host["send"]}
    receivers = {end["id"]: end for host in hosts.values() for end in host["receive"]}
    rows = [flow_result(flow, senders[flow.id], receivers[flow.id]) for flow in flows]
    result: dict[str, Any] = {
        "start_ns": start_ns,
        "flows": rows,
        "hosts": [_host_result(name, message) for name, message in hosts.items()],
        "total": _total(rows, senders.values(), receivers.values(), hosts.values()),
    }
    if any(snapshots.values()):
        result["timeline"] = timeline(snapshots)
    return result


def flow_result(flow: Flow, sender: Message, receiver: Message) -> dict[str, Any]:
    """Everything about one flow."""
    lost = lost_packets(sender["go_backs"], receiver["gaps"])
    longest_first = sorted(receiver["pauses"], key=lambda pause: -pause[1])
    pauses = [{"start_ns": start_ns, "lasted_ns": lasted_ns} for start_ns, lasted_ns in longest_first]
    return {
        "id": flow.id,
        "source": flow.source.host,
        "target": flow.target.host,
        "source_address": str(flow.source.address),
        "target_address": str(flow.target.address),
        "qpn": flow.qpn,
        "remote_qpn": flow.remote_qpn,
        "sport": flow.sport,
        "failed": sender["failed"],
        "goodput_bps": _rate_bps(receiver["bytes"], sender["first_ns"], receiver["last_ns"]),
        "delivered_bytes": receiver["bytes"],
        "delivered_packets": receiver["packets"],
        "delivered_messages": receiver["messages"],
        "acked_bytes": sender["acked_bytes"],
        "messages": sender["messages"],
        "sent_packets": sender["sent_packets"],
        "retransmitted_packets": sender["retransmitted_packets"],
        "naks_sent": receiver["naks"],
        "naks_received": sender["naks"],
        "acks_sent": receiver["acks"],
        "acks_received": sender["acks"],
        "cnps_sent": receiver["cnps"],
        "cnps_received": sender["cnps"],
        "ce_marks": receiver["ce"],
        "timeouts": sender["timeouts"],
        "duplicates": receiver["duplicates"],
        "out_of_sequence": receiver["out_of_sequence"],
        "gaps": receiver["gap_total"],
        "gaps_overtaken": receiver["gaps_overtaken"],
        "completion": summary([sender["completion"]]),
        "owd": summary([receiver["owd"]]),
        "outage_ns": pauses[0]["lasted_ns"] if pauses else 0,
        "outage_start_ns": pauses[0]["start_ns"] if pauses else 0,
        "pauses": pauses,
        "first_lost_ns": min(lost, default=None),
        "last_lost_ns": max(lost, default=None),
        "sports": receiver["sports"],
        "ack_sports": sender["sports"],
        "gap_events": receiver["gaps"],
        "go_back_events": sender["go_backs"],
    }


def lost_packets(go_backs: Iterable[Message], gaps: Iterable[Message]) -> list[int]:
    """When packets were sent that got lost: the first and the last of each loss, as far as it is known.

    A gap tells when its last missing packet was sent; the sender's step back over it, when the first was. A step back
    on a timeout stands for all that it sends again, although only the acknowledgements may have been lost. What was
    only overtaken was not lost.
    """
    overtaken = {gap["psn"] for gap in gaps if gap["overtaken"]}
    times = [gap["last_lost_sent_ns"] for gap in gaps if not gap["overtaken"] and gap["last_lost_sent_ns"]]
    for event in go_backs:
        if event["cause"] == "timeout":
            times += [event["first_sent_ns"], event["last_sent_ns"]]
        elif event["psn"] not in overtaken:
            times.append(event["first_sent_ns"])
    return times


def summary(histograms: Iterable[Message]) -> dict[str, Any]:
    """Count, median, 99th percentile and maximum of durations in ns; the percentiles to 0.8 %."""
    found = list(histograms)
    counts = [pair for histogram in found for pair in histogram["counts"]]
    total = sum(count for _, count in counts)
    if not total:
        return {"count": 0, "p50_ns": None, "p99_ns": None, "max_ns": None}
    values, weights = np.array(sorted(counts)).T
    ranks = np.searchsorted(np.cumsum(weights), np.array(_QUANTILES) / 100 * total)
    longest = max(histogram["max_ns"] for histogram in found)
    p50, p99 = (min(int(value), longest) for value in values[ranks])
    return {"count": total, "p50_ns": p50, "p99_ns": p99, "max_ns": longest}


def timeline(snapshots: Mapping[str, Sequence[Message]]) -> list[dict[str, Any]]:
    """What each host had delivered and got acknowledged, by flow, in the order of time."""
    rows = [
        {
            "at_ns": snapshot["at_ns"],
            "host": host,
            "delivered_bytes": dict(snapshot["delivered"]),
            "acked_bytes": {flow: count for flow, count, _ in snapshot["acked"]},
            "retransmitted_packets": {flow: count for flow, _, count in snapshot["acked"]},
        }
        for host, messages in snapshots.items()
        for snapshot in messages
    ]
    return sorted(rows, key=lambda row: row["at_ns"])


def _host_result(name: str, message: Message) -> dict[str, Any]:
    return {"host": name} | {key: value for key, value in message.items() if isinstance(value, int)}


def _total(
    rows: Sequence[Message],
    senders: Iterable[Message],
    receivers: Iterable[Message],
    hosts: Iterable[Message],
) -> dict[str, Any]:
    all_hosts, all_receivers, all_senders = list(hosts), list(receivers), list(senders)
    begun = [sender["first_ns"] for sender in all_senders if sender["first_ns"]]
    delivered_bytes = sum(row["delivered_bytes"] for row in rows)
    goodput_bps = _rate_bps(
        delivered_bytes, min(begun, default=0), max(receiver["last_ns"] for receiver in all_receivers)
    )
    return {
        "goodput_bps": goodput_bps,
        "delivered_bytes": delivered_bytes,
        "failed": sum(row["failed"] for row in rows),
        "retransmitted_packets": sum(row["retransmitted_packets"] for row in rows),
        "icrc_errors": sum(host["icrc_errors"] for host in all_hosts),
        "cpu_ns": sum(host["user_cpu_ns"] + host["system_cpu_ns"] for host in all_hosts),
        "outage_ns": max(row["outage_ns"] for row in rows),
        "completion": summary(sender["completion"] for sender in all_senders),
        "owd": summary(receiver["owd"] for receiver in all_receivers),
    }


def _rate_bps(delivered_bytes: int, begin_ns: int, end_ns: int) -> float:
    return 8 * delivered_bytes * _NS_PER_S / (end_ns - begin_ns) if end_ns > begin_ns else 0.0

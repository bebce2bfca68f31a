"""What a lab looks like now: nodes, addresses, clocks, and each link's state and counters read from the kernel."""

import time
from dataclasses import asdict
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cwdp.shared.rates import format_rate
from tools.lab import clocks, parts, state
from tools.lab.lab import Lab
from tools.lab.lifecycle import kernel_errors
from tools.lab.network import drops, fabric, inbound
from tools.lab.network.fabric import Node
from tools.lab.state import LinkFault
from tools.lab.topology import MGMT, MGMT_ADDRESS, Link


def collect(name: str) -> dict[str, Any]:
    """Return the whole status as plain data, units in the keys; raise `LabError` if the lab is not up."""
    known = state.require(name)
    lab = Lab(known)
    with (
        kernel_errors(f"to read the lab {name!r}"),
        fabric.open_nodes(lab.topology, lab.topology.hosts + lab.topology.switches) as nodes,
    ):
        counters = {node.name: _port_counters(node) for node in nodes.values()}
    return {
        "name": name,
        "run_dir": str(lab.run_dir),
        "spec": msgspec.to_builtins(lab.spec),
        "hosts": [_host(lab, name) for name in lab.topology.hosts],
        "switches": [_switch(lab, name) for name in lab.topology.switches],
        "standing": [asdict(part) for part in parts.standing(known)],
        "mgmt": {"netns": lab.mgmt_netns, "address": str(MGMT_ADDRESS), "node": MGMT},
        "links": [
            _link(link, known.faults.get(link.name, LinkFault()), counters)
            for link in lab.topology.links.values()
        ],
    }


def render(status: dict[str, Any]) -> Group:
    """Draw the status as tables: hosts, switches, links, and what stands in the lab."""
    tables = [
        _hosts_table(status["hosts"]),
        _switches_table(status["switches"]),
        _links_table(status["links"]),
    ]
    if status["standing"]:
        tables.append(_standing_table(status["standing"]))
    return Group(*tables)


def _host(lab: Lab, name: str) -> dict[str, Any]:
    host = lab.host(name)
    nics = [
        {"name": nic.name, "mac": nic.mac, "leaf": nic.leaf, "ipv4": str(nic.ipv4), "ipv6": str(nic.ipv6)}
        for nic in host.nics
    ]
    return {
        "name": name,
        "netns": host.netns,
        "mgmt_address": str(host.mgmt_address),
        "nics": nics,
        "clock": clocks.describe(host.clock, time.monotonic_ns()),
    }


def _switch(lab: Lab, name: str) -> dict[str, Any]:
    ipv4, ipv6 = lab.topology.router_addresses(name)
    return {"name": name, "netns": lab.netns(name), "ipv4": str(ipv4), "ipv6": str(ipv6)}


def _link(link: Link, fault: LinkFault, counters: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    ends = [{"node": p.node, "port": p.name, **counters[p.node].get(p.name, {})} for p in (link.a, link.b)]
    held = counters[link.b.node].get(inbound.queue_name(link.b.name), {})
    for key in ("queue_drops", "queue_backlog_bytes"):
        if key in ends[0] and key in held:
            ends[0][key] += held[key]
    return {
        "name": link.name,
        "carrier": all(end.get("carrier", False) for end in ends),
        "queue_bytes": link.queue_bytes,
        "directions": {
            direction: {
                "state": _direction_state(fault, direction)
                if all("carrier" in end for end in ends)
                else "missing",
                "rate_bps": fault.rate_bps.get(direction, link.rate_bps),
                "loss": fault.loss.get(direction, 0.0),
                "lost_packets": drops.dropped_packets(fault.drop_map_ids.get(direction, 0)),
            }
            for direction in link.directions
        },
        "ends": ends,
    }


def _direction_state(fault: LinkFault, direction: str) -> str:
    """Name what is wrong with one direction: `up`, or one or more of `cut`, `silent`, `loss`, `rate`, `mtu`, `tos`."""
    share = fault.loss.get(direction, 0.0)
    words = {
        "cut": fault.cut,
        "silent": share == 1,
        "loss": 0 < share < 1,
        "rate": direction in fault.rate_bps,
        "mtu": fault.mtu > 0,
        "tos": direction in fault.tos,
    }
    return "+".join(word for word, holds in words.items() if holds) or "up"


def _port_counters(node: Node) -> dict[str, dict[str, Any]]:
    qdiscs = {
        qdisc["index"]: qdisc.get_attr("TCA_STATS2")
        for qdisc in node.ip.get_qdiscs()
        if qdisc.get_attr("TCA_KIND") == "tbf"
    }
    ports = {}
    for link in node.ip.get_links():
        if link["index"] in qdiscs:
            stats, queue = link.get_attr("IFLA_STATS64"), qdiscs[link["index"]].get_attr("TCA_STATS_QUEUE")
            ports[link.get_attr("IFLA_IFNAME")] = {
                "carrier": bool(link.get_attr("IFLA_CARRIER")),
                "tx_bytes": stats["tx_bytes"],
                "rx_bytes": stats["rx_bytes"],
                "tx_packets": stats["tx_packets"],
                "rx_packets": stats["rx_packets"],
                "queue_drops": queue["drops"],
                "queue_backlog_bytes": queue["backlog"],
            }
    return ports


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _hosts_table(hosts: list[dict[str, Any]]) -> Table:
    table = _table(
        "Hosts", "host", "nic", "leaf", "IPv4", "IPv6", "management", "offset", "oscillator", "discipline"
    )
    for host in hosts:
        clock = host["clock"]
        for nic in host["nics"]:
            table.add_row(
                host["name"],
                *(nic[key] for key in ("name", "leaf", "ipv4", "ipv6")),
                host["mgmt_address"],
                f"{clock['offset_ns'] / 1e9:+.3f} s",
                *(f"{clock[key] / 1e3:+.3f} ppm" for key in ("oscillator_ppb", "discipline_ppb")),
            )
    return table


def _switches_table(switches: list[dict[str, Any]]) -> Table:
    table = _table("Switches", "switch", "netns", "IPv4", "IPv6")
    for switch in switches:
        table.add_row(*(switch[key] for key in ("name", "netns", "ipv4", "ipv6")))
    return table


def _standing_table(standing: list[dict[str, Any]]) -> Table:
    table = _table("Standing", "part", "state", "processes", "what")
    for part in standing:
        kept = "up" if part["is_kept"] else "left behind by what kept it"
        table.add_row(part["name"], kept, str(part["processes"]), Text(part["told"]))
    return table


def _links_table(links: list[dict[str, Any]]) -> Table:
    table = _table("Links", "direction", "state", "rate", "sent", "waiting", "queue drops", "loss", "lost")
    for link in links:
        for (direction, values), end in zip(link["directions"].items(), link["ends"], strict=True):
            table.add_row(
                direction,
                values["state"],
                format_rate(values["rate_bps"]),
                f"{end.get('tx_bytes', 0) / 1e6:.3f} MB",
                f"{end.get('queue_backlog_bytes', 0)} B",
                str(end.get("queue_drops", 0)),
                f"{values['loss']:.2%}",
                str(values["lost_packets"]),
            )
    return table

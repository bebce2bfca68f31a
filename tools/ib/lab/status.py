"""What an InfiniBand lab looks like now: what runs, its nodes and links as the simulator has them, and what was done to these."""

from typing import Any

import msgspec
from rich.console import Group
from rich.text import Text

from cwdp.cli import tables
from cwdp.shared.rates import format_rate
from tools.ib.lab import fleet, lifecycle, links, state
from tools.ib.lab.console import Console, Port, Ports
from tools.ib.lab.links import Link
from tools.ib.lab.state import Fault, State
from tools.ib.topology import port_name

DATA_SHARE = 0.8
"""Of ten bits on the wire eight are data."""


def collect(name: str) -> dict[str, Any]:
    """Return the whole status as plain data, units in the keys; raise `LabError` if the lab is not up."""
    with state.locked(name):
        known = state.require(name)
        ports = Console(name, state.run_dir(name)).ports()
    topology = known.spec.topology
    return {
        "name": name,
        "run_dir": str(state.run_dir(name)),
        "spec": msgspec.to_builtins(known.spec),
        "lacking": [*lifecycle.lacking(name), *fleet.lacking(name, known.readers)],
        "fleet": {"manager": f"unix://{fleet.socket(name)}", "readers": known.readers}
        if known.readers
        else None,
        "nodes": [_node(node, ports) for node in topology.nodes()],
        "links": [_link(link, known, ports) for link in links.every(topology)],
    }


def _node(node: str, ports: Ports) -> dict[str, Any]:
    own = ports.get((node, 0)) or ports[node, 1]
    active = sum(port.is_active for (each, number), port in ports.items() if each == node and number)
    return {"name": node, "lid": own.lid, "lmc": own.lmc, "active_ports": active}


def _link(link: Link, known: State, ports: Ports) -> dict[str, Any]:
    port = ports[link.a]
    fault = known.faults.get(link.key, Fault())
    return {
        "a": port_name(*link.a),
        "b": port_name(*link.b),
        "state": port.state,
        "rate_bps": _rate_bps(port) if port.is_active else 0,
        "faults": _faults(fault),
        "growing": fault.growing,
    }


def _rate_bps(port: Port) -> int:
    return round(port.width * port.lane_gbps * 1e9 * DATA_SHARE)


def _faults(fault: Fault) -> list[str]:
    lanes = "lane" if fault.width == 1 else "lanes"
    words = {
        "cut": fault.cut,
        f"{fault.width} {lanes}": fault.width,
        f"{format_rate(fault.speed_bps)} a lane": fault.speed_bps,
    }
    return [word for word, holds in words.items() if holds]


def render(status: dict[str, Any]) -> Group:
    """Draw the status as tables: nodes, and links of which not all is well."""
    nodes = tables.new_table("node", "LID", "LMC", "active ports")
    for node in status["nodes"]:
        nodes.add_row(node["name"], *(str(node[key]) for key in ("lid", "lmc", "active_ports")))
    table = tables.new_table("link", "state", "carries", "done to it")
    changed = [
        link for link in status["links"] if link["faults"] or link["growing"] or link["state"] != "Active"
    ]
    for link in changed:
        grows = [
            f"{counter} of {end} by {per_s:g} in a second"
            for end, counters in link["growing"].items()
            for counter, per_s in counters.items()
        ]
        cells = (link["state"], format_rate(link["rate_bps"]), ", ".join([*link["faults"], *grows]) or "-")
        table.add_row(f"{link['a']} - {link['b']}", *cells)
    count = Text(f"{len(status['links'])} links, {len(changed)} of them changed or not active", "dim")
    missing = [Text(f"{each} does not run", "red") for each in status["lacking"]]
    own = status["fleet"]
    told = [Text(f"fleet: manager {own['manager']}, agents at {', '.join(own['readers'])}")] if own else []
    return Group(nodes, count, *([table] if changed else []), *told, *missing)

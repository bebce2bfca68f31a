"""`cwdp ib`: the InfiniBand fabric as a host with access to its management plane reads it. Nothing is written to it."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.local.ib_audit import audit
from cwdp.cli.local.ib_reading import asking, reading_options
from cwdp.cli.output import emit
from cwdp.errors import ConfigError
from cwdp.ib.asking import Asker
from cwdp.ib.attributes import PortState
from cwdp.ib.counters import Reading, Told, ask_class, ask_counters, counts_wide, growth, reading
from cwdp.ib.partitions import read_keys
from cwdp.ib.snapshot import ends_of, snapshot
from cwdp.ib.sweep import End, Fabric, Node, sweep
from cwdp.ib.tables import named, read_tables
from cwdp.shared.ib.counters import ERRORS, NAMES, WAIT, WORD_BYTES
from cwdp.shared.ib.names import Names
from cwdp.shared.ib.routes import Routes
from cwdp.shared.rates import format_rate

TROUBLES = (WAIT, *ERRORS)
"""What grows on a port only while something is amiss or it waits."""

MOST_SLOW = 10
"""Links that are told one by one."""


@click.group(name="ib")
def ib() -> None:
    """The InfiniBand fabric, as its management plane has it; nothing is written to it."""


ib.add_command(audit)


@ib.command()
@reading_options
def fabric(*, dev: str, port: int, as_json: bool) -> None:
    """Show switches and hosts, their LIDs, and links that are down or slower than both ends could."""
    with asking(dev, port) as asker:
        found = sweep(asker)
        keys = read_keys(asker, found)
        counters = dict(asker.counters)
    emit(_fabric_json(found, keys, counters), as_json=as_json, render=lambda: _render(found))


@ib.command()
@click.argument("src")
@click.argument("dst")
@reading_options
def path(*, src: str, dst: str, dev: str, port: int, as_json: bool) -> None:
    """Show the ways from the host SRC to the host DST, by the tables of the switches: one for each LID of DST."""
    with asking(dev, port) as asker:
        found = sweep(asker)
        here, there = (_port_of(found, name) for name in (src, dst))
        subnet = snapshot(found, read_tables(asker, found))
    info, routes, names = found.nodes[there.guid].ports[there.port], Routes(subnet), Names(subnet).ports
    own = ends_of(found).index(here)
    rows = []
    for dlid in range(info.lid, info.lid + (1 << info.lmc)):
        leaves = routes.way(own, dlid)
        rows.append({"dlid": dlid, "ports": None if leaves is None else [names[row] for row in leaves]})
    emit(
        {"src": src, "dst": dst, "lmc": info.lmc, "ways": rows},
        as_json=as_json,
        render=lambda: _ways(rows, info.lmc),
    )


@ib.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Between two readings.",
)
@click.option("--all", "with_all", is_flag=True, help="Also ports of which nothing but data grows.")
@reading_options
def counters(*, seconds: float, with_all: bool, dev: str, port: int, as_json: bool) -> None:
    """Show by how much the ports' counters grow in a second: data, waiting, errors. Ports with errors, or that wait, unless told."""
    with asking(dev, port) as asker:
        found = sweep(asker)
        ends = [
            End(node.guid, number) for node in _in_order(found) for number in sorted(node.ports) if number
        ]
        lids = [_lid(found, end) for end in ends]
        classes = dict(
            zip(dict.fromkeys(lids), asker.ask(list(map(ask_class, dict.fromkeys(lids)))), strict=True)
        )
        wide = np.array([counts_wide(classes[lid]) for lid in lids], bool)
        requests, places = ask_counters(
            (row, lid, ends[row].port, bool(wide[row])) for row, lid in enumerate(lids)
        )
        made = asker.prepare(requests)
        before = _read(asker, made, places, wide)
        time.sleep(seconds)
        after = _read(asker, made, places, wide)
    grown = growth(before, after)
    told = zip(named(found.nodes, ends), grown.per_s.tolist(), grown.stuck.tolist(), strict=True)
    rows = [_counters_json(*one) for one in told]
    shown = [row for row in rows if with_all or row["stuck"] or any(row["per_s"][name] for name in TROUBLES)]
    emit({"ports": shown}, as_json=as_json, render=lambda: _counters(shown, len(rows)))


def _read(asker: Asker, made: Any, places: NDArray[np.intp], wide: NDArray[np.bool_]) -> Reading:
    answers, told = asker.ask_again(made), Told(len(wide))
    told.take(places, answers.data, answers.came)
    return reading(told, time.monotonic(), wide)


def _lid(found: Fabric, end: End) -> int:
    node = found.nodes[end.guid]
    return node.ports[0 if node.is_switch else end.port].lid


def _counters_json(name: str, per_s: list[float], stuck: list[bool]) -> dict[str, Any]:
    return {
        "port": name,
        "per_s": {
            each: None if math.isnan(value) else value for each, value in zip(NAMES, per_s, strict=True)
        },
        "stuck": [each for each, is_stuck in zip(NAMES, stuck, strict=True) if is_stuck],
    }


def _counters(rows: list[dict[str, Any]], count: int) -> RenderableType:
    table = tables.new_table("port", "sends", "receives", "waits", "grows in a second")
    for row in rows:
        per_s = row["per_s"]
        rates = [
            "-" if per_s[name] is None else format_rate(8 * WORD_BYTES * per_s[name])
            for name in ("sent_words", "received_words")
        ]
        errors = [f"{name} {per_s[name]:g}" for name in TROUBLES[1:] if per_s[name]]
        errors += [f"{name} at its most" for name in row["stuck"]]
        waits = "-" if per_s["send_wait"] is None else f"{per_s['send_wait']:g}"
        table.add_row(Text(row["port"]), *rates, waits, Text(", ".join(errors).replace("_", " ") or "-"))
    return Group(table, Text(f"{len(rows)} of {count} ports", "dim"))


def _port_of(found: Fabric, name: str) -> End:
    """The port of a host; raises ConfigError where there is none, or there are several."""
    every = [
        End(node.guid, port) for node in found.nodes.values() if not node.is_switch for port in node.ports
    ]
    names = dict(zip(every, named(found.nodes, every), strict=True))
    host = name.partition("/")[0]
    own = [end for end in every if names[end].partition("/")[0] == host]
    if not own:
        raise ConfigError(f"the fabric has no host {host}", "`cwdp ib fabric` shows those that there are")
    ends = [end for end in own if name in (host, names[end])]
    if len(ends) != 1:
        raise ConfigError(
            f"{len(ends)} ports of hosts are named {name}", f"name one, such as {names[own[0]]}"
        )
    return ends[0]


def _fabric_json(
    found: Fabric, keys: Mapping[End, tuple[int, ...]], counters: dict[str, int]
) -> dict[str, Any]:
    firsts = [a for a, b in sorted(found.links.items()) if a < b]
    seconds = [found.links[a] for a in firsts]
    return {
        "nodes": [_node_json(node) | {"keys": _keys_json(node, keys)} for node in _in_order(found)],
        "links": [
            {"a": a_name, "b": b_name, "rate_bps": _rate_bps(found, a)}
            for a, a_name, b_name in zip(
                firsts, *(named(found.nodes, each) for each in (firsts, seconds)), strict=True
            )
        ],
        "silent": named(found.nodes, found.silent),
        "counters": counters,
    }


def _node_json(node: Node) -> dict[str, Any]:
    lids = [(port.lid, port.lmc) for _, port in sorted(node.ports.items()) if port.lid]
    return {
        "name": node.name,
        "guid": f"{node.guid:#018x}",
        "is_switch": node.is_switch,
        "port_count": node.port_count,
        "lid": lids[0][0] if lids else None,
        "lmc": lids[0][1] if lids else None,
        "active_ports": _active(node),
    }


def _keys_json(node: Node, keys: Mapping[End, tuple[int, ...]]) -> dict[str, list[str]]:
    """The P_Keys of a host's ports that told them, by the ports' numbers."""
    ends = [End(node.guid, number) for number in sorted(node.ports)]
    return {str(end.port): [f"{key:#06x}" for key in keys[end]] for end in ends if end in keys}


def _in_order(found: Fabric) -> list[Node]:
    return sorted(found.nodes.values(), key=lambda node: (not node.is_switch, len(node.name), node.name))


def _active(node: Node) -> int:
    return sum(port.state == PortState.ACTIVE for number, port in node.ports.items() if number)


def _rate_bps(found: Fabric, end: End) -> int:
    port = found.nodes[end.guid].ports.get(end.port)
    return 0 if port is None else port.rate_bps


def _render(found: Fabric) -> RenderableType:
    switches = [node for node in _in_order(found) if node.is_switch]
    table = tables.new_table("switch", "LID", "ports", "active", "hosts")
    for node in switches:
        hosts = [
            found.nodes[there.guid].name
            for number in sorted(node.ports)
            if (there := found.links.get(End(node.guid, number))) and not found.nodes[there.guid].is_switch
        ]
        row = _node_json(node)
        cells = (str(row["lid"] or "-"), str(row["port_count"]), str(row["active_ports"]))
        table.add_row(Text(node.name), *cells, Text(" ".join(hosts) or "-"))
    about = (
        f"{len(found.nodes) - len(switches)} hosts, {len(switches)} switches, {len(found.links) // 2} links"
        + (f", {len(found.silent)} ports of which the far end is silent" if found.silent else "")
    )
    slow = list(_slow(found))
    more = [Text(f"and {len(slow) - MOST_SLOW} more such links", "yellow")] if len(slow) > MOST_SLOW else []
    return Group(Text(about, "dim"), table, *slow[:MOST_SLOW], *more)


def _slow(found: Fabric) -> Iterator[Text]:
    """Links that carry less than both of their ends could."""
    for a, b in sorted(found.links.items()):
        ends = [found.nodes[end.guid].ports.get(end.port) for end in (a, b)]
        if a < b and all(ends):
            could_bps = min(end.widest * end.fastest_bps for end in ends if end is not None)
            if 0 < (is_bps := _rate_bps(found, a)) < could_bps:
                names = " - ".join(named(found.nodes, [a, b]))
                yield Text(
                    f"{names} carries {format_rate(is_bps)}, both ends could {format_rate(could_bps)}",
                    "yellow",
                )


def _ways(rows: list[dict[str, Any]], lmc: int) -> RenderableType:
    table = tables.new_table("DLID", "leaves by")
    for row in rows:
        table.add_row(
            str(row["dlid"]), Text("no route" if row["ports"] is None else " > ".join(row["ports"]))
        )
    if lmc:
        return table
    return Group(
        table,
        Text("LMC is 0: one way only. `lmc` of opensm's configuration makes more (1: two, 2: four)", "dim"),
    )

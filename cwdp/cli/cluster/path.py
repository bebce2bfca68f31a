"""`cwdp path`: the paths between two hosts, and those of a TCP connection."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.reading import reading, show
from cwdp.errors import ManagerError

INFINIBAND = "infiniband"
NO_PARTITION = "no partition (P_Key) in common of which one is a full member: they cannot talk"
OF_CONNECTION = "-"
"""Between the names of its ends."""

TAKES = {
    "primary": "by its path",
    "backup": "by its backup",
    "unconfirmed": "by its own ports, until the far end has said that it restores them",
    None: "by its own ports",
}
"""How segments go, by the connection's standing."""

WHO = {"planner": "the planner", "operator": "an operator", "hand": "hand on its host"}
NOTE = Text("* in use by probes or queue pairs; ? does not answer", "dim")
TCP_NOTE = Text("* in use by connections; ? does not answer; p50, min: one-way delays of pulses", "dim")


@click.command()
@click.argument("words", metavar="SRC [-] DST", nargs=-1, required=True)
@click.option("--tcp", is_flag=True, help="Paths of TCP, which switches hash unlike those of RoCEv2.")
@reading
def path(*, words: tuple[str, ...], tcp: bool, url: str | None, as_json: bool, watch: float | None) -> None:
    """Show which source ports lead over which switches, from SRC to DST (HOST or HOST/NIC); of InfiniBand which destination LIDs.

    With a TCP connection as `cwdp tcp` names it, such as h1/nic0:41556 - h3/nic0:5201: the paths that it takes, both ways.
    """
    client, words = ManagerClient(url), tuple(" ".join(words).split())
    if OF_CONNECTION in words:
        query = {"connection": " ".join(words)}
        show(lambda: client.get("/v1/path", query), _connection, as_json=as_json, watch_s=watch)
        return
    if len(words) != 2:
        raise click.UsageError("Give SRC and DST, or the two ends of a TCP connection with a - between them.")
    src, dst = words
    between = {"src": src, "dst": dst} | ({"protocol": "tcp"} if tcp else {})

    def fetch() -> Any:
        answer = client.get("/v1/path", between)
        if not answer["pairs"]:
            raise ManagerError(
                f"no path{' of TCP' if tcp else ''} is known from {src!r} to {dst!r}",
                "those between which large or steered connections go are traced; `cwdp tcp` lists them"
                if tcp
                else "paths are traced between NICs that probe each other or have traffic; `cwdp host` lists them",
            )
        return answer

    show(fetch, _paths, as_json=as_json, watch_s=watch)


def _paths(answer: Any) -> RenderableType:
    parts: list[RenderableType] = []
    notes: list[RenderableType] = []
    for pair in answer["pairs"]:
        if pair["protocol"] == INFINIBAND:
            parts += [Text(_exact_heading(pair), "bold"), *([_exact_ways(pair)] if pair["ports"] else [])]
        else:
            parts += [Text(_heading(pair), "bold"), _ports(pair)]
            notes = [NOTE]
    return Group(*parts, *notes)


def _exact_heading(pair: Any) -> str:
    text = f"{pair['src']} > {pair['dst']} ({pair['dst_addr']}): "
    if not pair["ports"]:
        return text + "no way: tables lead there by no links that are active"
    count = pair["paths_known"]
    text += f"{count} {'way' if count == 1 else 'ways'}, by destination LID"
    if pair["no_route"]:
        text += f"; none to {', '.join(map(str, pair['no_route']))}"
    apart = NO_PARTITION if pair["may_talk"] is False else ""
    return "; ".join(part for part in (text, pair["note"], apart) if part)


def _exact_ways(pair: Any) -> Table:
    has_shares = any(way["share"] is not None for way in pair["ports"])
    table = tables.new_table("DLID", "use", *["new"] * has_shares, "switches", "leaves by")
    for way in pair["ports"]:
        table.add_row(
            str(way["sport"]),
            Text(way["role"] or "", "green"),
            *[f"{way['share'] or 0.0:.0%}"] * has_shares,
            _nodes(way["nodes"]),
            Text(" > ".join(way["leaves_by"])),
        )
    return table


def _ports(pair: Any) -> Table:
    ports: defaultdict[tuple[str | None, ...], list[str]] = defaultdict(list)
    for port in pair["ports"]:
        mark = "*" if port["in_use"] else ""
        ports[tuple(port["nodes"])].append(f"{port['sport']}{mark}")
    table = tables.new_table("switches", "ports")
    for nodes, shown in sorted(ports.items(), key=lambda item: [node or "" for node in item[0]]):
        table.add_row(_nodes(nodes), " ".join(shown))
    return table


def _heading(pair: Any) -> str:
    text = f"{pair['src']} > {pair['dst']} ({pair['dst_addr']}): "
    if not pair["paths_between_leaves"]:
        return text + "no path is known whole"
    return text + (
        f"{pair['paths_known']} of {pair['paths_between_leaves']} known paths between the leaves, "
        f"all found with {100 * pair['confidence']:.4g}%"
    )


def _nodes(nodes: Iterable[str | None] | None) -> str:
    return "not traced yet" if nodes is None else " > ".join(node or "?" for node in nodes)


def _connection(answer: Any) -> RenderableType:
    parts: list[RenderableType] = []
    for way in answer["ways"]:
        parts.append(Text(_way_heading(way), "bold"))
        chosen = [(name, way[name]) for name in ("path", "backup") if way[name] is not None]
        if chosen:
            parts.append(_chosen(chosen))
        if way["known"] is not None and way["known"]["ports"]:
            parts.append(_ports(way["known"]))
    return Group(*parts, TCP_NOTE)


def _way_heading(way: Mapping[str, Any]) -> str:
    text = f"{way['src']}:{way['local_port']} > {way['dst']}:{way['remote_port']}: {TAKES[way['standing']]}"
    return text if way["set_by"] is None else f"{text}; set by {WHO[way['set_by']]}"


def _chosen(paths: list[tuple[str, Any]]) -> Table:
    """Its path and its backup, with the delays of their pulses."""
    table = tables.new_table("path", "port", "switches", "p50", "min", "bound")
    for name, path in paths:
        owd = path["owd"] or {}
        delays = (tables.duration(owd.get(f"{key}_ns")) for key in ("p50", "min", "bound"))
        table.add_row(name, str(path["sport"]), _nodes(path["nodes"]), *delays)
    return table

"""`cwdp fabric`: the fabric as the manager has found it."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.cluster.link import finding_text
from cwdp.cli.reading import reading, show
from cwdp.cli.times import at_option, shown_time


@click.command()
@click.option("--links", is_flag=True, help="List the links between switches too.")
@at_option
@reading
def fabric(*, links: bool, at_s: float | None, url: str | None, as_json: bool, watch: float | None) -> None:
    """Show switches, which NIC sits where, and links that look wrongly plugged in.

    A switch goes by the address with which it answers; what begins with ? does not answer. With --at it is shown as it
    was known then, with what was wrong.
    """
    client = ManagerClient(url)
    query = {} if at_s is None else {"at": str(at_s)}
    show(
        lambda: client.get("/v1/fabric", query),
        lambda answer: _fabric(answer, with_links=links),
        as_json=as_json,
        watch_s=watch,
    )


def _fabric(answer: Any, *, with_links: bool) -> RenderableType:
    parts: list[RenderableType] = [Text(_summary(answer)), _switches(answer)]
    if with_links:
        parts.append(_links(answer))
    if answer["rails"]:
        parts.append(_rails(answer))
    parts += [Text(line, "" if is_well else "yellow") for line, is_well in _subnets(answer)]
    if answer["suspects"]:
        parts.append(_suspects(answer))
    if answer["set_aside"]:
        text = f"not believed, as others contradict them: {', '.join(answer['set_aside'])}"
        parts.append(Text(text, "red"))
    if "at_s" in answer:
        parts += _as_it_was(answer)
    return Group(*parts)


def _subnets(answer: Any) -> Iterator[tuple[str, bool]]:
    """What is known of InfiniBand subnets, and whether all is well."""
    for subnet in answer.get("infiniband", ()):
        lmc = ", ".join(map(str, subnet["lmcs"]))
        text = (
            f"InfiniBand subnet {subnet['prefix']}: {subnet['switch_count']} switches, {subnet['nic_count']} NICs, "
            f"{subnet['cable_count']} cables, LMC {lmc or '-'}, subnet manager {subnet['subnet_manager'] or 'none'}, "
            f"read by {subnet['reader']}"
        )
        if not subnet["is_fresh"]:
            text += ", which tells nothing now"
        if subnet["silent"]:
            text += f"; silent behind {', '.join(subnet['silent'])}"
        yield text, subnet["is_fresh"] and not subnet["silent"]
        if subnet["note"]:
            yield subnet["note"], False


def _as_it_was(answer: Any) -> list[RenderableType]:
    """What was wrong then, and what was avoided."""
    parts = [Text(finding_text(finding), "red") for finding in answer["findings"]]
    ways = ", ".join(f"{way['a']} > {way['b']}" for way in answer["avoided"])
    if ways:
        parts.append(Text(f"avoided: {ways}", "yellow"))
    return [*parts, Text(f"as known at {shown_time(answer['at_s'])}", "dim")]


def _summary(answer: Any) -> str:
    tiers: defaultdict[int, int] = defaultdict(int)
    for switch in answer["switches"]:
        tiers[switch["tier"]] += 1
    shown = ", ".join(f"{count} of tier {tier}" for tier, count in sorted(tiers.items()))
    return (
        f"{answer['nic_count']} NICs, {len(answer['switches'])} switches ({shown or 'none known'}), "
        f"{len(answer['links'])} links between them"
        + (f", {answer['path_count']} paths" if answer["path_count"] is not None else "")
    )


def _switches(answer: Any) -> RenderableType:
    """One row per leaf with its NICs, and per other switch with how many links it has."""
    count: defaultdict[str, int] = defaultdict(int)
    for link in answer["links"]:
        count[link["a"]] += 1
        count[link["b"]] += 1
    table = tables.new_table("switch", "tier", "links", "NICs")
    for switch in answer["switches"]:
        table.add_row(
            Text(switch["name"], "" if switch["answers"] else "yellow"),
            str(switch["tier"]),
            str(count[switch["name"]]),
            " ".join(switch["nics"]) or tables.NONE,
        )
    return table


def _links(answer: Any) -> RenderableType:
    table = tables.new_table("link", "to", *(["state"] if "at_s" in answer else []))
    for link in answer["links"]:
        state = [tables.state_text(link["state"])] if "state" in link else []
        table.add_row(link["a"], link["b"], *state)
    return table


def _rails(answer: Any) -> RenderableType:
    table = tables.new_table("rail", "leaves")
    for rail in answer["rails"]:
        table.add_row(rail["ifname"], " ".join(rail["leaves"]))
    return table


def _suspects(answer: Any) -> RenderableType:
    table = tables.new_table("suspected", "is at", "belongs at", "why")
    for suspect in answer["suspects"]:
        table.add_row(
            Text(suspect["what"], "red"),
            suspect["at"] or tables.NONE,
            suspect["expected"] or tables.NONE,
            suspect["reason"],
        )
    return table

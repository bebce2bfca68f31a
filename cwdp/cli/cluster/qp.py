"""`cwdp qp`: RoCEv2 queue pairs as the manager knows them, or as this host's dataplane has counted them."""

import time
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.local.queue_pairs import LocalQueuePairs
from cwdp.cli.output import rows_that_fit
from cwdp.cli.reading import reading, show
from cwdp.shared.bus.messages import nic_id

SORTS = ("rate", "bytes", "lost", "naks", "marked")
LOCAL_INTERVAL_S = 1.0


@click.command()
@click.option("--host", default="", metavar="HOST[/NIC]", help="Only what leaves from and comes to here.")
@click.option("--dev", metavar="IF", help="Of an interface of this host, without a manager.")
@click.option("--owd", is_flag=True, help="Show the one-way delays of their data packets.")
@click.option("--bursts", is_flag=True, help="Show in which bursts they send: how often, how long, how fast.")
@click.option("--sort", type=click.Choice(SORTS), default="rate", show_default=True, help="Largest first.")
@click.option("--limit", type=click.IntRange(min=0), help="Show so many, 0 for all; else what fits.")
@reading
def qp(
    *,
    host: str,
    dev: str | None,
    owd: bool,
    bursts: bool,
    sort: str,
    limit: int | None,
    url: str | None,
    as_json: bool,
    watch: float | None,
) -> None:
    """Show RoCEv2 queue pairs by direction: rates, marks, NAKs, losses, delays of their data packets."""
    if limit is None:
        limit = 0 if as_json else rows_that_fit(lines_each=1)
    if dev is not None and (host or owd or bursts):
        raise click.UsageError(
            "--dev reads this host's dataplane; --host, --owd and --bursts ask the manager."
        )
    if owd and bursts:
        raise click.UsageError("--owd and --bursts exclude each other; give one of them.")
    render = _delays if owd else _bursts if bursts else _counts
    if dev is not None:
        with LocalQueuePairs(dev) as local:
            time.sleep(LOCAL_INTERVAL_S)
            show(lambda: local.read(sort, limit), render, as_json=as_json, watch_s=watch)
        return
    client = ManagerClient(url)
    query: dict[str, str | int] = {"host": host, "sort": sort, "limit": limit}
    show(lambda: client.get("/v1/qp", query), render, as_json=as_json, watch_s=watch)


def _counts(answer: Any) -> RenderableType:
    with_programs = any(row.get("process") for row in answer["queue_pairs"])
    table = _programs_table(answer) if with_programs else _counts_table(answer)
    return Group(table, _note(answer))


def _counts_table(answer: Any) -> Table:
    paced = any(row["paced_bps"] is not None for row in answer["queue_pairs"])
    columns = (
        "queue pair",
        "port",
        "bit/s",
        "paced" if paced else "pkt/s",
        "CE",
        "CNP",
        "NAK",
        "resent",
        "missed",
        "reord",
        "seen",
    )
    table = tables.new_table(*columns)
    for row in answer["queue_pairs"]:
        table.add_row(
            _name(row),
            str(row["sport"]),
            tables.quantity(row["bps"]),
            tables.quantity(row["paced_bps" if paced else "pps"]),
            *(tables.quantity(row[name]) for name in ("ce_marks", "cnps")),
            _bad(sum(row["naks"].values())),
            *(_bad(row[f"psn_{name}"]) for name in ("retransmitted", "gaps", "reordered")),
            tables.seconds(row["age_s"]),
        )
    return table


def _programs_table(answer: Any) -> Table:
    """With what moves queue pairs and whose they are, and of the counts those that are not 0; jobs' names are no markup."""
    table = tables.new_table("queue pair", "port", "bit/s", "moved by", "program", "counted", "seen")
    for row in answer["queue_pairs"]:
        process = row.get("process") or {}
        whose = (str(process[name]) for name in ("pid", "job") if process.get(name))
        table.add_row(
            _name(row),
            str(row["sport"]),
            tables.quantity(row["bps"]),
            f"{row.get('actuator') or tables.NONE}{', refused' * bool(row.get('refused'))}",
            Text(" ".join(whose) or tables.NONE),
            _counted(row),
            tables.seconds(row["age_s"]),
        )
    return table


def _counted(row: Any) -> Text:
    counts = {
        "CE": row["ce_marks"],
        "CNP": row["cnps"],
        "NAK": sum(row["naks"].values()),
        "resent": row["psn_retransmitted"],
        "missed": row["psn_gaps"],
        "reord": row["psn_reordered"],
    }
    told = [f"{tables.quantity(count)} {name}" for name, count in counts.items() if count]
    return Text(", ".join(told) or tables.NONE)


def _delays(answer: Any) -> RenderableType:
    table = tables.new_table("queue pair", "port", "bit/s", "samples", "min", "p50", "p99", "max", "bound")
    for row in answer["queue_pairs"]:
        delay = row["owd"]
        if row["direction"] != "egress":
            continue
        cells = [tables.NONE] * 6
        if delay is not None:
            cells = [str(delay["samples"])]
            cells += [tables.duration(delay[f"{name}_ns"]) for name in ("min", "p50", "p99", "max", "bound")]
        table.add_row(_name(row), str(row["sport"]), tables.quantity(row["bps"]), *cells)
    return Group(table, _note(answer))


def _bursts(answer: Any) -> RenderableType:
    table = tables.new_table("queue pair", "bursts", "every", "lasting", "bytes", "bit/s", "CE")
    for row in answer["queue_pairs"]:
        found = row["bursts"]
        cells = [tables.NONE] * 6
        if found is not None:
            cells = [
                str(found["count"]),
                tables.duration(found["period_ns"]),
                tables.duration(found["length_ns"]),
                tables.quantity(found["bytes"]),
                tables.NONE if found["rate_bps"] is None else tables.quantity(found["rate_bps"]),
                tables.quantity(found["ce_marks"]),
            ]
        table.add_row(_name(row), *cells)
    return Group(table, _note(answer))


def _name(row: Any) -> str:
    arrow = ">" if row["direction"] == "egress" else "<"
    here = nic_id(row["host"], row["nic"]) if row["host"] else row["nic"]
    return f"{here} {arrow} {row['peer'] or row['peer_addr']} {row['qpn']}"


def _bad(count: int) -> Text:
    return Text(tables.quantity(count), "red" if count else "")


def _note(answer: Any) -> Text:
    text = (
        f"{len(answer['queue_pairs'])} of {answer['qp_count']}; > leaves, < comes, then the destination QPN"
    )
    if answer["unlisted"]:
        text += f"; {answer['unlisted']} more moved than agents list"
    return Text(text, style="dim")

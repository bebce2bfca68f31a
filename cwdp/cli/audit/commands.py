"""`cwdp audit run`, `show`, `list`, `diff`, `verdict`, `baseline`: audits that a manager makes and keeps."""

import sys
import time
from typing import Any, get_args

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.audit.options import Judged, json_option, judging, number_option
from cwdp.cli.audit.results import rendered
from cwdp.cli.client import ManagerClient
from cwdp.cli.output import emit
from cwdp.cli.reading import manager_option, why_option
from cwdp.cli.times import shown_time
from cwdp.shared.rates import parse_rate
from manager.audit.levels import Level
from manager.audit.results import Audit

LOOK_S = 0.2


@click.command()
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@click.option(
    "--level",
    type=click.Choice(get_args(Level)),
    default="facts",
    show_default=True,
    help="Facts take seconds. The network as well: a minute at most; every link is crossed by packets of the NICs' MTU. Throughput"
    " as well: a minute or two in which NICs send to each other as fast as they can, until each link was filled.",
)
@click.option(
    "--force", is_flag=True, help="Send by NICs on which queue pairs send, too: it costs them bandwidth."
)
@click.option("--cap", default="0bit", metavar="RATE", help="No flow exceeds this, such as 40gbit.")
@why_option
@judging
@manager_option
def run(
    *,
    hosts: tuple[str, ...],
    level: Level,
    force: bool,
    cap: str,
    why: str | None,
    judged: Judged,
    url: str | None,
) -> None:
    """Have hosts tell their facts, and hold these against what is expected of them.

    HOST may be a pattern, such as 'gpu*'; all hosts of the fleet unless given. The exit status is 0 where all passes, 1 where
    something fails or differs from its like, 3 where something is not known. No host is changed.
    """
    client = ManagerClient(url)
    asked = {"level": level, "hosts": list(hosts), "force": force, "cap_bps": parse_rate(cap)}
    number = client.put("/v1/audit", asked, why=why)["number"]
    _wait(client, number)
    _show(client.get("/v1/audit", {"number": number}), judged)


@click.command("show")
@number_option
@click.option("--anew", is_flag=True, help="Hold its facts against the checks of now.")
@judging
@manager_option
def show_(*, number: int | None, anew: bool, judged: Judged, url: str | None) -> None:
    """Show what an audit came to; the exit status is as that of `cwdp audit run`."""
    query = ({} if number is None else {"number": number}) | ({"anew": 1} if anew else {})
    _show(ManagerClient(url).get("/v1/audit", query), judged)


@click.command("list")
@json_option
@manager_option
def list_(*, as_json: bool, url: str | None) -> None:
    """List the audits that are kept."""
    answer = ManagerClient(url).get("/v1/audit/list")
    emit(answer, as_json=as_json, render=lambda: _list(answer))


@click.command()
@click.argument("older", type=click.IntRange(min=1), required=False)
@click.argument("newer", type=click.IntRange(min=1), required=False)
@json_option
@manager_option
def diff(*, older: int | None, newer: int | None, as_json: bool, url: str | None) -> None:
    """Show what has changed between two audits, OLDER and NEWER; the last two unless given."""
    query = {name: number for name, number in (("older", older), ("newer", newer)) if number is not None}
    answer = ManagerClient(url).get("/v1/audit/diff", query)
    emit(answer, as_json=as_json, render=lambda: _diff(answer))


@click.command()
@click.argument("host")
@judging
@manager_option
def verdict(*, host: str, judged: Judged, url: str | None) -> None:
    """Say whether HOST passed the last audit: for what starts jobs, such as Slurm's prolog. Nothing is read anew."""
    answer = ManagerClient(url).get("/v1/audit/verdict", {"host": host})
    audit = msgspec.convert(answer["audit"], Audit)
    about = f"{host}, audit {answer['number']} of {shown_time(answer['ended_s'])}"
    judged.tell(
        audit,
        answer,
        lambda: Group(Text(about, "dim"), rendered(audit)),
        title=f"{host}, audit {answer['number']}",
        ended_s=answer["ended_s"],
    )


@click.command()
@click.option(
    "--from", "host", required=True, metavar="HOST", help="A host that is as all like it ought to be."
)
@number_option
@manager_option
def baseline(*, host: str, number: int | None, url: str | None) -> None:
    """Print checks by which hosts with the same hardware are held to what HOST is.

    To be read, corrected, and put into the manager's folder of checks.
    """
    query = {"host": host} | ({} if number is None else {"number": number})
    click.echo(ManagerClient(url).get("/v1/audit/baseline", query)["checks"], nl=False)


def _wait(client: ManagerClient, number: int) -> None:
    """Until an audit is over, with a bar where standard error is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task("", total=None)
        while (now := client.get("/v1/audit/progress"))["number"] == number:
            flows = now["stage"] == "flows"
            progress.update(
                task,
                description="rounds of flows, at most"
                if flows
                else f"hosts that have told their {now['stage']}",
                completed=now["rounds" if flows else "answered"],
                total=now["most_rounds" if flows else "hosts"],
            )
            time.sleep(LOOK_S)


def _show(answer: Any, judged: Judged) -> None:
    audit = msgspec.convert(answer["audit"], Audit)
    judged.tell(
        audit,
        answer,
        lambda: Group(rendered(audit), _about(answer)),
        title=f"Audit {answer['number']} of {len(answer['hosts'])} hosts",
        ended_s=answer["ended_s"],
    )


def _about(answer: Any) -> Text:
    took_s = answer["ended_s"] - answer["began_s"]
    flows = f"{answer['flows']}\n" if answer["flows"] else ""
    return Text(
        f"{flows}audit {answer['number']} ({answer['level']}) of {len(answer['hosts'])} hosts by {answer['by']},"
        f" {shown_time(answer['ended_s'])}, in {took_s:.1f} s",
        "dim",
    )


def _list(answer: Any) -> RenderableType:
    table = tables.new_table("no.", "time", "level", "hosts", "what", "by")
    for row in answer["audits"]:
        table.add_row(
            str(row["number"]),
            shown_time(row["ended_s"]),
            row["level"],
            str(row["hosts"]),
            Text(row["said"]),
            Text(row["by"]),
        )
    return table


def _diff(answer: Any) -> RenderableType:
    lines = [Text(f"audit {answer['newer']} against audit {answer['older']}", "dim")]
    for what, style in (("new", "red"), ("gone", "green")):
        lines += [Text(f"{what}: {_line(row)}", style) for row in answer[what]]
    lines += [
        Text(f"changed: {_line(row['before'])} -> {_line(row['after'])}", "yellow")
        for row in answer["changed"]
    ]
    lines += [
        Text(f"{row['host']} {row['subject']} {row['fact']}: {row['before']} -> {row['after']}")
        for row in answer["facts"]
    ]
    return Group(*(lines if len(lines) > 1 else [*lines, Text("nothing has changed")]))


def _line(row: Any) -> str:
    where = f"{row['host']} {row['subject']}".strip()
    return f"{where}: {row['check']} {row['verdict']}: {row['found'] or row['reason']}"

"""`cwdp top`: the fleet in one screen, live, for who has only a terminal."""

import signal
import time
from datetime import datetime
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cwdp.cli import tables
from cwdp.cli.client import ManagerClient
from cwdp.cli.cluster.screen import LEAST_SECTION, Column, Section, fitted, harmless, room, wrapped
from cwdp.cli.output import console, emit
from cwdp.errors import ManagerError

SEVERITY_STYLES = {
    "ok": "green",
    "info": "",
    "warning": "yellow",
    "critical": "bold red",
    "unknown": "yellow",
}
STATE_STYLES = {"ok": "green", "full": "yellow", "unknown": "dim", "avoided": "yellow", "suspected": "yellow"}
VERDICT_LINES, TITLE_LINES, NOTICE_LINES = 3, 2, 2
UNLIMITED = 1_000
"""Lines, where the output is no terminal."""


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Show it anew so often.",
)
@click.option("--once", is_flag=True, help="Print it once and end, as where the output is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and end.")
@click.option(
    "--manager",
    "url",
    envvar="CWDP_MANAGER",
    metavar="URL",
    help="unix:///PATH or https://HOST:PORT; else the only manager on this host.",
)
def top(*, interval: float, once: bool, as_json: bool, url: str | None) -> None:
    """Show the whole in one screen until ctrl-c: a verdict, what is wrong and what to do, what is worst, jobs."""
    out = console()
    if as_json or once or not out.is_terminal:
        answer = _ask(url)
        emit(answer, as_json=as_json, render=lambda: screen(answer, out.width, _lines(out)))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _watch(out, url, interval)
    except KeyboardInterrupt:
        return


def _ask(url: str | None) -> Any:
    return ManagerClient(url).get("/v1/fleet")


def _lines(out: Console) -> int:
    return out.height - 1 if out.is_terminal else UNLIMITED


def _watch(out: Console, url: str | None, interval_s: float) -> None:
    """In place, again and again; while nobody answers, what was known last."""
    answer: Any = None
    heard_s = time.monotonic()
    with Live(Text("asking the manager"), console=out, auto_refresh=False, screen=True) as live:
        while True:
            trouble = None
            try:
                answer = _ask(url)
                heard_s = time.monotonic()
            except ManagerError as error:
                trouble = error
            live.update(frame(answer, trouble, time.monotonic() - heard_s, out), refresh=True)
            time.sleep(interval_s)


def frame(answer: Any, trouble: ManagerError | None, silent_s: float, out: Console) -> RenderableType:
    """One screen.

    Args:
        answer: of `/v1/fleet`, the last one; None while there was none.
        trouble: why there is no newer one, None if it is new.
        silent_s: since the last answer, or the start.
        out: where it is shown.
    """
    if trouble is None:
        return screen(answer, out.width, _lines(out))
    said = [trouble.message, *trouble.hint.splitlines()]
    said.append(f"Trying again; no answer for {silent_s:.0f} s." + (" Below is the last." if answer else ""))
    words = [Text(line, "bold red") for part in said for line in wrapped(harmless(part), out.width)]
    words = words[: _lines(out)]
    if answer is None:
        return Group(*words)
    below = screen(answer, out.width, max(_lines(out) - len(words), 0))
    for line in below.renderables:
        if isinstance(line, Text):
            line.stylize("dim")
    return Group(*words, below)


def screen(answer: Any, width: int, lines: int) -> Group:
    """What `/v1/fleet` answered, in so many columns and lines at most."""
    head = [_headline(answer, width), *_verdict(answer, width), *_notices(answer, width)][:lines]
    sections = [_links(answer), _queue_pairs(answer), _jobs(answer)]
    sections = [section for section in sections if section.rows]
    found = [_finding(finding, width) for finding in answer["findings"]]
    found_room, rooms = room(
        lines - len(head), [len(lines_of) for lines_of in found], [len(section.rows) for section in sections]
    )
    body = _findings(found, answer["finding_count"], found_room, width)
    for section, rows in zip(sections, rooms, strict=True):
        body += section.lines(width, rows)
    return Group(*head, *body)


def _headline(answer: Any, width: int) -> Text:
    hosts, nics, clocks = answer["hosts"], answer["nics"], answer["clocks"]
    facts = [harmless(answer["cluster"])]
    if hosts is not None:
        facts.append(f"{hosts['up']} hosts" + _but(hosts, "lost"))
    facts.append(f"{tables.quantity(nics['probed'])}/{tables.quantity(nics['known'])} NICs probed")
    facts.append(f"{tables.quantity(answer['queue_pairs'])} QPs")
    if clocks is not None:
        facts.append(f"{clocks['synced']} clocks" + _but(clocks, "holdover", "unsynced", "set_aside"))
    when = f"{datetime.fromtimestamp(answer['at_s']).astimezone():%H:%M:%S}"
    said = fitted(", ".join(facts), max(width - len(when) - 1, 0))
    return Text(f"{said:<{max(width - len(when), 0)}}{when}"[:width], "bold")


def _but(counts: Any, *names: str) -> str:
    told = [f"{counts[name]} {name.replace('_', ' ')}" for name in names if counts.get(name)]
    return f" ({', '.join(told)})" if told else ""


def _verdict(answer: Any, width: int) -> list[Text]:
    style = SEVERITY_STYLES.get(answer["verdict"]["severity"], "")
    return [Text(line, style) for line in wrapped(harmless(answer["verdict"]["text"]), width, VERDICT_LINES)]


def _notices(answer: Any, width: int) -> list[Text]:
    """Those that the verdict does not tell of."""
    told = [notice["text"] for notice in answer["notices"] if notice["severity"] == "info"]
    return [Text(fitted(harmless(text), width), "dim") for text in told[:NOTICE_LINES]]


def _findings(found: list[list[Text]], count: int, room_lines: int, width: int) -> list[Text]:
    """As many as there is room for below a title, all but the first of them whole."""
    if not found or room_lines < LEAST_SECTION:
        return []
    shown = [found[0][: room_lines - 1]]
    while found[len(shown) :] and 1 + sum(map(len, shown)) + len(found[len(shown)]) <= room_lines:
        shown.append(found[len(shown)])
    of = f" ({len(shown)} of {count})" if len(shown) < count else ""
    title = Text(fitted(f"findings{of}, and what to do", width), "bold")
    return [title, *(line for each in shown for line in each)]


def _finding(finding: Any, width: int) -> list[Text]:
    """What it is, whom it touches, and the first thing to do; the command whole, for who copies it."""
    touches = finding["touches"]
    whom = [f"{touches['queue_pairs']} QPs"] if touches["queue_pairs"] else []
    whom += ["jobs " + ", ".join(touches["jobs"])] if touches["jobs"] else []
    told = f"{finding['severity']}: {finding['title']}" + (f" ({'; '.join(whom)})" if whom else "")
    style = SEVERITY_STYLES.get(finding["severity"], "")
    lines = [Text(line, style) for line in wrapped(harmless(told), width, TITLE_LINES)]
    steps = [step["command"] or step["text"] for step in finding["act"][:1]]
    lines += [Text(line) for step in steps for line in wrapped(harmless(step), width, indent="  ")]
    return lines


def _links(answer: Any) -> Section:
    columns = (Column("state", left=True), *map(Column, ("p50", "p99", "bit/s", "share", "loss")))
    rows = [
        (
            Text(harmless(f"{row['a']} > {row['b']}")),
            Text(row["state"].replace("_", " "), STATE_STYLES.get(row["state"], "red")),
            *(Text(tables.duration(row[key])) for key in ("queue_p50_ns", "queue_p99_ns")),
            Text(tables.quantity(row["load_bps"])),
            *(Text(tables.share(row[key])) for key in ("share", "loss")),
        )
        for row in answer["worst_links"]
    ]
    return Section("worst links", columns, rows)


def _queue_pairs(answer: Any) -> Section:
    columns = tuple(map(Column, ("QPN", "p99 - min", "p99", "bit/s", "port", "job")))
    rows = [
        (
            Text(harmless(f"{row['host']}/{row['nic']} > {row['peer'] or row['peer_addr']}")),
            Text(str(row["qpn"])),
            Text(tables.duration(row["spread_ns"])),
            Text(tables.duration(row["owd"] and row["owd"]["p99_ns"])),
            Text(tables.quantity(row["bps"])),
            Text(str(row["sport"])),
            Text(harmless(row["job"] or tables.NONE)),
        )
        for row in answer["slowest_queue_pairs"]
    ]
    return Section("slowest queue pairs", columns, rows)


def _jobs(answer: Any) -> Section:
    columns = tuple(map(Column, ("hosts", "QPs", "bit/s", "slowest", "findings")))
    rows = [
        (
            Text(harmless(row["name"]) + (" (inferred)" if row["is_inferred"] else "")),
            *(Text(str(row[key])) for key in ("hosts", "queue_pairs")),
            Text(tables.quantity(row["bps"])),
            Text(tables.duration(row["spread_ns"])),
            Text(str(row["findings"]), "red" if row["findings"] else ""),
        )
        for row in answer["jobs"]
    ]
    return Section("jobs", columns, rows)

"""One link, one queue pair: what crosses it, what it crosses, and what happened there. No I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from manager.fabric.routes import is_nic
from manager.moment.moment import Moment
from manager.overview import advice, job_views
from manager.overview.qp_rows import QpRows, place_of
from manager.placement.flows import QpName
from manager.view.json_values import Json
from manager.view.link_table import Link

MOST_EVENTS = 100
MOST_PAIRS = 100


def link_view(moment: Moment, a: str, b: str, events: Sequence[Json], rows: QpRows) -> Json | None:
    """One link, this way first; None where neither way is known."""
    table, ways = moment.links, [(a, b), (b, a)]
    if not any(way in table.number for way in ways):
        return None
    places = moment.talkers.crossing([(a, b)]).tolist()
    crossing = set(moment.talkers.jobs_of(places))
    found = advice.of_links(moment, ways)
    steps = [step for each in found for step in each["act"]]
    if not steps and places and moment.is_live:
        steps = advice.steer_step(places[0], [(a, b)], moment)
    return {
        "there": table.row_of(a, b),
        "back": table.row_of(b, a) if (b, a) in table.number else None,
        "findings": found,
        "events": [each for each in events if concerns(each, a, b)][-MOST_EVENTS:],
        "queue_pairs": rows.rows(places[:MOST_PAIRS]),
        "queue_pair_count": len(places),
        "jobs": job_views.jobs(moment, rows, only=crossing),
        "is_avoided": any(way in moment.parts.avoided for way in ways),
        "act": _once(steps),
    }


@dataclass(frozen=True, kw_only=True)
class QpRecord:
    """What is known of a queue pair besides its counters.

    Attributes:
        events: of its host.
        moves: what the planner wanted of it.
        backup_sport: the source port of its backup, None for none.
        bound_of: how far off a host's clock is at most, in ns; None where that is not known.
    """

    events: Sequence[Json] = ()
    moves: Sequence[Json] = ()
    backup_sport: int | None = None
    bound_of: Callable[[str], float | None] = lambda _host: None


def qp_view(moment: Moment, name: QpName, rows: QpRows, record: QpRecord) -> Json | None:
    """One queue pair, whether it sends or not; None where it is not known."""
    row = rows.of(name)
    if row is None:
        return None
    ways = moment.routes.ports(name.src, name.dst_addr)
    dst = row["peer"] or name.dst_addr
    if moment.is_live:
        path = _links(moment, ways.get(row["sport"], ()))
    else:
        path = moment.talkers.path(moment.talkers.number[name])
    backup = record.backup_sport
    bounds = [record.bound_of(host) for host in (name.host, dst.partition("/")[0])]
    known = [bound for bound in bounds if bound is not None]
    found = [each for each in advice.findings(moment) if _touches(each, name, dst, path)]
    return {
        "queue_pair": row,
        "job": row["job"],
        "path": _path(moment, row["sport"], path),
        "backup": None if backup is None else _path(moment, backup, _links(moment, ways.get(backup, ()))),
        "ways": len(set(ways.values())) if moment.is_live else None,
        "clock_bound_ns": round(sum(known)) if len(known) == len(bounds) else None,
        "moves": list(record.moves),
        "events": [each for each in record.events if each["nic"] in (None, name.nic)][-MOST_EVENTS:],
        "findings": found,
        "back": _back(moment, name, dst),
        "process": row.get("process"),
        "act": _once([step for each in found for step in each["act"]]) or _steer(moment, name, path),
    }


def concerns(event: Json, a: str, b: str) -> bool:
    """Whether an event is about a link between two nodes."""
    nics = [end for end in (a, b) if is_nic(end)]
    if any(f"{event['host']}/{event['nic']}" == nic for nic in nics):
        return True
    words = event["detail"].replace(",", " ").replace(":", " ").split()
    return all(end in words for end in (a, b))


def _path(moment: Moment, sport: int, path: Sequence[Link]) -> Json:
    return {"sport": sport, "hops": [moment.links.row_of(*link) for link in path], "is_known": bool(path)}


def _links(moment: Moment, numbers: Sequence[int]) -> list[Link]:
    return [moment.routes.links[number] for number in numbers]


def _touches(finding: Json, name: QpName, dst: str, path: Sequence[Link]) -> bool:
    subjects = finding["subject"], *finding["also"]
    ends = {name.src, name.host, dst, dst.partition("/")[0]}
    return bool(set(path) & set(advice.links_of(finding))) or any(
        subject["kind"] in ("host", "nic") and subject["name"] in ends for subject in subjects
    )


def _back(moment: Moment, name: QpName, dst: str) -> Json | None:
    """A queue pair of the far end that sends back to this NIC; null where there is none, or more than one."""
    talkers = moment.talkers
    back = [
        each
        for each, to in zip(talkers.names, talkers.dst, strict=True)
        if each.src == dst and to == name.src
    ]
    return place_of(back[0]) if len(back) == 1 else None


def _steer(moment: Moment, name: QpName, path: Sequence[Link]) -> list[Json]:
    """A way off its worst link, where one is in trouble."""
    trouble = [link for link in path if moment.links.row_of(*link)["state"] not in ("ok", "unknown")]
    i = moment.talkers.number.get(name)
    return advice.steer_step(i, trouble, moment) if i is not None and trouble and moment.is_live else []


def _once(steps: Sequence[Json]) -> list[Json]:
    return [step for i, step in enumerate(steps) if step not in steps[:i]]

"""Jobs: who is in them, how fast and how slow they are, what touches them. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from cwdp.shared.bus.messages import host_of
from manager.fabric.routes import is_nic
from manager.hosts.order import in_order
from manager.moment.moment import Moment
from manager.overview import advice
from manager.overview.qp_rows import QpRows
from manager.view.json_values import Json, rounded
from manager.view.link_table import Link

MOST_JOBS = 200
MOST_PAIRS = 50
SAMPLED = 64
"""Of a job's queue pairs, the fastest, to see which is slowest."""


def jobs(
    moment: Moment, rows: QpRows, most: int = MOST_JOBS, only: Collection[str] | None = None
) -> list[Json]:
    """Jobs, those first that findings touch, then by rate.

    Args:
        moment: when.
        rows: of queue pairs.
        most: so many at most.
        only: of these names; of any where None.
    """
    touching = Counter(
        name
        for finding in moment.findings
        for name in moment.talkers.jobs_of(advice.touched(finding, moment).tolist())
    )
    places = {name: mine for name, mine in _places(moment).items() if only is None or name in only}
    rates = moment.talkers.rate_bps
    order = sorted(
        places, key=lambda name: (-touching[name], -float(np.nansum(rates[np.asarray(places[name])])))
    )
    return [_job(moment, name, places[name], touching[name], rows) for name in order[:most]]


def job(moment: Moment, name: str, rows: QpRows) -> Json | None:
    """One job; None where there is none of that name."""
    places = moment.talkers.jobs.flows_of(name)
    if not places:
        return None
    chosen = np.isin(moment.talkers.fastest, places)
    fastest = moment.talkers.fastest[chosen].tolist()
    touching = [each for each in advice.findings(moment) if name in each["touches"]["jobs"]]
    return {
        **_job(moment, name, places, len(touching), rows),
        "members": _members(moment, name, places),
        "slowest": rows.slowest(fastest, MOST_PAIRS),
        "findings": touching,
        "shares_with": _shares(moment, name, places),
    }


def _places(moment: Moment) -> dict[str, list[int]]:
    found = defaultdict[str, list[int]](list)
    of_flow = moment.talkers.jobs.of_flow
    for i in moment.talkers.fastest.tolist():
        found[of_flow[i]].append(i)
    return found


def _job(moment: Moment, name: str, places: Sequence[int], touching: int, rows: QpRows) -> Json:
    talkers = moment.talkers
    spreads = [spread for i in places[:SAMPLED] if (spread := rows.spread_ns(i)) is not None]
    return {
        "name": name,
        "is_inferred": name not in talkers.jobs.told,
        "hosts": len(talkers.jobs.hosts[name]),
        "nics": len({talkers.names[i].src for i in places} | {talkers.dst[i] for i in places}),
        "queue_pairs": len(places),
        "bps": rounded(float(np.nansum(talkers.rate_bps[np.asarray(places)]))),
        "spread_ns": max(spreads, default=None),
        "findings": touching,
    }


def _members(moment: Moment, name: str, places: Sequence[int]) -> list[Json]:
    talkers, nics = moment.talkers, defaultdict[str, set[str]](set)
    egress, ingress = defaultdict[str, float](float), defaultdict[str, float](float)
    for i in places:
        source, dst, rate_bps = talkers.names[i], talkers.dst[i], float(np.nan_to_num(talkers.rate_bps[i]))
        nics[source.host].add(source.src)
        egress[source.host] += rate_bps
        peer = host_of(dst) or dst
        nics[peer].add(dst)
        ingress[peer] += rate_bps
    return [
        {
            "host": host,
            "nics": in_order(nics[host]),
            "egress_bps": round(egress[host]),
            "ingress_bps": round(ingress[host]),
        }
        for host in talkers.jobs.hosts[name]
    ]


def _shares(moment: Moment, name: str, places: Sequence[int]) -> list[Json]:
    """Links that other jobs cross too, the fullest first."""
    talkers, table = moment.talkers, moment.links
    mine = {link for i in places for link in talkers.path(i) if not any(is_nic(end) for end in link)}
    others = defaultdict[Link, set[str]](set)
    for i, job_name in enumerate(talkers.jobs.of_flow):
        if job_name != name:
            for link in mine.intersection(talkers.path(i)):
                others[link].add(job_name)
    rows = sorted((table.row_of(*link) for link in others), key=lambda row: -(row["share"] or 0))
    return [
        {"job": other, "link": row}
        for row in rows[:MOST_PAIRS]
        for other in in_order(others[row["a"], row["b"]])
    ]

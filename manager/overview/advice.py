"""Findings in words: how grave, what it is, where to look, whom it touches, what to do. No I/O."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from manager.fabric.routes import MARK, Routes, is_nic
from manager.moment.moment import Moment
from manager.placement.flows import QpName
from manager.view.json_values import Json
from manager.view.link_table import Link
from manager.view.severity import severity, severity_rank

MOST = 500
BEFORE_S = 3_600.0
TITLES: Mapping[str, str] = {
    "dead": "{name} is down",
    "silent": "{name} drops everything, though it has carrier",
    "lossy": "{name} drops {loss} of its packets",
    "slow": "{name} carries less than its like",
    "flapping": "{name} goes and comes back again and again",
    "slow_sender": "{name} sends slowly: packets wait at its end of the link",
    "slow_receiver": "{name} takes packets slowly: they wait for it",
    "degraded": "{name} was trained to less than it could carry",
    "bit_errors": "{name} garbles bits",
    "congested": "others wait for {name}",
    "counters": "the counters of {name} cannot be read",
    "clock": "the clock of {name} disagrees with its peers",
    "contention": "{jobs} jobs share {name}, which is full",
}
REPAIR: Mapping[str, str] = {
    "dead": "Check the cable, the port and the switch.",
    "silent": "Check optics, and whether the port is blocked or misprogrammed.",
    "lossy": "Read the error counters at both ends; clean or replace the optics and the cable.",
    "slow": "Compare the negotiated rate, lanes and policers with other links.",
    "flapping": "Check optics and cable; take the port out of service until it is mended.",
    "slow_sender": "Look at the host: interrupts, PCIe width and speed, PFC storms.",
    "slow_receiver": "Look at the host: interrupts, PCIe width and speed, memory, PFC storms.",
    "degraded": "Reseat or replace the cable; compare widths and speeds that both ports have enabled.",
    "bit_errors": "Clean or replace the optics and the cable; then the port of the sending end.",
    "congested": "Look at who sends over it; another LID of the receiver or another placement takes load off it.",
    "counters": "Clear the port's counters, as with `perfquery -R`.",
    "clock": "Look at the host's clock and what disciplines it.",
}


def findings(moment: Moment) -> list[Json]:
    """All findings of a moment in words, full links that jobs share among them; the gravest first, at most `MOST`."""
    found = [_in_words(each, moment) for each in (*moment.findings, *_contention(moment))]
    found.sort(
        key=lambda each: (
            severity_rank(each["severity"]),
            -each["touches"]["queue_pairs"],
            each["start_s"] or 0.0,
        )
    )
    return found[:MOST]


def of_links(moment: Moment, links: Sequence[Link]) -> list[Json]:
    """The findings about any of some links, as what is wrong or as what it may be."""
    wanted = set(links)
    about = [each for each in (*moment.findings, *_contention(moment)) if wanted & set(links_of(each))]
    return [_in_words(each, moment) for each in about]


def links_of(finding: Json) -> list[Link]:
    """The directed links that a finding is, or may be, about."""
    return [(a, b) for subject in (finding["subject"], *finding["also"]) for a, b in subject["links"]]


def touched(finding: Json, moment: Moment) -> NDArray[np.intp]:
    """The queue pairs that cross what a finding is about, or begin or end there; the fastest first."""
    subjects = finding["subject"], *finding["also"]
    ends = [subject["name"] for subject in subjects if subject["kind"] in ("host", "nic")]
    if ends:
        return moment.talkers.at(ends)
    return moment.talkers.crossing(links_of(finding))


def moves_off(name: QpName, sport: int, links: Collection[Link], routes: Routes) -> str | None:
    """The command that takes a queue pair off some links; None where no known path avoids them."""
    for port, path in sorted(routes.ports(name.src, name.dst_addr).items()):
        if port != sport and not any(routes.links[number] in links for number in path):
            where = ["--host", name.host, "--dev", name.nic, "--dst", name.dst_addr, "--qpn", str(name.qpn)]
            return shlex.join(["cwdp", "steer", "set", *where, "--sport", str(port)])
    return None


def steer_step(i: int, links: Sequence[Link], moment: Moment) -> list[Json]:
    """How to take one queue pair off some links, if there is a way."""
    name, bad = moment.talkers.names[i], {*links, *moment.links.wrong, *moment.links.avoided}
    command = moves_off(name, int(moment.talkers.sport[i]), bad, moment.routes)
    if command is None:
        return []
    return [
        {"command": command, "text": f"Move the queue pair {name.src} to {moment.talkers.dst[i]} off it."}
    ]


def _in_words(finding: Json, moment: Moment) -> Json:
    places = touched(finding, moment)
    jobs = moment.talkers.jobs_of(places.tolist())
    subject, kind = finding["subject"], finding["kind"]
    alternatives = " or ".join([subject["name"], *(also["name"] for also in finding["also"])])
    title = TITLES.get(kind, "{name}: " + kind).format(
        name=alternatives, loss=f"{100 * finding['loss']:.3g} %", jobs=len(jobs)
    )
    return {
        **finding,
        "severity": severity(kind),
        "title": title,
        "where": place_of(subject),
        "act": _act(finding, places, moment),
        "touches": {"queue_pairs": len(places), "jobs": jobs},
    }


def place_of(subject: Json) -> Json:
    """The page about a subject."""
    kind, links = subject["kind"], subject["links"]
    if kind == "host":
        return {"page": "host", "name": subject["name"]}
    if kind == "nic":
        return {"page": "host", "name": subject["name"].rpartition("/")[0]}
    if kind == "switch" or not links:
        return {"page": "leaf", "name": subject["name"]}
    a, b = links[0]
    return {"page": "link", "a": a, "b": b}


def _act(finding: Json, places: NDArray[np.intp], moment: Moment) -> list[Json]:
    steps: list[Json] = []
    links, kind, subject = links_of(finding), finding["kind"], finding["subject"]
    if moment.is_live and links and len(places) and subject["kind"] not in ("host", "nic"):
        steps += steer_step(int(places[0]), links, moment)
    if not moment.links.avoided.isdisjoint(links):
        steps.append(
            {
                "command": _see("qp_rerouted", moment),
                "text": "Queue pairs are kept off it: see which were moved.",
            }
        )
    if kind == "slow" and moment.is_live and not len(places):
        steps.append(
            {
                "command": _see("qp_moved", moment),
                "text": "Nothing crosses it now: see which queue pairs were moved.",
            }
        )
    if kind == "clock":
        steps.append({"command": shlex.join(["cwdp", "clock"]), "text": "See how far off it is."})
    elif subject["kind"] in ("host", "nic") and not subject["name"].startswith(MARK):
        host = subject["name"].partition("/")[0]
        steps.append({"command": shlex.join(["cwdp", "host", host]), "text": "See what its agent counts."})
    if kind in REPAIR:
        steps.append({"command": None, "text": REPAIR[kind]})
    return steps


def _see(kind: str, moment: Moment) -> str:
    """The command that lists the moves of a kind within the hour before."""
    span = ["--since", "1h"]
    if not moment.is_live:
        times = (datetime.fromtimestamp(moment.at_s + add, UTC) for add in (-BEFORE_S, 1.0))
        since, until = (f"{each:%Y-%m-%dT%H:%M:%S}Z" for each in times)
        span = ["--since", since, "--until", until]
    return shlex.join(["cwdp", "event", *span, "--kind", kind])


def _contention(moment: Moment) -> list[Json]:
    """Full links that several jobs share."""
    table, found = moment.links, []
    for i in np.flatnonzero(table.stands).tolist():
        a, b = table.names[i]
        if (a, b) in table.wrong or is_nic(a) or is_nic(b):
            continue
        jobs = moment.talkers.jobs_of(moment.talkers.crossing([(a, b)]).tolist())
        if len(jobs) > 1:
            subject = {"kind": "direction", "name": f"{a} > {b}", "links": [[a, b]]}
            found.append(_shared(subject))
    return found


def _shared(subject: Json) -> Json:
    return {
        "number": None,
        "kind": "contention",
        "subject": subject,
        "also": [],
        "confidence": 1.0,
        "loss": 0.0,
        "evidence": ["its queue has not emptied of late, and queue pairs of several jobs cross it"],
        "start_s": None,
        "end_s": None,
    }

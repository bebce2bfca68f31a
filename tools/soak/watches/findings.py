"""What the manager that leads finds wrong in the fabric."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cwdp.cli.output import progress
from cwdp.errors import ManagerError
from tools.lab import Lab
from tools.soak.judge import Fault, Link, Seen
from tools.soak.schedule import CALM_S
from tools.soak.stage import Stage
from tools.soak.troubles import KINDS, Trouble
from tools.soak.watches.leaders import LeaderWatch
from tools.soak.watches.looking import Watch

EVERY_S = 0.25

Json = dict[str, Any]


class FindingWatch(Watch):
    """Asks whoever leads.

    Attributes:
        seen: every finding by who found it, its number and its start.
        looks, blind: how often it was asked, and how often nobody led or answered.
    """

    def __init__(self, stage: Stage, leaders: Sequence[LeaderWatch]) -> None:
        super().__init__(EVERY_S)
        self._stage, self._leaders = stage, leaders
        self.seen: dict[tuple[str, int, float], Seen] = {}
        self.looks = self.blind = 0

    def look(self) -> None:
        """Ask for what holds now."""
        self.looks += 1
        name = next((watch.manager for watch in self._leaders if watch.leads), None)
        try:
            findings = self._stage.client(name).get("/v1/link", {"limit": 1})["findings"] if name else None
        except ManagerError:
            findings = None
        if name is None or findings is None:
            self.blind += 1
            return
        now_s = self._stage.now_s
        for finding in findings:
            key = (name, int(finding["number"]), float(finding["start_s"]))
            before = self.seen.get(key)
            if before is None:
                progress(f"{now_s:6.0f} s  found: {_told(finding)}: {'; '.join(finding['evidence'])}")
            self.seen[key] = (
                _seen(finding, self._stage, now_s)
                if before is None
                else replace(_seen(finding, self._stage, now_s), first_s=before.first_s)
            )


def _seen(finding: Json, stage: Stage, now_s: float) -> Seen:
    subject = finding["subject"]
    host = subject["name"].partition("/")[0] if subject["kind"] in ("host", "nic") else ""
    subjects = tuple(
        frozenset((str(a), str(b)) for a, b in each["links"]) for each in (subject, *finding["also"])
    )
    start_s = float(finding["start_s"]) - stage.start_unix_s
    return Seen(finding["kind"], _told(finding), subjects, host, start_s, now_s, now_s)


def _told(finding: Json) -> str:
    names = " or ".join(subject["name"] for subject in (finding["subject"], *finding["also"]))
    return f"{finding['kind'].replace('_', ' ')} {names}"


def faults_of(lab: Lab, done: Sequence[Trouble]) -> list[Fault]:
    """The links that were at fault, of troubles as they were done."""
    control = [(each.begin_s, each.end_s) for each in done if _is_of_control(each)]

    def fault(trouble: Trouble) -> Fault:
        within_s = KINDS[trouble.kind].named_within_s or 0.0
        hit = any(
            begin_s < trouble.begin_s + within_s and trouble.begin_s < end_s + CALM_S
            for begin_s, end_s in control
        )
        link = lab.topology.link(trouble.target)
        ends = tuple(_node(lab, a.node, b.node) for a, b in ((link.a, link.b), (link.b, link.a)))
        host = link.a.node if link.a.node in lab.topology.nics else ""
        links: frozenset[Link] = frozenset({(ends[0], ends[1]), (ends[1], ends[0])})
        return Fault(trouble.kind, trouble.told, links, host, trouble.begin_s, trouble.end_s, hit)

    return [fault(each) for each in done if each.kind in KINDS and KINDS[each.kind].may_be_named]


def _is_of_control(trouble: Trouble) -> bool:
    return trouble.kind not in KINDS or KINDS[trouble.kind].whom in ("manager", "server")


def _node(lab: Lab, node: str, peer: str) -> str:
    """As discovery names it."""
    if node in lab.topology.switches:
        return str(lab.topology.router_addresses(node)[0])
    nic = next(nic for nic in lab.host(node).nics if nic.leaf == peer)
    return f"{node}/{nic.name}"

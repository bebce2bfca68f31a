"""Audits of fleets that never were, as the manager's `Audits` tells of them: made by the checks of this tree."""

import time
from dataclasses import dataclass, field
from functools import cache
from random import Random

from msgspec.structs import replace

from cwdp.errors import ManagerError
from cwdp.shared.audit.facts import HostFacts
from manager.audit.checks.loading import load_checks
from manager.audit.judging.judge import judge
from manager.audit.results import Audit, Result
from manager.audit.service.kept import Finished
from manager.audit.service.network import NOTHING
from manager.audit.service.service import Progress
from manager.audit.today import today
from tools.sim.audit.faults import seed_fault
from tools.sim.audit.fleet import fleet

HOSTS = 96
SILENT = "h100-099"
EARLIER = ["old firmware", "flapping", "another kernel"]
LATER = ["another mtu", "pcie at half width", "no carrier", "powersave", "old firmware", "errors grow"]
EARLIER_S = 7200.0


@dataclass
class Audits:
    """What the manager's answers ask of its audits and their files; in memory."""

    kept: list[Finished]
    under_way: Progress | None = None
    facts: dict[int, list[HostFacts]] = field(default_factory=dict)

    @property
    def latest(self) -> Finished | None:
        return self.kept[-1] if self.kept else None

    @property
    def files(self) -> "Audits":
        return self

    def progress(self) -> Progress | None:
        return self.under_way

    def numbers(self) -> list[int]:
        return [each.number for each in self.kept]

    def read(self, number: int) -> Finished:
        for each in self.kept:
            if each.number == number:
                return each
        raise ManagerError(f"there is no audit {number} here", "`cwdp audit list` shows those that are kept")


def finished(audit: Audit, number: int, *, ended_s: float | None = None) -> Finished:
    """An audit as it is kept."""
    end_s = time.time() - 600 if ended_s is None else ended_s
    return Finished(
        number=number,
        level="facts",
        by="operator of <b>nights</b>",
        began_s=end_s - 3.2,
        ended_s=end_s,
        hosts=sorted(audit.hosts),
        audit=audit,
        network=NOTHING,
    )


def two_audits(hostile: str) -> Audits:
    """An earlier and a later one of the same hosts; one of them is called so, and has a kernel that is called so."""
    now_s, (earlier, later) = time.time(), _judged(hostile)
    return Audits([finished(earlier, 6, ended_s=now_s - EARLIER_S), finished(later, 7, ended_s=now_s - 600)])


@cache
def _judged(hostile: str) -> tuple[Audit, Audit]:
    facts = [_named(each, hostile) if each.host == "h100-002" else each for each in fleet(HOSTS, 5)]
    checks = load_checks()
    earlier = judge(checks, _with_faults(facts, EARLIER), today=today())
    return earlier, judge(checks, _with_faults(facts, LATER * 2), today=today(), silent={SILENT})


def _named(facts: HostFacts, name: str) -> HostFacts:
    subjects = [
        replace(each, facts={**each.facts, "kernel_release": name}) if each.kind == "host" else each
        for each in facts.subjects
    ]
    return replace(facts, host=name, subjects=subjects)


def _with_faults(facts: list[HostFacts], names: list[str]) -> list[HostFacts]:
    rng = Random(3)
    for name in names:
        facts, _ = seed_fault(facts, name, rng)
    return facts


def large_audit(hosts: int, checks: int) -> Audit:
    """Each host fails each of so many checks, and each time otherwise."""
    names = [f"gpu{number:05}" for number in range(hosts)]
    results = [
        Result(
            check=f"check-{check:03}",
            host=name,
            subject=f"ens{check % 8}",
            verdict="fail",
            severity="fail",
            found=f"{number}" if check % 2 else "1500",
            expected="9000",
            why="packets are lost",
            mend="ip link set NIC mtu 9000",
        )
        for check in range(checks)
        for number, name in enumerate(names)
    ]
    return Audit(
        results=results, hosts=dict.fromkeys(names, 100), passed={"a": 100 * hosts}, not_applicable={}
    )

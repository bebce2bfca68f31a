"""The result of a soak as plain data, of all that was watched."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tools.lab import Lab
from tools.soak import verdicts
from tools.soak.judge import judge
from tools.soak.traffic import Traffic
from tools.soak.troubles import Trouble
from tools.soak.verdicts import Check
from tools.soak.watches.clocks import ClockWatch, SteeringWatch
from tools.soak.watches.findings import FindingWatch, faults_of
from tools.soak.watches.holdings import HoldingsWatch
from tools.soak.watches.leaders import LeaderWatch

SECOND_HALF = 0.5

Json = dict[str, Any]


@dataclass(frozen=True)
class Watches:
    """All of them."""

    leaders: Sequence[LeaderWatch]
    findings: FindingWatch
    clocks: ClockWatch
    steering: SteeringWatch
    holdings: HoldingsWatch

    def check(self) -> None:
        """Raise what has ended one."""
        for watch in (*self.leaders, self.findings, self.clocks, self.steering, self.holdings):
            watch.check()


def summary(
    lab: Lab,
    watches: Watches,
    done: Sequence[Trouble],
    moved: Traffic,
    whole: Sequence[Check],
    *,
    starts: Mapping[str, Sequence[float]],
    seconds: float,
) -> Json:
    """Checks and figures.

    Args:
        lab: where it was.
        watches: which have ended.
        done: troubles as they were done.
        moved: what became of the queue pairs.
        whole: checks of what was looked at once it was over.
        starts: when each host's agents began to run.
        seconds: it lasted.
    """
    hosts, half_s = [host.name for host in lab.hosts], SECOND_HALF * seconds
    spans = [each for watch in watches.leaders for each in watch.led]
    findings, steering = watches.findings, watches.steering
    of_clocks, clocks = verdicts.clock_checks(watches.clocks, hosts, done, starts)
    of_leaders, leaders = verdicts.leader_checks(spans, done, seconds)
    of_findings, named = verdicts.finding_checks(judge(faults_of(lab, done), list(findings.seen.values())))
    of_processes, held = verdicts.holding_checks(watches.holdings, half_s)
    of_stores, stores = verdicts.store_checks(watches.holdings, half_s)
    checks = [
        *of_clocks,
        *of_leaders,
        *verdicts.steering_checks(steering),
        *verdicts.traffic_checks(moved),
        *of_findings,
        *whole,
        *of_processes,
        *of_stores,
    ]
    return {
        "troubles": [asdict(each) for each in sorted(done, key=lambda each: each.begin_s)],
        "checks": [asdict(check) for check in checks],
        "clocks": clocks,
        "leaders": leaders,
        "findings": named | {"looks": findings.looks, "blind": findings.blind},
        "steering": {"looks": steering.looks, "lost": len(steering.lost_s)},
        "traffic": asdict(moved) | {"lost": len(moved.failed) + len(moved.unacknowledged)},
        "holdings": held,
        "stores": stores,
    }

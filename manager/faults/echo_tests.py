"""Tells links apart that no probe between hosts can, by echoes off the switches between them. No I/O.

Below two leaves every path over a spine crosses both of its links. An echo from a host to the spine's own address
crosses one of them, to and fro; hosts below the other leaf try the other. Which link is at fault is decided by
likelihood, and only while it is: where switches do not answer, both stay named. A link higher up cannot be tried, as
nobody knows which way echoes take to it; it is what is left where those that can be tried lose nothing.
"""

import itertools
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cwdp.shared.bus.messages import BounceOrder, BounceReport
from manager.fabric.routes import DirectedLink, is_between_switches, is_nic
from manager.faults.finding import Finding, Subject, cable

HOSTS_A_LINK = 4
ECHOES = 100
ROUND_S = 0.4
DEADLINE_S = 1.0
"""After which a round whose reports are missing is given up, and another one begun."""

MOST_ROUNDS = 12
MOST_AT_ONCE = 4
HEALTHY_LOSS = 1e-3
SURE = 4.6
"""Log of the odds of the likeliest link against all others."""

NO_ANSWERS = 0.98

OrderName = tuple[int, str, str, str]
"""Number, host, NIC and target of an order: what a report must agree with."""


@dataclass(kw_only=True)
class _Trial:
    """A finding whose subjects are being told apart.

    Attributes:
        subjects: the links that may be at fault.
        sent, lost: echoes over each.
        tried: those that echoes are sent over.
        asked: the orders that are not answered yet, and which of the links each tries.
    """

    finding: Finding
    subjects: tuple[Subject, ...]
    sent: list[int]
    lost: list[int]
    tried: list[int] = field(default_factory=list)
    due_s: float = 0.0
    rounds: int = 0
    asked: dict[OrderName, int] = field(default_factory=dict)


class EchoTests:
    """All trials under way. Orders are numbered from a random number on, as other managers hear the reports too."""

    def __init__(self) -> None:
        self._trials: dict[int, _Trial] = {}
        self._numbers = itertools.count(secrets.randbits(62))

    def begin(self, finding: Finding) -> bool:
        """Tell apart what a finding names; whether that can be tried."""
        subjects = (finding.subject, *finding.also)
        if len(subjects) < 2 or len(self._trials) >= MOST_AT_ONCE:
            return False
        if not all(_ends(subject) for subject in subjects):
            return False
        nothing = [0] * len(subjects)
        self._trials[finding.number] = _Trial(
            finding=finding, subjects=subjects, sent=nothing, lost=nothing.copy()
        )
        return True

    def end(self, finding: Finding) -> None:
        """It is over."""
        self._trials.pop(finding.number, None)

    def orders(self, links: Sequence[DirectedLink], now_s: float) -> list[BounceOrder]:
        """What hosts are to try now; `links` are all that are known."""
        orders: list[BounceOrder] = []
        for number, trial in list(self._trials.items()):
            if now_s < trial.due_s:
                continue
            if trial.rounds >= MOST_ROUNDS:
                del self._trials[number]
                continue
            trial.tried = [i for i, subject in enumerate(trial.subjects) if any(_sides(subject, links))]
            if not trial.tried:
                del self._trials[number]
                continue
            trial.rounds += 1
            trial.due_s = now_s + DEADLINE_S
            for i, subject in enumerate(trial.subjects):
                orders += self._orders(trial, i, subject, links)
        return orders

    def hear(self, report: BounceReport) -> None:
        """What came of an order; others' are passed over."""
        name = report.number, report.host, report.nic, report.target
        for trial in self._trials.values():
            i = trial.asked.pop(name, None)
            if i is not None and 0 <= report.lost <= report.sent <= ECHOES:
                trial.sent[i] += report.sent
                trial.lost[i] += report.lost
                if not trial.asked:
                    trial.due_s = 0.0

    def verdicts(self) -> Iterable[tuple[Finding, Subject, float, str]]:
        """Findings of which the one link is known now, with its probability and what speaks for it."""
        for number, trial in list(self._trials.items()):
            best, odds = _likeliest(trial)
            if odds > SURE:
                del self._trials[number]
                yield (
                    trial.finding,
                    trial.subjects[best],
                    float(1 / (1 + np.exp(-odds))),
                    _evidence(trial, best),
                )

    def _orders(
        self, trial: _Trial, i: int, subject: Subject, links: Sequence[DirectedLink]
    ) -> Iterable[BounceOrder]:
        """Echoes from hosts at one end of a link to its other end."""
        for near, far in _sides(subject, links):
            nics = [link.a for link in links if link.b == near and is_nic(link.a)]
            number = next(self._numbers)
            for nic in nics[:HOSTS_A_LINK]:
                host, _, ifname = nic.partition("/")
                trial.asked[number, host, ifname, far] = i
                yield BounceOrder(
                    host=host, nic=ifname, number=number, target=far, count=ECHOES, seconds=ROUND_S
                )


def _ends(subject: Subject) -> tuple[str, str] | None:
    """The two switches of a link; None where it is none between switches that answer."""
    if subject.kind not in ("link", "direction"):
        return None
    link = subject.links[0]
    return (link.a, link.b) if is_between_switches(link) else None


def _sides(subject: Subject, links: Sequence[DirectedLink]) -> Iterable[tuple[str, str]]:
    """The end that has hosts, and the other one."""
    a, b = cable(subject.links[0]).links[0]
    with_hosts = {link.b for link in links if is_nic(link.a)}
    for near, far in ((a, b), (b, a)):
        if near in with_hosts:
            yield near, far
            return


def _evidence(trial: _Trial, best: int) -> str:
    """What speaks for a link."""
    others = f"{sum(trial.lost) - trial.lost[best]} of {sum(trial.sent) - trial.sent[best]}"
    if best not in trial.tried:
        return f"{others} echoes over the other were lost"
    return f"{trial.lost[best]} of {trial.sent[best]} echoes over it were lost, {others} over the other"


def _likeliest(trial: _Trial) -> tuple[int, float]:
    """The link that explains the echoes best, and the log of its odds."""
    sent, lost = (np.array(each, np.float64) for each in (trial.sent, trial.lost))
    if (
        not trial.tried
        or not sent[trial.tried].all()
        or (lost[trial.tried] > NO_ANSWERS * sent[trial.tried]).all()
    ):
        return 0, -np.inf
    loss = np.clip(trial.finding.loss, 2 * HEALTHY_LOSS, 0.99)
    ratio = lost * np.log(loss / HEALTHY_LOSS) + (sent - lost) * np.log((1 - loss) / (1 - HEALTHY_LOSS))
    best = int(np.argmax(ratio))
    others = np.delete(ratio, best)
    return best, float(ratio[best] - np.logaddexp.reduce(others))

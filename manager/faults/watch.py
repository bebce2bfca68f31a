"""Everything that finds faults, held together: one finding per cause, one event at its start and one at its end."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.messages import BounceOrder, BounceReport, host_of
from manager.fabric.routes import DirectedLink, is_nic
from manager.faults.causes import Causes, Class
from manager.faults.clock_watch import ClockWatch
from manager.faults.delay_watch import DelayWatch, Slow
from manager.faults.echo_tests import EchoTests
from manager.faults.finding import Finding, Findings, Kind, Subject, cable
from manager.faults.flaps import MOST_CHANGES, Flaps
from manager.faults.loss_watch import Found, LossWatch
from manager.faults.reroutes import Reroutes
from manager.links.inference import QueueInference
from manager.links.loads import LinkLoads
from manager.links.matrix import PathMatrix
from manager.paths.windows import Window

FABRIC = "fabric"
"""Whose events those are that belong to no host."""

TELL_AFTER_S = 1.0
"""For so long the event of a finding waits until links are told apart that explain it alike."""


class Note(Protocol):
    """Keeps an event for people."""

    def __call__(self, host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
        """Keep it."""


class FaultWatch:
    """The faults of one fleet.

    Attributes:
        findings: what holds, and what held.
        flaps: how often things went and came back.
        losses: what follows them.
        dead_elsewhere: links that other managers found to be dead.
        keeps: whether a link that is routed round is this manager's to name.
    """

    def __init__(self, note: Note) -> None:
        self.findings = Findings()
        self._note = note
        self.losses = LossWatch(self.name_losses, self._close, self.fell_silent)
        self.dead_elsewhere: frozenset[DirectedLink] = frozenset()
        self.keeps: Callable[[Subject], bool] = _everything
        self._delays = DelayWatch(self._found_slow, self._found_slow_back, self._close)
        self._delays.decides = self._names_slow
        self._clocks = ClockWatch(self._found_wrong, self._close)
        self.flaps = Flaps()
        self._flapping: dict[str, Finding] = {}
        self._carriers: dict[str, Finding] = {}
        self._reroutes = Reroutes()
        self._routed_round: dict[str, Finding] = {}
        self._silent_hosts: frozenset[str] = frozenset()
        self._lag_s = 0.0
        self._now_s = 0.0
        self._echo_tests = EchoTests()
        self._untold: dict[int, float] = {}

    def use(self, matrix: PathMatrix, causes: Causes, moved: NDArray[np.bool_]) -> None:
        """Rows or routes are others than before; see `LossWatch.use`."""
        self.losses.use(matrix, causes, moved)

    def step(
        self,
        windows: Sequence[Window],
        queues: QueueInference,
        loads: LinkLoads,
        *,
        now_s: float,
        lag_s: float,
    ) -> None:
        """Take in the next windows, the last of which ended `lag_s` before `now_s`; their queues and loads are known already."""
        self._now_s, self._lag_s = now_s, lag_s
        self.losses.step(windows, queues)
        for _ in windows:
            self._delays.step(queues, loads)
        self._narrow()

    def hear_echo_report(self, report: BounceReport) -> None:
        """What came of echoes that were asked for."""
        self._echo_tests.hear(report)
        self._narrow()

    def echo_orders(self, links: Sequence[DirectedLink], now_s: float) -> list[BounceOrder]:
        """Echoes that hosts are to send now, to tell links apart."""
        return self._echo_tests.orders(links, now_s)

    def follow_routes(self, before: PathMatrix, now: PathMatrix, now_s: float) -> None:
        """Paths lead over other links than before."""
        self._reroutes.step(before, now, now_s)

    def look_for_reroutes(self, now_s: float) -> None:
        """Name links that no path takes any more, unless they are known to be at fault, and see which are back."""
        known = {link for each in self.findings.of("dead", "silent") for link in each.subject.links}
        known |= self.dead_elsewhere
        for subject in self._reroutes.subjects(now_s):
            if not known & set(subject.links) and self.keeps(subject):
                evidence = ["the switches route round it: paths that led over it lead over others"]
                self._routed_round[subject.name] = self._open("dead", subject, 1.0, evidence, loss=1.0)
        for name, finding in list(self._routed_round.items()):
            if self._reroutes.is_back(finding.subject):
                self._close(self._routed_round.pop(name))

    def follow_carriers(self, carriers: Mapping[str, bool], links: Iterable[DirectedLink]) -> None:
        """Which NICs have a carrier, as their hosts say now; and all links, to tell which is whose."""
        gone = {nic for nic, carrier in carriers.items() if not carrier}
        for nic in gone - self._carriers.keys():
            mine = next((link for link in links if link.a == nic), None)
            subject = Subject("nic", nic) if mine is None else cable(mine)
            self._supersede(subject)
            finding = self._open("dead", subject, 1.0, ["its NIC has no carrier"], loss=1.0)
            self._carriers[nic] = finding
            self.losses.follow(finding)
        for nic in self._carriers.keys() - gone:
            finding = self._carriers.pop(nic)
            self._close(finding)
            self.losses.leave(finding)

    def follow_clocks(self, set_aside: Iterable[str], now_s: float) -> None:
        """Hosts whose clock disagrees with their peers'; `now_s` is monotonic."""
        self._clocks.step(set_aside, now_s)

    def note_silent_hosts(self, hosts: Iterable[str]) -> None:
        """Hosts that have not been heard of for a while."""
        self._silent_hosts = frozenset(hosts)

    def excuse(self, hosts: Collection[str], rows: NDArray[np.intp], within_s: float) -> None:
        """Hosts refuse probes, which is nobody's fault: nothing that rows to them lost counts, nor what was found by it.

        Args:
            hosts: which.
            rows: that start or end there.
            within_s: how long they may have refused them.
        """
        since_s = time.time() - self._lag_s - within_s
        for finding in list(self.losses.followed):
            if finding.kind != "dead" and finding.start_s >= since_s and _is_of(finding.subject, hosts):
                self.end(finding)
        self.losses.forget(rows)

    def expire(self, now_s: float) -> None:
        """End the flapping of what has been calm; `now_s` is monotonic."""
        self._now_s = now_s
        for name, finding in list(self._flapping.items()):
            if self.flaps.is_calm(name, now_s):
                del self._flapping[name]
                self.flaps.calmed(name)
                self._close(finding)

    def name_losses(self, found: Found) -> Finding:
        """A cause of losses is clear."""
        subject, kind = found.named.subject, found.kind
        hosts = {node.partition("/")[0] for link in subject.links for node in link if is_nic(node)}
        if kind == "silent" and subject.kind == "link" and hosts & self._silent_hosts:
            subject = Subject("host", hosts.pop(), subject.links)
        return self._open(
            kind, subject, found.confidence, found.evidence, also=found.named.also, loss=found.loss
        )

    def fell_silent(self, finding: Finding) -> Finding:
        """What lost some of its packets loses all by now, which is another finding."""
        self._close(finding)
        evidence = [*finding.evidence, "nothing has come through it since"]
        return self._open(
            "silent", finding.subject, finding.confidence, evidence, also=finding.also, loss=1.0
        )

    def _narrow(self) -> None:
        """Take up what echoes have told apart, and tell what has been waited for long enough."""
        for finding, subject, confidence, evidence in self._echo_tests.verdicts():
            finding.subject, finding.also, finding.confidence = subject, (), confidence
            finding.evidence.append(evidence)
            if finding.number in self._untold:
                self._tell_start(finding)
            else:
                self._tell(finding, f"{finding.event_kind}_located", _described(finding))
        for number, due_s in list(self._untold.items()):
            if self._now_s >= due_s:
                self._tell_start(self.findings.current[number])

    def _names_slow(self, slow: Slow) -> bool:
        """Whether to name what is slow: not where nothing comes through anyhow, which is one event."""
        gone = (link for finding in self.findings.of("dead", "silent") for link in finding.subject.links)
        named = Class(cable(slow.link), ())
        return not set(cable(slow.link).links).intersection(gone) and self.losses.decides(named)

    def _found_slow(self, slow: Slow) -> Finding:
        return self._open(slow.kind, slow.subject, 1.0, [slow.evidence])

    def _found_slow_back(self, finding: Finding, slow: Slow) -> None:
        """The other direction of the same link is slow too."""
        if finding.subject.kind == "direction":
            finding.subject = cable(slow.link)
        finding.evidence.append(slow.evidence)

    def _found_wrong(self, host: str) -> Finding:
        evidence = ["its clock disagrees with those of most of its peers"]
        return self._open("clock", Subject("host", host), 1.0, evidence)

    def end(self, finding: Finding) -> None:
        """It is over, or another manager's by now."""
        self._close(finding)
        self.losses.leave(finding)

    @property
    def routed_round(self) -> list[Finding]:
        """Of links that the switches route round."""
        return list(self._routed_round.values())

    def _supersede(self, subject: Subject) -> None:
        """End what was found by losses of the same links: now the cause is known better."""
        for finding in list(self.findings.of("silent", "lossy")):
            if set(finding.subject.links) & set(subject.links):
                self.end(finding)

    def _open(
        self,
        kind: Kind,
        subject: Subject,
        confidence: float,
        evidence: list[str],
        *,
        also: tuple[Subject, ...] = (),
        loss: float = 0.0,
    ) -> Finding:
        finding = Finding(
            number=0,
            kind=kind,
            subject=subject,
            confidence=confidence,
            evidence=evidence,
            start_s=time.time() - self._lag_s,
            also=also,
            loss=loss,
        )
        self.findings.open(finding)
        if self._echo_tests.begin(finding):
            self._untold[finding.number] = self._now_s + TELL_AFTER_S
        else:
            self._tell_start(finding)
        if kind in ("dead", "silent"):
            self._count_change(subject)
        return finding

    def _close(self, finding: Finding) -> None:
        self._echo_tests.end(finding)
        if finding.number in self._untold:
            self._tell_start(finding)
        self.findings.close(finding, time.time() - self._lag_s)
        assert finding.end_s is not None
        if finding.subject.name not in self._flapping or finding.kind == "flapping":
            lasted_s = finding.end_s - finding.start_s
            self._tell(
                finding, f"{finding.event_kind}_over", f"{finding.subject.name}: after {lasted_s:.1f} s"
            )
        if finding.kind in ("dead", "silent"):
            self._count_change(finding.subject)

    def _count_change(self, subject: Subject) -> None:
        changes = self.flaps.add(subject.name, self._now_s)
        if changes > MOST_CHANGES and subject.name not in self._flapping:
            evidence = [f"it went and came back {changes} times within the hour"]
            self._flapping[subject.name] = self._open("flapping", subject, 1.0, evidence)

    def _tell_start(self, finding: Finding) -> None:
        self._untold.pop(finding.number, None)
        if finding.subject.name not in self._flapping:
            self._tell(finding, finding.event_kind, _described(finding))

    def _tell(self, finding: Finding, kind: str, detail: str) -> None:
        nics = [node for link in finding.subject.links for node in link if is_nic(node)]
        of_host = finding.subject.kind in ("host", "nic")
        host = finding.subject.name.partition("/")[0] if of_host else FABRIC
        nic = nics[0].partition("/")[2] if of_host and nics else None
        self._note(host, kind, detail, nic=nic)


def _everything(_: Subject) -> bool:
    """Where there is no other manager."""
    return True


def _is_of(subject: Subject, hosts: Collection[str]) -> bool:
    """Whether a subject is nothing but some hosts' own links."""
    return bool(subject.links) and all(
        any(is_nic(node) and host_of(node) in hosts for node in link) for link in subject.links
    )


def _described(finding: Finding) -> str:
    text = f"{finding.subject.name}: {'; '.join(finding.evidence)}"
    if finding.also:
        text += f" (or {', '.join(subject.name for subject in finding.also)})"
    return f"{text}; confidence {finding.confidence:.0%}"

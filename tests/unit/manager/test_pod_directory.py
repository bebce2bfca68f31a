"""What leaders tell each other of their pods' hosts: in parts, on change and again, and only by who leads."""

from typing import Any

from bus_fakes import manager_bus

from cwdp.shared.bus.messages import Nic, Trace, TraceReport
from cwdp.shared.bus.subjects import is_of_pod, pod_hosts, pod_report, pod_traces, up
from manager.clock.apart import SeenAhead
from manager.hosts.elsewhere import Elsewhere, PodHost
from manager.pods.directory import AGAIN_S, PART_HOSTS, SOONEST_S, Directory, HostsPart, PodTraces


class Pod:
    """A manager of a pod, as far as the directory goes; what it publishes is kept."""

    def __init__(self, name: str) -> None:
        self.seen = list[SeenAhead]()
        self.now_s, self.hosts, self.leads = 100.0, list[PodHost](), True
        self.elsewhere, self.heard, self.sent = Elsewhere(), list[TraceReport](), list[tuple[str, Any]]()
        bus = manager_bus("tls://127.0.0.1:1", pod=name)
        bus.publish = lambda *sent: bool(self.sent.append(sent))  # type: ignore[func-returns-value,method-assign]
        self.directory = Directory(
            bus,
            self.elsewhere,
            hosts=lambda: self.hosts,
            leader=lambda: (1, name) if self.leads else None,
            seen=lambda: self.seen,
            on_traces=self.heard.append,
            now_s=lambda: self.now_s,
        )


def hosts(pod: str, count: int) -> list[PodHost]:
    return [
        PodHost(
            host=f"{pod}{i:03}",
            nics=[
                Nic(
                    ifname="eth0", mac="", ipv4=f"10.{ord(pod)}.0.{i}", ipv6=None, carrier=True, mode="native"
                )
            ],
        )
        for i in range(count)
    ]


def hear(pod: Pod, parts: list[HostsPart]) -> None:
    for part in parts:
        pod.directory.hear(part)


def test_hosts_come_in_parts_and_count_once_all_are_there() -> None:
    a, b = Pod("a"), Pod("b")
    a.hosts = hosts("a", 2 * PART_HOSTS + 1)
    first, *rest = a.directory.due()
    assert len(rest) == 2
    hear(b, rest)
    assert not b.elsewhere.hosts
    hear(b, [first])
    assert len(b.elsewhere.hosts) == 2 * PART_HOSTS + 1
    hear(a, [first, *rest])
    assert not a.elsewhere.hosts, "its own"


def test_it_is_told_on_change_and_again_but_not_faster() -> None:
    a, b = Pod("a"), Pod("b")
    hear(b, a.directory.due())
    assert b.elsewhere.knows("a")
    assert not b.directory.awaits([])
    a.hosts = hosts("a", 1)
    assert not a.directory.due()
    a.now_s += SOONEST_S
    (changed,) = a.directory.due()
    a.now_s += SOONEST_S
    assert not a.directory.due()
    a.now_s += AGAIN_S
    (again,) = a.directory.due()
    assert again == changed
    a.leads = False
    a.now_s += AGAIN_S
    assert not a.directory.due()


def test_traces_towards_another_pod_are_passed_on_and_taken_of_its_hosts_only() -> None:
    a, b = Pod("a"), Pod("b")
    a.hosts, b.hosts = hosts("a", 1), hosts("b", 1)
    hear(a, b.directory.due())
    hear(b, a.directory.due())
    there, own = (
        Trace(nic="eth0", dst_addr=address, sport=50_000, hops=[None], reached=True, local_ns=0)
        for address in ("10.98.0.0", "10.97.0.9")
    )
    a.directory.pass_on(TraceReport(host="a000", traces=[own, there]))
    ((subject, passed),) = a.sent
    assert subject == pod_traces("b")
    b.directory.hear_traces(passed)
    assert b.heard == [TraceReport(host="a000", traces=[there])]
    b.directory.hear_traces(PodTraces(pod="c", report=passed.report))
    assert len(b.heard) == 1
    assert b.directory.traces == {"ok": 1, "not_theirs": 1}


def test_only_leaders_speak_on_pods_subjects() -> None:
    assert all(is_of_pod(subject) for subject in (pod_report("a"), pod_hosts("a"), pod_traces("a")))
    assert not any(is_of_pod(up("pods", "h", kind)) for kind in ("hosts", "traces", "hello"))


def test_what_a_leader_sees_of_other_timelines_goes_along_and_the_latest_counts() -> None:
    a, b = Pod("a"), Pod("b")
    a.hosts = hosts("a", PART_HOSTS + 1)
    for sigma_ns in (8.0, 9.0):
        a.seen = [
            SeenAhead(
                timeline="b", ref_ns=5, ahead_ns=-(2**60), ahead_frac_ns=0.25, rate=1e-6, sigma_ns=sigma_ns
            )
        ]
        hear(b, a.directory.due())
        assert b.elsewhere.seen_by("a") == a.seen
        assert b.elsewhere.timeline_of("a") == "a"
        a.now_s += AGAIN_S
    assert not b.elsewhere.seen_by("c")

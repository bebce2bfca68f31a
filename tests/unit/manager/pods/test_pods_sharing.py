"""Leaders tell the root what they want of shared links, and go by what they are granted, whatever is lost on the way."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from cwdp.shared.bus.messages import decode, encode
from cwdp.shared.bus.packing import packed, row_bytes, rows_of, unpacked
from cwdp.shared.bus.subjects import is_of_pod, joining, pod_granted, pod_report, pod_wants, up
from manager.duties import Duties
from manager.fabric.routes import DirectedLink
from manager.pods.grants import LAST_S
from manager.pods.link_rates import WANT_ROW, Divider, LinkRates, LinkRows, Namer
from manager.pods.pods import SILENT_S
from manager.pods.sharing import Sharing

CORE, OTHER, OWN = (DirectedLink("s1", f"c{i}") for i in range(3))


class Bus:
    """All pods' bus: what is published arrives, unless `loses`."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pods: dict[str, Pod] = {}
        self.loses: Callable[[str], bool] = lambda _: False
        self.sent: list[tuple[str, LinkRows]] = []

    def publish(self, subject: str, message: LinkRows) -> None:
        self.sent.append((subject, message))
        if not self.loses(subject):
            self.deliver(subject, message)

    def deliver(self, subject: str, message: LinkRows) -> None:
        for pod in self.pods.values():
            for own, hear in pod.hears:
                if own == subject and pod.is_up:
                    hear(decode(LinkRows, encode(message)))

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1.0
            for name in sorted(self.pods, reverse=True):
                if self.pods[name].is_up:
                    self.pods[name].sharing.step()


class Pod:
    """A pod's leader with its planner's wants and grants."""

    def __init__(self, bus: Bus, name: str, wanted: dict[DirectedLink, tuple[float, float]]) -> None:
        self.is_up, self.root, self.leads, self.epoch = True, "", True, 5
        self.hears: list[tuple[str, Callable[[LinkRows], None]]] = []
        self.planner = SimpleNamespace(wanted=_columns(wanted), granted_bps={})
        self.pod, self.bus, self.duties = name, bus, Duties()
        seen = SimpleNamespace(
            pod=name,
            publish=bus.publish,
            subscribe=lambda subject, _, hear: self.hears.append((subject, hear)),
        )
        who = cast(Any, _Who(self))
        self.sharing = Sharing(
            cast(Any, seen),
            who,
            cast(Any, self.planner),
            self.duties,
            epoch=lambda: self.epoch,
            now_s=lambda: bus.now_s,
        )
        self.sharing.listen()
        bus.pods[name] = self

    @property
    def granted(self) -> dict[DirectedLink, float]:
        return cast(dict[DirectedLink, float], self.planner.granted_bps)


def _columns(wanted: dict[DirectedLink, tuple[float, float]]) -> tuple[tuple[DirectedLink, ...], Any]:
    return tuple(wanted), np.array(list(wanted.values()), np.float64).reshape(-1, 2)


class _Who:
    """What `Pods` tells."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    @property
    def leads(self) -> bool:
        return self._pod.leads

    @property
    def root(self) -> str:
        return min(name for name, pod in self._pod.bus.pods.items() if pod.is_up)

    def others(self) -> list[str]:
        return [name for name, pod in self._pod.bus.pods.items() if pod.is_up and pod is not self._pod]


def _three() -> tuple[Bus, list[Pod]]:
    bus = Bus()
    wants = [
        {CORE: (60.0, 90.0), OTHER: (0.0, 90.0), OWN: (5.0, 90.0)},
        {CORE: (60.0, 80.0), OTHER: (0.0, 0.0)},
        {CORE: (10.0, 0.0), OTHER: (0.0, 0.0)},
    ]
    return bus, [Pod(bus, name, wanted) for name, wanted in zip("abc", wants, strict=True)]


def _sum(pods: list[Pod], link: DirectedLink) -> float:
    return sum(pod.granted[link] for pod in pods)


def test_pods_share_what_several_of_them_load_and_nothing_else() -> None:
    bus, pods = _three()
    bus.run(2)
    assert _sum(pods, CORE) == pytest.approx(90.0)
    assert _sum(pods, OTHER) == pytest.approx(90.0)
    assert [pod.granted[CORE] for pod in pods] == pytest.approx([40.0, 40.0, 10.0])
    assert all(OWN not in pod.granted for pod in pods)
    assert pods[0].duties.seconds["root"] > 0.0
    assert not pods[1].duties.seconds["root"]


def test_who_hears_nothing_goes_on_with_its_last_grant_and_then_with_an_even_share() -> None:
    bus, pods = _three()
    bus.run(2)
    bus.loses = lambda subject: subject == pod_granted("b")
    bus.run(int(LAST_S) - 1)
    assert pods[1].granted[CORE] == 40.0
    bus.run(3)
    assert pods[1].granted == {CORE: 80.0 / 3}
    bus.loses = lambda _: False
    bus.run(2)
    assert pods[1].granted[CORE] == 40.0


def test_a_silent_pod_is_left_out_and_one_that_comes_is_taken_in() -> None:
    bus, pods = _three()
    bus.run(2)
    bus.loses = lambda subject: subject == pod_wants("a")
    bus.run(int(SILENT_S) + 1)
    assert pods[0].granted == {}
    bus.loses = lambda _: False
    bus.run(2)
    assert _sum(pods, CORE) == pytest.approx(90.0)


def test_another_root_goes_on_when_the_first_dies_and_gives_way_when_it_is_back() -> None:
    bus, pods = _three()
    bus.run(2)
    pods[0].is_up = False
    bus.run(3)
    assert _sum(pods[1:], CORE) == pytest.approx(80.0)
    assert pods[1].granted[CORE] == pytest.approx(65.0)
    pods[0].is_up, pods[0].epoch = True, 6
    bus.run(3)
    assert [pod.granted[CORE] for pod in pods] == pytest.approx([40.0, 40.0, 10.0])


def test_a_pod_that_is_left_alone_has_all_links_for_itself_in_the_end() -> None:
    bus, pods = _three()
    bus.run(2)
    pods[0].is_up = pods[2].is_up = False
    bus.run(int(LAST_S) + 1)
    assert pods[1].granted == {}


def test_doubled_late_and_deposed_leaders_words_are_not_heard() -> None:
    bus, pods = _three()
    bus.run(2)
    last = [message for subject, message in bus.sent if subject == pod_wants("a") and message.pod == "b"]
    bus.deliver(pod_wants("a"), last[-1])
    bus.deliver(pod_wants("a"), last[0])
    bus.deliver(pod_wants("a"), msgspec.structs.replace(last[-1], epoch=4, seq=99))
    assert pods[0].sharing.reports["not_newer"] == 3
    bus.deliver(pod_wants("c"), msgspec.structs.replace(last[-1], seq=99))
    assert pods[2].sharing.reports["not_the_root"] == 1
    granted = next(message for subject, message in bus.sent if subject == pod_granted("b"))
    bus.deliver(pod_granted("b"), granted)
    bus.deliver(pod_granted("b"), msgspec.structs.replace(granted, pod="c", seq=99))
    assert (pods[1].sharing.reports["not_newer"], pods[1].sharing.reports["not_the_root"]) == (1, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wanted_bps", -1.0),
        ("capacity_bps", np.nan),
        ("wanted_bps", np.inf),
        ("capacity_bps", 1e18),
        ("a", 9),
    ],
)
def test_absurd_numbers_are_refused(name: str, value: float) -> None:
    bus, pods = _three()
    bus.run(1)
    message = Namer().link_rows("b", 5, 1000, LinkRates(*pods[1].planner.wanted))
    rows = rows_of(unpacked(message.rows), WANT_ROW)
    rows[name][0] = value
    bus.deliver(pod_wants("a"), msgspec.structs.replace(message, rows=packed(row_bytes(rows))))
    bus.deliver(pod_wants("a"), msgspec.structs.replace(message, rows=b"?"))
    bus.deliver(pod_wants("a"), msgspec.structs.replace(message, nodes=packed(b"\xc1")))
    assert pods[0].sharing.reports["not_sane"] == 3


def test_a_link_that_is_told_of_twice_is_refused() -> None:
    bus, pods = _three()
    bus.run(1)
    twice = LinkRates((CORE, CORE), np.array([[1.0, 9.0], [2.0, 9.0]]))
    bus.deliver(pod_wants("a"), Namer().link_rows("b", 5, 1000, twice))
    assert pods[0].sharing.reports["not_sane"] == 1


def test_a_planner_whose_links_or_rates_are_others_is_granted_by_these() -> None:
    bus, pods = _three()
    bus.run(2)
    pods[1].planner.wanted = _columns({OTHER: (90.0, 90.0), OWN: (0.0, 0.0)})
    bus.run(2)
    assert set(pods[0].granted) == {CORE, OTHER, OWN}
    assert pods[1].granted == pytest.approx({CORE: 20.0, OTHER: 84.0, OWN: 82.0})
    pods[1].planner.wanted = _columns({OTHER: (0.0, 90.0), OWN: (0.0, 0.0)})
    bus.run(2)
    assert _sum(pods, OTHER) == pytest.approx(90.0)
    assert pods[1].granted[OTHER] < 84.0


def _divided(**wants: dict[DirectedLink, tuple[float, float]]) -> dict[str, dict[DirectedLink, float]]:
    found = Divider().divided({pod: LinkRates(*_columns(each)) for pod, each in wants.items()}, 0)
    return {pod: each.by_link(0) for pod, each in found.items()}


def test_pods_that_share_nothing_are_granted_nothing() -> None:
    assert _divided(a={CORE: (1.0, 9.0)}, b={OTHER: (1.0, 9.0)}) == {"a": {}, "b": {}}
    assert _divided(a={CORE: (1.0, 0.0)}, b={CORE: (1.0, 0.0)}) == {"a": {}, "b": {}}
    assert _divided(a={}, b={}) == {"a": {}, "b": {}}


def test_a_divider_goes_on_with_other_pods_links_and_capacities() -> None:
    divider = Divider()
    wants = {pod: LinkRates(*_columns({CORE: (9.0, 12.0), OWN: (1.0, 0.0)})) for pod in "ab"}
    first = divider.divided(wants, 0)
    assert first["a"].by_link(0) == pytest.approx({CORE: 6.0})
    wants["b"] = LinkRates(wants["b"].links, np.array([[3.0, 0.0], [1.0, 4.0]]))
    second = divider.divided(wants, 0)
    assert {pod: each.by_link(0) for pod, each in second.items()} == {
        "a": pytest.approx({CORE: 9.0, OWN: 2.0}),
        "b": pytest.approx({CORE: 3.0, OWN: 2.0}),
    }
    wants["c"] = LinkRates(*_columns({OTHER: (1.0, 1.0)}))
    assert divider.divided(wants, 0)["c"].by_link(0).keys() == {CORE, OWN}


def test_leaders_subjects_are_no_hosts() -> None:
    for subject in (pod_report("p"), pod_wants("p"), pod_granted("p")):
        assert is_of_pod(subject)
    for subject in (up("pods", "wants", "qp"), joining("pods", "h"), up("wants", "p", "qp")):
        assert not is_of_pod(subject)

"""Echoes off switches: packets, limits, and what is made of the answers."""

from dataclasses import replace

import numpy as np
import pytest
from fakes import showing
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6EchoReply

from cwdp.agent.tracing import echo_tests
from cwdp.agent.tracing.echo_tests import echo_request, reply_number
from cwdp.shared.bus.messages import BounceOrder, BounceReport, WindowReport
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.routes import DirectedLink
from manager.faults.echo_tests import DEADLINE_S, ECHOES, MOST_ROUNDS, EchoTests
from manager.faults.finding import Finding, cable, direction
from manager.state import FleetState
from tools.sim.faults.leafspine import LeafSpine, Shape, Trouble

LINKS = [
    *(DirectedLink(f"h{i}/nic0", "l1") for i in range(3)),
    *(DirectedLink(f"h{i}/nic0", "l2") for i in range(3, 9)),
    *(DirectedLink(a, b) for leaf in ("l1", "l2") for a, b in ((leaf, "s1"), ("s1", leaf))),
]


def _finding(loss: float, *, one_way: bool) -> Finding:
    first, second = DirectedLink("l1", "s1"), DirectedLink("s1", "l2")
    subject, also = (direction(first), direction(second)) if one_way else (cable(first), cable(second))
    return Finding(
        number=1,
        kind="lossy",
        subject=subject,
        confidence=0.5,
        evidence=[],
        start_s=0.0,
        also=(also,),
        loss=loss,
    )


def _answer(
    trials: EchoTests, orders: list[BounceOrder], loss: dict[str, float], rng: np.random.Generator
) -> None:
    """Hosts below l1 and l2 lose these shares of their echoes."""
    for order in orders:
        leaf = "l1" if int(order.host[1:]) < 3 else "l2"
        lost = int(rng.binomial(order.count, loss[leaf]))
        report = BounceReport(
            host=order.host,
            nic=order.nic,
            number=order.number,
            target=order.target,
            sent=order.count,
            lost=lost,
        )
        trials.hear(report)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("one_way", [True, False])
def test_the_link_that_loses_echoes_is_named(seed: int, one_way: bool) -> None:
    rng = np.random.default_rng(seed)
    loss = float(np.exp(rng.uniform(np.log(0.005), 0.0)))
    guilty = str(rng.choice(["l1", "l2"]))
    trials, finding = EchoTests(), _finding(loss, one_way=one_way)
    assert trials.begin(finding)
    share = {"l1": 0.0, "l2": 0.0} | {guilty: loss}
    for round_number in range(MOST_ROUNDS):
        _answer(trials, trials.orders(LINKS, float(round_number)), share, rng)
        found = list(trials.verdicts())
        if found:
            break
    ((told, subject, confidence, _),) = found
    assert told is finding
    assert guilty in subject.name
    assert confidence > 0.98
    assert trials.orders(LINKS, MOST_ROUNDS * DEADLINE_S) == []


def test_switches_that_do_not_answer_and_hosts_that_do_not_report_decide_nothing() -> None:
    trials = EchoTests()
    trials.begin(_finding(1.0, one_way=False))
    rng = np.random.default_rng(0)
    _answer(trials, trials.orders(LINKS, 0.0), {"l1": 1.0, "l2": 1.0}, rng)
    assert not list(trials.verdicts())
    trials = EchoTests()
    trials.begin(_finding(1.0, one_way=False))
    orders = trials.orders(LINKS, 1.0)
    _answer(trials, [order for order in orders if int(order.host[1:]) < 3], {"l1": 0.0, "l2": 0.0}, rng)
    assert not list(trials.verdicts())
    assert trials.orders(LINKS, 1.5) == []
    rounds = sum(bool(trials.orders(LINKS, 2.0 + DEADLINE_S * i)) for i in range(50))
    assert rounds == MOST_ROUNDS - 1


def test_answers_to_nobody_and_impossible_ones_are_passed_over() -> None:
    trials = EchoTests()
    trials.begin(_finding(0.5, one_way=True))
    order = trials.orders(LINKS, 0.0)[0]
    for host, number, lost in (
        (order.host, 999, 100),
        ("stranger", order.number, 100),
        (order.host, order.number, 101),
    ):
        trials.hear(
            BounceReport(host=host, nic="nic0", number=number, target=order.target, sent=100, lost=lost)
        )
    assert not list(trials.verdicts())


@pytest.mark.parametrize("guilty", [("l1", "l2"), ("l2", "l1")])
def test_two_managers_do_not_take_each_others_answers(guilty: tuple[str, str]) -> None:
    """One tries the links of a spine, the other those of the next; every report reaches both, as on a bus."""
    links = [*LINKS, *(link._replace(b="s2") for link in LINKS if link.b == "s1")]
    managers = []
    for spine in ("s1", "s2"):
        finding = _finding(1.0, one_way=False)
        finding.subject, also = (cable(DirectedLink(leaf, spine)) for leaf in ("l1", "l2"))
        finding.also = (also,)
        managers.append((EchoTests(), finding))
        assert managers[-1][0].begin(finding)
    orders = [order for trials, _ in managers for order in trials.orders(links, 0.0)]
    rng = np.random.default_rng(0)
    for trials, finding in managers:
        for spine, leaf in zip(("s1", "s2"), guilty, strict=True):
            mine = [order for order in orders if order.target == spine]
            _answer(trials, mine, {"l1": 0.0, "l2": 0.0} | {leaf: 1.0}, rng)
        ((told, subject, _, _),) = trials.verdicts()
        assert told is finding
        assert guilty[("s1", "s2").index(subject.links[0].b)] in subject.name


def test_an_answer_about_another_switch_or_nic_is_passed_over() -> None:
    trials = EchoTests()
    trials.begin(_finding(1.0, one_way=True))
    for order in trials.orders(LINKS, 0.0):
        for nic, target in ((order.nic, "s9"), ("nic7", order.target)):
            trials.hear(
                BounceReport(host=order.host, nic=nic, number=order.number, target=target, sent=100, lost=0)
            )
    assert not list(trials.verdicts())
    assert trials.orders(LINKS, DEADLINE_S / 2) == []


def test_only_the_manager_that_leads_has_echoes_sent() -> None:
    fabric = LeafSpine(Shape(leaves=2, spines=3, hosts_per_leaf=3), np.random.default_rng(8))
    leads, waits = (
        FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False) for _ in range(2)
    )
    waits.stand_by()
    links = fabric.routes.links
    up = next(i for i, link in enumerate(links) if link.a == "l0" and link.b.startswith("s"))
    for number in range(40):
        reports = fabric.window(number, Trouble(loss={up: 1.0} if number > 20 else {}))
        for state in (leads, waits):
            _hear(state, fabric, reports, number / 10 + 0.5)
    assert waits.echo_orders(5.0) == []
    assert {order.target for order in leads.echo_orders(5.0)} == {links[up].b}


def _hear(state: FleetState, fabric: LeafSpine, reports: list[WindowReport], now_s: float) -> None:
    for hello in fabric.hellos:
        state.hear_hello(hello, now_s)
    state.fabric.routes = fabric.routes
    state.traffic.hear_clock(showing(round(now_s * 1e9)), now_s)
    for report in reports:
        state.hear_windows(report, now_s)
    due = state.watch.due(state.fabric.routes)
    if due is not None:
        state.watch.take(due.make(), now_s)
    state.watch_links(now_s)


def test_few_hosts_send_few_echoes_to_the_switch_at_the_far_end() -> None:
    trials = EchoTests()
    trials.begin(_finding(0.5, one_way=True))
    orders = trials.orders(LINKS, 0.0)
    assert {order.target for order in orders} == {"s1"}
    assert {order.host for order in orders} == {"h0", "h1", "h2", "h3", "h4", "h5", "h6"}
    assert all(order.count == ECHOES for order in orders)


def test_what_is_no_link_between_switches_that_answer_is_not_tried() -> None:
    for a, b in (("h1/nic0", "l1"), ("l1", "?1")):
        finding = _finding(0.5, one_way=True)
        finding.also = (direction(DirectedLink(a, b)),)
        assert not EchoTests().begin(finding)


def test_an_echo_request_is_one_and_its_reply_is_known() -> None:
    request = echo_request(8, 4711, 17)
    packet = ICMP(request)
    assert (packet.type, packet.code, packet.id, packet.seq) == (8, 0, 4711, 17)
    del packet.chksum
    assert bytes(packet) == request
    reply = bytes(IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(type=0, id=4711, seq=17))
    assert reply_number(reply, 4, 0, 4711) == 17
    assert reply_number(reply, 4, 0, 4712) is None
    assert reply_number(bytes(ICMPv6EchoReply(id=4711, seq=9)), 6, 129, 4711) == 9
    for garbage in (b"", b"\x45", b"\xff" * 20, reply[:24]):
        assert reply_number(garbage, 4, 0, 4711) is None


@pytest.mark.parametrize(
    "changes", [{"nic": "eth7"}, {"count": 0}, {"count": 10_000}, {"seconds": 60.0}, {"seconds": -1.0}]
)
def test_orders_that_ask_too_much_are_refused(changes: dict[str, object]) -> None:
    agent = echo_tests.EchoTests("h1", ["nic0"], lambda _: None)
    wanted = {"host": "h1", "nic": "nic0", "number": 1, "target": "10.0.0.1", "count": 5, "seconds": 0.1}
    agent.order(BounceOrder(**(wanted | changes)))  # type: ignore[arg-type]
    assert agent.counters["bounces_refused"] == 1


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("is_core_guilty", [True, False])
def test_a_link_above_that_cannot_be_tried_is_what_is_left(seed: int, is_core_guilty: bool) -> None:
    rng = np.random.default_rng(seed)
    loss = float(np.exp(rng.uniform(np.log(0.05), np.log(0.9))))
    below, above = cable(DirectedLink("l1", "s1")), cable(DirectedLink("s1", "c1"))
    finding = replace(_finding(loss, one_way=False), subject=below, also=(above,))
    links = [*LINKS, DirectedLink("s1", "c1"), DirectedLink("c1", "s1")]
    trials = EchoTests()
    assert trials.begin(finding)
    for round_number in range(MOST_ROUNDS):
        orders = trials.orders(links, float(round_number))
        assert {order.target for order in orders} <= {"s1"}
        _answer(trials, orders, {"l1": 0.0 if is_core_guilty else loss, "l2": 0.0}, rng)
        found = list(trials.verdicts())
        if found:
            break
    ((_, subject, _, evidence),) = found
    assert subject == (above if is_core_guilty else below)
    assert "echoes over" in evidence


def test_where_no_link_can_be_tried_nobody_is_asked() -> None:
    trials = EchoTests()
    above, other = cable(DirectedLink("s1", "c1")), cable(DirectedLink("c1", "s2"))
    assert trials.begin(replace(_finding(1.0, one_way=False), subject=above, also=(other,)))
    links = [
        *LINKS,
        *(DirectedLink(*ends) for ends in (("s1", "c1"), ("c1", "s1"), ("c1", "s2"), ("s2", "c1"))),
    ]
    assert trials.orders(links, 0.0) == []
    assert list(trials.verdicts()) == []
    assert trials.orders(links, 2 * DEADLINE_S) == []

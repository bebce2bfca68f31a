"""Which NIC, pair, leaf or path is silent, by what hosts tell of whom they asked; and what liars come to."""

import time
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from cwdp.shared.audit.asks import MOST_SILENT, Ask, Asked, AskedNic, Silent
from cwdp.shared.audit.facts import HostFacts
from manager.audit.network.asks import Plan
from manager.audit.network.dead import Dead
from manager.audit.network.pairs import MOST_TOLD, REACHABLE, judged, reached
from manager.audit.results import FABRIC, Result
from tests.unit.manager.audit.network.asking import Answers, planned, told

NOTHING = Dead()
NICS_OF_L1 = {f"h{host}/nic0" for host in range(1, 5)}


def _judged(made: Plan, answers: Answers, explained: Dead = NOTHING) -> tuple[list[Result], int]:
    return judged(made, reached(made, told(made, answers)), explained)


def _said(results: Sequence[Result]) -> list[tuple[str, str]]:
    assert {(one.check, one.verdict, one.severity) for one in results} <= {(REACHABLE, "fail", "fail")}
    return [(one.host, one.subject) for one in results]


def _both(a: str, b: str) -> Answers:
    """All but what is between two NICs."""
    return lambda src, dst, _: {src, dst} != {a, b}


@pytest.mark.parametrize(("hosts", "nics"), [(2, 1), (8, 1), (12, 2)])
def test_a_fabric_that_is_well_passes(hosts: int, nics: int) -> None:
    results, passed = _judged(planned(hosts, nics), lambda *_: True)
    assert (results, passed) == ([], hosts * nics * (hosts - 1) * nics)


def test_a_nic_that_is_dead_is_named_once() -> None:
    results, passed = _judged(planned(12), lambda src, dst, _: "h7/nic0" not in (src, dst))
    assert _said(results) == [("h7", "nic0")]
    assert results[0].found == "none that it asks answers, and it answers none of 11 NICs that ask"
    assert passed == 11 * 10
    assert "lead over each of 4 paths between leaves with 99" in results[0].expected


@pytest.mark.parametrize(
    ("which", "found"),
    [(0, "none that it asks answers"), (1, "it answers none of 11 NICs that ask")],
)
def test_a_nic_that_is_dead_one_way_only(which: int, found: str) -> None:
    results, _ = _judged(planned(12), lambda *ends: ends[which] != "h7/nic0")
    assert _said(results) == [("h7", "nic0")]
    assert results[0].found == found


def test_a_host_that_does_not_tell_is_accused_by_others_only() -> None:
    made = planned(12)
    found = told(made, lambda src, dst, _: "h7/nic0" not in (src, dst))
    results, passed = judged(made, reached(made, {**found, "h7": None}), NOTHING, untold=1)
    assert results[0].found == "it answers none of 11 NICs that ask"
    assert [(one.verdict, one.severity) for one in results[1:]] == [("unknown", "warn")]
    assert results[1].reason == "1 hosts did not say whom they reach: their agents are older"
    assert passed == 11 * 10
    well, passed = judged(made, reached(made, {"h1": None}), NOTHING)
    assert (well, passed) == ([], 0)


def test_nics_that_reach_nobody_at_all_are_one_finding() -> None:
    results, passed = _judged(planned(6), lambda *_: False)
    assert _said(results) == [(FABRIC, "")]
    assert results[0].found == "6 of 6 NICs get no answer at all: h1/nic0, h2/nic0, h3/nic0 and 3 more"
    assert passed == 0


def test_many_dead_nics_are_told_within_bounds() -> None:
    dead = {f"h{host}/nic0" for host in range(1, 41)}
    results, _ = _judged(planned(120), lambda src, dst, _: src not in dead and dst not in dead)
    assert len(results) == MOST_TOLD + 1
    assert results[-1].found.startswith("20 more NICs reach nobody, or nobody reaches them: ")


def test_a_pair_without_a_path_is_named() -> None:
    results, passed = _judged(planned(12), _both("h1/nic0", "h7/nic0"))
    assert _said(results) == [("h1", "nic0 > h7/nic0")]
    assert results[0].found == "no path answers, 42 ports: h7/nic0 > h1/nic0"
    assert passed == 12 * 11 - 2


def test_a_pair_of_which_one_gets_no_answer() -> None:
    results, passed = _judged(planned(12), lambda src, dst, _: (src, dst) != ("h7/nic0", "h1/nic0"))
    assert _said(results) == [("h1", "nic0 > h7/nic0")]
    assert results[0].found.startswith("no path answers what h7/nic0 asks, 21 ports")
    assert passed == 12 * 11 - 1


def test_a_leaf_that_does_not_lead_to_a_nic() -> None:
    """Its pairs with all NICs at that leaf are the NIC's, and it is said where the others are."""
    results, _ = _judged(
        planned(12),
        lambda src, dst, _: (
            "h7/nic0" not in (src, dst) or not {src, dst} & {f"h{i}/nic0" for i in range(1, 5)}
        ),
    )
    assert _said(results) == [("h7", "nic0")]
    assert "no path answers between 4 pairs of NICs, 168 ports, all others at l1: " in results[0].found
    assert results[0].found.endswith(" and 1 more")


def test_leaves_without_a_path_between_them() -> None:
    made = planned(12)
    results, _ = _judged(made, lambda src, dst, _: {made.leaf[src], made.leaf[dst]} != {"l1", "l3"})
    assert _said(results) == [(FABRIC, "l1 - l3")]
    assert results[0].found.startswith("no path answers between 16 pairs of NICs, 672 ports: ")


def test_nics_at_one_leaf_that_do_not_reach_each_other() -> None:
    made = planned(12)
    results, _ = _judged(made, lambda src, dst, _: not made.leaf[src] == made.leaf[dst] == "l2")
    assert _said(results) == [(FABRIC, "l2")]


@pytest.mark.parametrize("which", range(4))
def test_a_path_between_two_leaves_that_swallows(which: int) -> None:
    made = planned(12)
    results, passed = _judged(
        made, lambda src, dst, path: path != which or {made.leaf[src], made.leaf[dst]} != {"l1", "l3"}
    )
    assert _said(results) == [(FABRIC, "l1 - l3")]
    assert "ports bring nothing back between 16 pairs of NICs: " in results[0].found
    assert "by port 500" in results[0].found
    assert passed == 12 * 11 - 32


def test_a_path_of_a_leaf_that_swallows() -> None:
    made = planned(16)
    results, _ = _judged(
        made, lambda src, dst, path: path != 1 or (made.leaf[src] == "l2") == (made.leaf[dst] == "l2")
    )
    assert _said(results) == [(FABRIC, "l2")]
    assert "between 48 pairs of NICs" in results[0].found


def test_a_path_to_one_nic_that_swallows_is_the_nics() -> None:
    results, _ = _judged(planned(16), lambda src, dst, path: path != 1 or "h6/nic0" not in (src, dst))
    assert _said(results) == [("h6", "nic0")]
    assert "between 15 pairs of NICs" in results[0].found


def test_several_causes_are_told_each() -> None:
    made = planned(16)

    def answers(src: str, dst: str, path: int) -> bool:
        ends = {src, dst}
        return not (
            "h16/nic0" in ends
            or ends == {"h1/nic0", "h5/nic0"}
            or ({made.leaf[src], made.leaf[dst]} == {"l2", "l3"} and path == 0)
        )

    results, _ = _judged(made, answers)
    assert _said(results) == [("h16", "nic0"), (FABRIC, "l2 - l3"), ("h1", "nic0 > h5/nic0")]


def test_what_a_dead_link_explains_is_not_told_again() -> None:
    """Single ports at its ends, and pairs all of whose ports lead over it by chance; not a pair elsewhere."""
    made = planned(16)

    def answers(src: str, dst: str, path: int) -> bool:
        ends = {src, dst}
        at = {made.leaf[src], made.leaf[dst]}
        return not (
            (at == {"l1", "l2"} and (path == 0 or ends == {"h1/nic0", "h5/nic0"}))
            or ends == {"h9/nic0", "h13/nic0"}
        )

    everything, passed = _judged(made, answers)
    assert _said(everything) == [(FABRIC, "l1 - l2"), ("h13", "nic0 > h9/nic0")]
    assert "15 pairs" not in everything[0].found
    assert "1 of which get no answer at all" in everything[0].found
    for explained in (Dead(nodes={"l1", "s1"}), Dead(between={("l1", "l2")}), Dead(nodes=NICS_OF_L1)):
        results, still = _judged(made, answers, explained)
        assert (_said(results), still) == ([("h13", "nic0 > h9/nic0")], passed)


def test_what_was_not_asked_is_said() -> None:
    made = planned(400, 8, at_leaf=32)
    everything = told(made, lambda *_: True)
    found = reached(made, {host: everything[host] for host in ("h1", "h2", "h400")})
    results, _ = judged(made, found, NOTHING)
    assert [(one.verdict, one.severity, one.host) for one in results] == [("unknown", "warn", FABRIC)]
    assert "of all pairs of NICs were asked, each NIC by as many" in results[0].reason
    assert results[0].reason.endswith(
        "the 4 ports of a pair lead over 68.3 % of 4 paths between leaves, "
        "those of all pairs of two leaves over each with 100 %"
    )


def test_what_could_not_be_told_is_said() -> None:
    made = planned(12)
    found = told(made, lambda *_: True)
    found["h1"] = msgspec.structs.replace(found["h1"], unsettled=3)
    results, passed = judged(made, reached(made, found), NOTHING)
    assert [one.reason for one in results] == ["of 3 of 132 pairs it cannot be told: there was no time left"]
    assert passed == 129


def test_pairs_beyond_those_told_do_not_pass() -> None:
    made = planned(12)
    found = told(made, lambda *_: True)
    found["h1"] = msgspec.structs.replace(found["h1"], beyond=5)
    assert judged(made, reached(made, found), NOTHING)[1] == 127


def _lies(made: Plan) -> list[Asked]:
    """Numbers, NICs and addresses that cannot be."""
    addr = made.targets[int(made.chosen["h1"][0])].addr
    nics = [AskedNic(nic="nic0", asked=10, answered=5)]
    one = Silent(nic="nic0", dst_addr=addr, asked=10, answered=0)
    return [
        Asked(nics=[AskedNic(nic="eth9", asked=5, answered=0)] * 64),
        Asked(nics=[AskedNic(nic="nic0", asked=0, answered=2**32)]),
        Asked(nics=nics, beyond=2**32, unsettled=2**32),
        Asked(nics=nics, silent=[msgspec.structs.replace(one, dst_addr="10.99.99.99")] * MOST_SILENT),
        Asked(nics=nics, silent=[msgspec.structs.replace(one, dst_addr="x" * 64)]),
        Asked(nics=nics, silent=[msgspec.structs.replace(one, nic="eth9")]),
        Asked(nics=nics, silent=[msgspec.structs.replace(one, asked=2**32)]),
        Asked(nics=nics, silent=[msgspec.structs.replace(one, answered=11)]),
        Asked(nics=[], silent=[one]),
    ]


@pytest.mark.parametrize("which", range(9))
def test_what_hosts_tell_wrongly_harms_nothing(which: int) -> None:
    made = planned(12)
    found: dict[str, Asked | None] = {**told(made, lambda *_: True)}
    results, passed = judged(
        made, reached(made, {**found, "h1": _lies(made)[which], "nobody": found["h2"]}), NOTHING
    )
    assert not [one for one in results if one.verdict == "fail"]
    assert 11 * 11 <= passed <= 12 * 11


def test_one_host_alone_accuses_no_other_nic() -> None:
    made = planned(12)
    found = told(made, lambda *_: True)
    found["h1"] = told(made, lambda _, dst, __: dst == "h2/nic0")["h1"]
    results, _ = judged(made, reached(made, {**found}), NOTHING)
    assert _said(results) == [("h1", "nic0")]


@pytest.mark.parametrize(
    "lie",
    [
        {"nics": [{"nic": "nic0", "asked": -1, "answered": 0}]},
        {"nics": [], "silent": [{"nic": "x" * 65, "dst_addr": "", "asked": 1, "answered": 0}]},
        {"nics": [], "silent": [{"nic": "x", "dst_addr": "", "asked": 1, "answered": 0, "sports": [0]}]},
        {"nics": [], "silent": [{"nic": "x", "dst_addr": "", "asked": 1, "answered": 0, "sports": [1] * 9}]},
        {"nics": [], "silent": [{"nic": "x", "dst_addr": "", "asked": 1, "answered": 0}] * (MOST_SILENT + 1)},
        {"nics": [], "beyond": 2**60},
    ],
)
def test_what_is_too_much_is_refused(lie: dict[str, object]) -> None:
    packed = msgspec.msgpack.encode({"host": "h1", "taken_s": 1.0, "subjects": [], "asked": lie})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(packed, type=HostFacts)


def test_old_facts_and_orders_are_read() -> None:
    packed = msgspec.msgpack.encode({"host": "h1", "taken_s": 1.0, "subjects": []})
    assert msgspec.msgpack.decode(packed, type=HostFacts).asked is None
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode({"nics": [], "ports": 0}), type=Ask)


def test_a_large_fleet_that_is_broken_is_judged_in_seconds() -> None:
    """Each host tells of a thousand silent pairs, drawn at random."""
    made = planned(400, 8, at_leaf=32)
    rng = np.random.default_rng(1)
    found: dict[str, Asked | None] = {}
    for host, order in made.orders.items():
        places = rng.choice(made.chosen[host], 125)
        found[host] = Asked(
            nics=[AskedNic(nic=nic, asked=3_000, answered=2_000) for nic in order.nics],
            silent=[
                Silent(nic=nic, dst_addr=made.targets[place].addr, asked=4, answered=2, sports=[50_000])
                for nic in order.nics
                for place in places.tolist()
            ],
            beyond=1_000,
        )
    began_s = time.monotonic()
    results, _ = judged(made, reached(made, found), NOTHING)
    assert time.monotonic() - began_s < 30.0
    assert len(results) <= MOST_TOLD + 2

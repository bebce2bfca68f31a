"""Hosts of other pods: each held once, forgotten with a pod that is silent, never in the way of this pod's own."""

from typing import Any

import msgspec
from fakes import hello

from cwdp.shared.bus.messages import Nic
from manager.hosts.elsewhere import HEARD_S, LAPSE_S, LEFT_S, MOST_NICS, MOST_PODS, Elsewhere, PodHost
from manager.hosts.members import MISSED_HELLOS, Members


def nic(number: int, ifname: str = "eth0") -> Nic:
    return Nic(
        ifname=ifname, mac="02:00:00:00:00:01", ipv4=f"10.9.{number // 250}.{number % 250}", ipv6=None,
        carrier=True, mode="native",
    )  # fmt: skip


def host(name: str, number: int) -> PodHost:
    return PodHost(host=name, nics=[nic(number)])


def take(elsewhere: Elsewhere, pod: str, hosts: list[PodHost], **others: Any) -> None:
    told: dict[str, Any] = {"epoch": 1, "number": 1, "timeline": "t", "now_s": 0.0} | others
    elsewhere.take(pod, hosts, **told)


def test_hosts_are_known_by_pod_and_their_addresses_by_nic() -> None:
    elsewhere = Elsewhere()
    take(elsewhere, "b", [host("b1", 1), host("b2", 2)])
    assert elsewhere.addresses == {"10.9.0.1": "b1/eth0", "10.9.0.2": "b2/eth0"}
    assert (elsewhere.pod_at("10.9.0.2"), elsewhere.pod_at("10.9.0.3")) == ("b", None)
    assert elsewhere.members() == {"b": [("b1", nic(1)), ("b2", nic(2))]}
    assert elsewhere.ifnames("b1") == ["eth0"]
    version = elsewhere.version
    take(elsewhere, "b", [host("b1", 1), host("b2", 2)])
    take(elsewhere, "b", [host("b1", 1), host("b2", 2)], number=2)
    assert elsewhere.version == version
    take(elsewhere, "b", [host("b1", 1)], number=3)
    assert elsewhere.version > version
    assert list(elsewhere.hosts) == ["b1"]


def test_a_silent_pod_lapses() -> None:
    elsewhere = Elsewhere()
    take(elsewhere, "b", [host("b1", 1)])
    elsewhere.step([], LAPSE_S)
    assert elsewhere.hosts
    assert elsewhere.is_heard("b", HEARD_S)
    assert not elsewhere.is_heard("b", HEARD_S + 1)
    elsewhere.step([], LAPSE_S + 1)
    assert not elsewhere.hosts
    assert not elsewhere.addresses
    assert not elsewhere.knows("b")


def test_an_earlier_leader_changes_nothing() -> None:
    elsewhere = Elsewhere()
    take(elsewhere, "b", [host("b1", 1)], epoch=3)
    take(elsewhere, "b", [host("b2", 2)], epoch=2, number=9)
    assert list(elsewhere.hosts) == ["b1"]
    assert elsewhere.told["old_leader"] == 1


def test_a_host_that_moves_between_two_other_pods_is_held_once() -> None:
    elsewhere = Elsewhere()
    take(elsewhere, "c", [host("x", 1)])
    take(elsewhere, "b", [host("x", 2)])
    assert elsewhere.pod_of == {"x": "c"}
    assert elsewhere.told["held_elsewhere"] == 1
    take(elsewhere, "c", [], number=2)
    assert elsewhere.pod_of == {"x": "b"}
    assert elsewhere.addresses == {"10.9.0.2": "x/eth0"}


def test_what_is_too_much_is_refused() -> None:
    elsewhere = Elsewhere()
    take(elsewhere, "b", [PodHost(host="b1", nics=[nic(1)] * (MOST_NICS + 1))])
    assert not elsewhere.hosts
    for number in range(MOST_PODS + 1):
        take(elsewhere, f"p{number}", [host(f"p{number}", number)])
    assert len(elsewhere.hosts) == MOST_PODS
    assert elsewhere.told["too_many"] == 2


def test_a_host_that_is_up_here_is_this_pods_and_one_that_has_moved_away_the_other_pods() -> None:
    members = Members()
    members.hear(hello("x"), 0.0)
    own = members.nics_by_address
    take(members.elsewhere, "b", [PodHost(host="x", nics=[nic(7, "eth9")]), host("b1", 1)])
    members.follow_elsewhere(0.1)
    assert members.ifnames("x") == ["eth0"]
    assert members.nics_by_address == {"10.9.0.1": "b1/eth0", **own}
    assert members.elsewhere.told["held_here"] > 0
    members.expire(MISSED_HELLOS + 0.5)
    members.follow_elsewhere(MISSED_HELLOS + 0.5)
    assert members.ifnames("x") == ["eth9"]
    assert members.nics_by_address["10.9.0.7"] == "x/eth9"
    assert members.ifnames("nobody") is None


def test_what_is_only_claimed_here_does_not_take_an_address_from_another_pod() -> None:
    members = Members()
    members.hear(hello("liar"), 0.0)
    (address,) = (nic.ipv4 for nic in hello("liar").nics)
    assert address is not None
    theirs = Nic(ifname="eth0", mac="", ipv4=address, ipv6=None, carrier=True, mode="native")
    take(members.elsewhere, "b", [PodHost(host="b1", nics=[theirs])])
    members.follow_elsewhere(0.0)
    assert members.nics_by_address[address] == "b1/eth0"
    members.prove({address: "liar/eth0"})
    assert members.nics_by_address[address] == "liar/eth0"


def test_whose_addresses_were_whose_is_known_for_a_while_after_hosts_have_left() -> None:
    members, elsewhere = Members(), Elsewhere()
    members.elsewhere = elsewhere
    take(elsewhere, "b", [host("b1", 1), host("b2", 2)])
    members.follow_elsewhere(0.0)
    before = dict(members.nics_by_address)
    take(elsewhere, "b", [host("b2", 2)], number=2, now_s=10.0)
    members.follow_elsewhere(10.0)
    assert members.nics_by_address == before
    assert elsewhere.pod_at("10.9.0.1") is None
    take(elsewhere, "b", [host("b1", 1), host("b2", 2)], number=3, now_s=20.0)
    members.follow_elsewhere(20.0)
    assert members.nics_by_address == before
    assert not elsewhere.left
    take(elsewhere, "b", [], number=4, now_s=30.0)
    take(elsewhere, "c", [host("c1", 2)], now_s=30.0)
    members.follow_elsewhere(30.0)
    assert members.nics_by_address == {"10.9.0.1": "b1/eth0", "10.9.0.2": "c1/eth0"}
    members.hear(msgspec.structs.replace(hello("a1"), nics=[nic(1)]), 31.0)
    assert members.nics_by_address["10.9.0.1"] == "a1/eth0", "who claims it here counts before who had it"
    members.forget("a1")
    version = members.version
    take(elsewhere, "c", [host("c1", 2)], number=1, now_s=30.0 + LEFT_S)
    members.follow_elsewhere(31.0 + LEFT_S)
    assert members.version > version
    assert members.nics_by_address == {"10.9.0.2": "c1/eth0"}


def test_of_addresses_that_were_some_hosts_no_more_are_kept_than_a_pod_may_have() -> None:
    elsewhere = Elsewhere()
    for number in range(3):
        hosts = [
            PodHost(
                host=f"b{number}.{i}",
                nics=[nic(1_000 * (number * 8 + i) + j, f"e{j}") for j in range(MOST_NICS // 8)],
            )
            for i in range(8)
        ]
        take(elsewhere, "b", hosts, number=number + 1)
    assert len(elsewhere.left) == MOST_NICS

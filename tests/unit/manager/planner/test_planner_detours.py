"""Which detours hosts are told of."""

from msgspec.structs import replace

from cwdp.shared.bus.messages import Hello, Nic, SteerQp
from cwdp.shared.partners import partner_of
from manager.planner.detours import detours


def nic(host: int, number: int, *, ipv6: bool = True, mode: str = "native") -> Nic:
    """A NIC whose addresses tell where it is."""
    return Nic(
        ifname=f"nic{number}",
        mac="02:00:00:00:00:01",
        ipv4=f"10.{number}.0.{host}",
        ipv6=f"fd00:{number}::{host}" if ipv6 else None,
        carrier=True,
        mode=mode,  # type: ignore[arg-type]
    )


def hello(host: int, *nics: Nic, observe_only: bool = False) -> Hello:
    return Hello(
        host=f"h{host}",
        boot_id="1",
        version="1",
        dataplane_tag="t",
        nics=list(nics),
        desired_version=0,
        key_ids=[1],
        observe_only=observe_only,
    )


def two(host: int) -> Hello:
    return hello(host, nic(host, 0), nic(host, 1))


def one(host: int) -> Hello:
    return hello(host, nic(host, 0))


def steer(dst: str, number: int = 0, qpn: int = 1) -> SteerQp:
    return SteerQp(nic=f"nic{number}", dst_addr=dst, qpn=qpn, sport=50_000, backup_sport=50_001)


def test_partners_are_neighbours() -> None:
    names = ["a", "b", "c", "d", "e"]
    assert [partner_of(names, name) for name in names] == ["b", "a", "d", "c", None]


def test_none_leads_over_a_nic_that_cannot_take_it_in() -> None:
    """What is for its partner has no other way there; what is for itself still has the partner's."""
    far = hello(2, nic(2, 0), replace(nic(2, 1), takes_detours=False))
    found = detours([two(1), far], {"h1": [steer("10.0.0.2"), steer("10.1.0.2", 1)]})
    assert [(d.dst_addr, d.other_addr) for d in found["h1"]] == [("10.0.0.2", None), ("10.1.0.2", "10.0.0.2")]


def test_between_hosts_of_two_nics() -> None:
    found = detours([two(1), two(2)], {"h1": [steer("10.0.0.2"), steer("10.1.0.2", 1)]})
    assert [(d.nic, d.dst_addr, d.other_addr) for d in found["h1"]] == [
        ("nic0", "10.0.0.2", "10.1.0.2"),
        ("nic1", "10.1.0.2", "10.0.0.2"),
    ]
    assert all(49_152 <= d.sport <= 65_535 for d in found["h1"])


def test_one_for_each_address_and_the_same_every_time() -> None:
    steered = [steer("fd00:0::2", qpn=qpn) for qpn in range(5)]
    first = detours([two(1), two(2)], {"h1": steered})
    assert len(first["h1"]) == 1
    assert first == detours([two(2), two(1)], {"h1": steered[::-1]})
    assert first["h1"][0].other_addr == "fd00:1::2"


def test_to_a_host_of_one_nic() -> None:
    """By this host's other NIC only."""
    found = detours([two(1), one(2)], {"h1": [steer("10.0.0.2")]})
    assert [d.other_addr for d in found["h1"]] == [None]


def test_from_a_host_of_one_nic() -> None:
    found = detours([one(1), two(2)], {"h1": [steer("10.0.0.2")]})
    assert [d.other_addr for d in found["h1"]] == ["10.1.0.2"]


def test_nothing_to_go_round_by() -> None:
    assert detours([one(1), one(2)], {"h1": [steer("10.0.0.2")]}) == {}
    assert detours([one(1)], {"h1": [steer("192.0.2.1")], "h9": [steer("10.0.0.1")]}) == {}


def test_hosts_that_only_observe_take_no_part() -> None:
    """Neither at the sending end, nor as one that would have to give packets back."""
    observer = hello(2, nic(2, 0), nic(2, 1), observe_only=True)
    assert detours([two(1), observer], {"h2": [steer("10.0.0.1")]}) == {}
    assert detours([one(1), observer], {"h1": [steer("10.0.0.2")]}) == {}


def test_a_partner_without_a_dataplane_restores_nothing() -> None:
    absent = hello(2, nic(2, 0), nic(2, 1, mode="absent"))
    assert detours([one(1), absent], {"h1": [steer("10.0.0.2")]}) == {}


def test_a_partner_without_an_address_of_the_family() -> None:
    half = hello(2, nic(2, 0), nic(2, 1, ipv6=False))
    assert detours([one(1), half], {"h1": [steer("fd00:0::2")]}) == {}


def test_what_names_no_nic_of_the_host_is_passed_over() -> None:
    foreign = replace(steer("10.0.0.2"), nic="eth7")
    assert detours([two(1), two(2)], {"h1": [foreign]}) == {}

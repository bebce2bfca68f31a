"""Whose address is whose: what a host claims counts only where probes prove it."""

from collections.abc import Mapping

import numpy as np
import pytest
from fakes import hello, showing

from cwdp.shared.bus.messages import Desired, Hello, Nic, nic_id
from cwdp.shared.bus.records import WINDOW_ROW, packed_address
from cwdp.shared.bus.windows import window_report
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.overrides.steering import SteerOverride
from manager.state import FleetState

HOSTS = 4
Cut = frozenset[str]


def nic(host: int, number: int) -> Nic:
    """A NIC whose addresses tell where it is."""
    return Nic(
        ifname=f"nic{number}",
        mac="02:00:00:00:00:01",
        ipv4=f"10.{number}.0.{host}",
        ipv6=f"fd00:{number + 1}::{host}",
        carrier=True,
        mode="native",
    )


def _hello(host: int, *nics: Nic, version: int = 0) -> Hello:
    said = hello(f"h{host}", desired_version=version)
    return Hello(
        host=said.host,
        boot_id=said.boot_id,
        version=said.version,
        dataplane_tag=said.dataplane_tag,
        nics=list(nics) or [nic(host, 0), nic(host, 1)],
        desired_version=version,
        key_ids=[1],
    )


class _Fleet:
    """Hosts of two NICs each, and what truly has each address. A liar's hello says otherwise."""

    def __init__(self, *, version: int = 0, families: tuple[int, ...] = (4,)) -> None:
        self.state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
        self.now_s, self.families = 100.0, families
        self.true = {host: _hello(host, version=version) for host in range(1, HOSTS + 1)}
        self.said: dict[int, Hello] = dict(self.true)
        self.cut: Cut = frozenset()

    def steer(self, src: int, dst: str) -> None:
        self.state.steering.set(
            SteerOverride(host=f"h{src}", nic="nic0", dst=dst, qpn=7, sport=50_000, backup_sport=50_001)
        )

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1.0
            for said in self.said.values():
                self.state.hear_hello(said, self.now_s)
            self.state.traffic.hear_clock(showing(round(self.now_s * 1e9)), self.now_s)
            self._probe()
            self.state.expire(self.now_s)

    def detours(self, host: str) -> dict[str, str | None]:
        """By destination, the address to go to instead; as hosts were told last."""
        members = self.state.probeable(self.now_s)
        told: list[Desired] = self.state.schedule(members, self.state.build_graph(members))
        self.known = getattr(self, "known", {}) | {document.host: document for document in told}
        return {detour.dst_addr: detour.other_addr for detour in self.known[host].detours}

    def _probe(self) -> None:
        """Every NIC probes every other from and to where hellos say, and is answered by and at the true addresses."""
        owner = _addresses(self.true)
        said = [
            (nic_id(f"h{host}", port.ifname), port) for host, told in self.said.items() for port in told.nics
        ]
        for src, mine in said:
            rows = []
            for dst, theirs in said:
                for family in self.families:
                    here, there = (p.ipv4 if family == 4 else p.ipv6 for p in (mine, theirs))
                    if here is None or there is None or src.partition("/")[0] == dst.partition("/")[0]:
                        continue
                    ends = {owner.get(here), owner.get(there)}
                    lost = owner.get(here) != src or None in ends or ends & self.cut
                    rows.append(_row(there, round(self.now_s * 10) - 2, 2 if lost else 0))
            host, _, ifname = src.partition("/")
            told = np.concatenate(rows) if rows else np.zeros(0, WINDOW_ROW)
            self.state.hear_windows(window_report(host, [ifname], told), self.now_s)


def _addresses(hellos: Mapping[int, Hello]) -> dict[str, str]:
    return {
        address: nic_id(said.host, port.ifname)
        for said in hellos.values()
        for port in said.nics
        for address in (port.ipv4, port.ipv6)
        if address is not None
    }


def _row(dst: str, window: int, lost: int) -> np.ndarray:  # type: ignore[type-arg]
    row = np.zeros(1, WINDOW_ROW)
    row["dst_addr"], row["window"] = list(packed_address(dst)), window
    row["sport"], row["reply_sport"], row["sent"], row["lost"] = 50_000, 50_001, 2, lost
    return row


def _lie(fleet: _Fleet, liar: int, claimed: str) -> None:
    """A host says that its first NIC has an address that it has not."""
    mine = fleet.true[liar].nics
    told = Nic(
        ifname="nic0",
        mac=mine[0].mac,
        ipv4=claimed if "." in claimed else mine[0].ipv4,
        ipv6=claimed if ":" in claimed else mine[0].ipv6,
        carrier=True,
        mode="native",
    )
    fleet.said[liar] = _hello(liar, told, mine[1])


@pytest.mark.parametrize("families", [(4,), (4, 6)])
def test_an_address_that_probes_prove_has_its_detours(families: tuple[int, ...]) -> None:
    fleet = _Fleet(families=families)
    fleet.steer(1, "10.0.0.2")
    fleet.steer(1, "fd00:1::2")
    fleet.run(4)
    assert fleet.detours("h1") == {"10.0.0.2": "10.1.0.2", "fd00:1::2": "fd00:2::2"}


@pytest.mark.parametrize("victim", ["10.0.0.2", "10.9.9.9"])
@pytest.mark.parametrize("first", [True, False])
def test_who_claims_anothers_address_does_not_get_its_detours(victim: str, first: bool) -> None:
    """A member's or a stranger's, claimed before the victim is heard of or after."""
    fleet = _Fleet()
    fleet.steer(1, victim)
    if first:
        true = fleet.said.pop(2)
        _lie(fleet, 3, victim)
        fleet.run(5)
        fleet.said[2] = true
    else:
        fleet.run(5)
        _lie(fleet, 3, victim)
    fleet.run(20)
    assert fleet.detours("h1").get(victim) == ("10.1.0.2" if victim == "10.0.0.2" else None)
    assert fleet.state.members.nics_by_address["10.0.0.2"] == "h2/nic0"


def test_detours_stay_while_the_nic_is_dead_that_they_go_round() -> None:
    fleet = _Fleet()
    fleet.steer(1, "10.0.0.2")
    fleet.run(5)
    fleet.cut = frozenset({"h2/nic0"})
    fleet.run(30)
    assert fleet.detours("h1") == {"10.0.0.2": "10.1.0.2"}


def test_a_manager_that_begins_while_a_nic_is_dead_takes_over_what_goes_round_it() -> None:
    fleet = _Fleet(version=5)
    fleet.steer(1, "10.0.0.2")
    fleet.cut = frozenset({"h2/nic0"})
    fleet.run(30)
    assert fleet.detours("h1") == {"10.0.0.2": "10.1.0.2"}


def test_an_address_that_a_nic_has_no_more_has_no_detours() -> None:
    fleet = _Fleet()
    fleet.steer(1, "10.0.0.2")
    fleet.run(5)
    assert fleet.detours("h1") == {"10.0.0.2": "10.1.0.2"}
    moved = [nic(9, 0), fleet.true[2].nics[1]]
    fleet.true[2] = fleet.said[2] = _hello(2, *moved)
    fleet.run(5)
    assert fleet.detours("h1") == {"10.0.0.2": None}
    assert fleet.state.members.nics_by_address.get("10.0.0.2") is None
    assert fleet.state.members.nics_by_address["10.0.0.9"] == "h2/nic0"

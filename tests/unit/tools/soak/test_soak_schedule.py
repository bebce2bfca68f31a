"""What goes wrong when: seeded, within its tracks, and never more at a time than the fleet is made for."""

from itertools import pairwise

import pytest

from tools.lab.topology import LabSpec, Topology
from tools.soak.acts import ACTS
from tools.soak.schedule import CALM_S, PROCESSES_END_UNTIL, draw
from tools.soak.troubles import ABSENCE, BOTH, KINDS, TRACKS, Trouble

SIZES = [
    (LabSpec(leaves=3, spines=3, hosts_per_leaf=2, managers=2, servers=3), 300.0),
    (LabSpec(leaves=2, spines=2, hosts_per_leaf=1, managers=3, servers=5), 1800.0),
    (LabSpec(leaves=4, spines=2, hosts_per_leaf=3, managers=2, servers=3), 7200.0),
]
SEEDS = range(12)


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[1]:.0f} s")
def size(request: pytest.FixtureRequest) -> tuple[Topology, float]:
    spec, seconds = request.param
    return Topology(spec), seconds


def of_track(drawn: list[Trouble], track: str) -> list[Trouble]:
    return [each for each in drawn if each.kind in KINDS and KINDS[each.kind].track == track]


def test_a_seed_draws_the_same_and_another_one_other(size: tuple[Topology, float]) -> None:
    topology, seconds = size
    assert draw(topology, seconds, 5) == draw(topology, seconds, 5)
    assert draw(topology, seconds, 5) != draw(topology, seconds, 6)


def test_every_kind_can_be_made() -> None:
    assert set(ACTS) == {*KINDS, ABSENCE}


@pytest.mark.parametrize("seed", SEEDS)
def test_troubles_of_a_track_come_one_after_the_other_between_calms(
    size: tuple[Topology, float], seed: int
) -> None:
    topology, seconds = size
    drawn = draw(topology, seconds, seed)
    assert [each.begin_s for each in drawn] == sorted(each.begin_s for each in drawn)
    for track in TRACKS:
        mine = of_track(drawn, track)
        assert mine
        assert all(one.end_s < other.begin_s for one, other in pairwise(mine))
        assert mine[0].begin_s >= CALM_S
        assert mine[-1].end_s <= seconds - CALM_S


@pytest.mark.parametrize("seed", SEEDS)
def test_every_target_is_of_the_lab_and_of_its_kind(size: tuple[Topology, float], seed: int) -> None:
    topology, seconds = size
    among = {
        "manager": ["leader", *topology.managers],
        "server": topology.servers,
        "host": topology.hosts,
        "spine": topology.spines,
        "fleet": [""],
    }
    for each in draw(topology, seconds, seed):
        whom = "server" if each.kind == ABSENCE else KINDS[each.kind].whom
        if whom in among:
            assert each.target in among[whom]
            continue
        link = topology.link(each.target)
        assert each.direction in (BOTH, *link.directions)
        is_of_host = link.a.node in topology.hosts
        assert whom == "link" or is_of_host == (whom == "hostlink")


@pytest.mark.parametrize("seed", SEEDS)
def test_at_most_one_bus_server_is_in_trouble_at_a_time(size: tuple[Topology, float], seed: int) -> None:
    topology, seconds = size
    drawn = draw(topology, seconds, seed)
    (absence,) = [each for each in drawn if each.kind == ABSENCE]
    assert absence.end_s < seconds
    others = [each for each in drawn if each.kind in KINDS and KINDS[each.kind].whom == "server"]
    assert not [each for each in others if each.begin_s < absence.end_s and absence.begin_s < each.end_s]


@pytest.mark.parametrize("seed", SEEDS)
def test_processes_end_in_the_first_half_only(size: tuple[Topology, float], seed: int) -> None:
    topology, seconds = size
    drawn = draw(topology, seconds, seed)
    ending = [each for each in drawn if each.kind in KINDS and KINDS[each.kind].ends_process]
    assert ending
    assert all(each.begin_s <= PROCESSES_END_UNTIL * seconds for each in ending)
    assert [each for each in drawn if each.begin_s > PROCESSES_END_UNTIL * seconds]


def test_in_half_an_hour_everything_goes_wrong() -> None:
    spec, _ = SIZES[0]
    for seed in SEEDS:
        assert {each.kind for each in draw(Topology(spec), 1800.0, seed)} == {*KINDS, ABSENCE}

"""Queue pairs that hardware sends, in the planner: what cannot move stays, what drains moves seldom, what comes is spread."""

import numpy as np
import pytest
from fakes import hello, nic
from msgspec.structs import replace
from planner_world import PORTS, World

from cwdp.shared.bus.messages import ACTUATORS, Actuator, Spread, UdAddress
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.bus.records import VERBS_ROW, packed_address
from cwdp.shared.verbs import NicVerbs, VerbsReport
from manager.fabric.routes import DirectedLink, PathName
from manager.planner.candidates import Candidates
from manager.planner.moves import DRAINED_REST_S
from manager.planner.spreads import LEAST_SHARE, LOOK_S, MOST_CHOICES, Spreads, shares

FLOWS = 4


def contention() -> World:
    """Four flows between two leaves, all over one of four spines; others, within the leaves, show what a NIC carries."""
    world = World(spines=4, hosts_per_leaf=6, spine_bps=101e6)
    for i in range(FLOWS):
        qp = world.add(i, 6 + i)
        qp.sport = next(port for port in range(50_000, 50_000 + PORTS) if over(world, qp, port) == 0)
    world.add(4, 5)
    world.add(10, 11)
    return world


def spines(world: World) -> list[int]:
    """Which each of the four crosses."""
    return [over(world, qp) for qp in world.qps[:FLOWS]]


def over(world: World, qp: object, port: int | None = None) -> int:
    """The spine that a queue pair crosses, by its number."""
    link = world.links[world.path(qp, port)[1]]  # type: ignore[arg-type]
    return int(link.b[1:])


def tell(world: World, actuator: Actuator) -> None:
    """All of its queue pairs are known by the shim."""
    for qp in world.qps:
        row = np.zeros(1, VERBS_ROW)
        row["addr"] = np.frombuffer(packed_address(world.address(qp.dst)), np.uint8)
        row["qpn"], row["actuator"] = qp.qpn, ACTUATORS.index(actuator)
        told = VerbsReport(host=f"h{qp.src}", nics=[NicVerbs(nic="eth0", rows=row_bytes(row))])
        world.planner._verbs.hear(told, {"eth0"}, 0.0)


@pytest.mark.parametrize("actuator", ["create_only", "apm"])
def test_what_cannot_be_moved_is_not_and_others_go_round_it(actuator: Actuator) -> None:
    world = contention()
    tell(world, actuator)
    others = [world.add(0, 7), world.add(1, 8)]
    ports = [qp.sport for qp in world.qps[:4]]
    world.run(8.0)
    assert [qp.sport for qp in world.qps[:4]] == ports
    assert [qp.backup for qp in world.qps[:4]] == [None] * 4
    assert 0 not in [over(world, qp) for qp in others]


def test_what_its_device_can_move_is_moved_like_any_other() -> None:
    world = contention()
    tell(world, "mlx5dv")
    world.run(8.0)
    assert sorted(spines(world)) == [0, 1, 2, 3]


def test_what_is_drained_is_moved_for_room_but_not_off_a_dead_link_and_not_again_soon() -> None:
    world = contention()
    tell(world, "sqd")
    world.run(8.0)
    assert sorted(spines(world)) == [0, 1, 2, 3]
    moves = world.moves()
    lost = world.qps[1]
    world.localised = {
        DirectedLink("l0", f"s{over(world, lost)}"),
        DirectedLink(f"s{over(world, lost)}", "l1"),
    }
    world.run(DRAINED_REST_S / 4)
    assert world.moves() == moves


def hellos(world: World, *, verbs: bool) -> list[object]:
    ud = UdAddress("::ffff:10.0.0.5", 77)
    return [
        replace(
            hello(f"h{h}"),
            nics=[replace(nic("eth0", ipv4=world.address(h), ipv6=None), ud=ud)],
            verbs=verbs and h == 0,
        )
        for h in range(world.hosts)
    ]


def spreads(
    world: World, made: Spreads, *, verbs: bool = True, dead: set[DirectedLink] | None = None
) -> dict[str, list[Spread]]:
    pairs = [("h0/eth0", world.address(4)), ("h1/eth0", world.address(4))]
    return dict(made.of(hellos(world, verbs=verbs), pairs, world.candidates, dead or set()))  # type: ignore[attr-defined, arg-type]


def test_what_is_yet_to_be_connected_is_spread_over_the_paths_that_live() -> None:
    world = World(spines=4, hosts_per_leaf=4)
    world.candidates = Candidates(world.routes)  # type: ignore[attr-defined]
    made = Spreads()
    assert spreads(world, made, verbs=False) == {}
    found = spreads(world, made)
    assert found.keys() == {"h0"}
    (spread,) = found["h0"]
    assert (spread.nic, spread.dst_addr, spread.dst_ud) == (
        "eth0",
        world.address(4),
        UdAddress("::ffff:10.0.0.5", 77),
    )
    crossed = {
        world.links[world.routes.paths[PathName("h0/eth0", spread.dst_addr, port)][1]].b
        for port in spread.sports
    }
    assert (len(spread.sports), crossed) == (4, {"s0", "s1", "s2", "s3"})
    dead = {DirectedLink("s2", "l1")}
    (spread,) = spreads(world, made, dead=dead)["h0"]
    assert len(spread.sports) == 3
    assert spreads(world, made, dead=dead) is not None
    everything = {DirectedLink(f"s{i}", "l1") for i in range(4)}
    (spread,) = spreads(world, made, dead=everything)["h0"]
    assert len(spread.sports) == 4


def test_of_many_paths_a_spread_takes_as_many_as_fit_over_different_links() -> None:
    world = World(spines=24, hosts_per_leaf=4)
    world.candidates = Candidates(world.routes)  # type: ignore[attr-defined]
    (spread,) = spreads(world, Spreads())["h0"]
    crossed = {world.routes.paths[PathName("h0/eth0", spread.dst_addr, port)] for port in spread.sports}
    assert len(spread.sports) == len(crossed) == MOST_CHOICES


@pytest.mark.parametrize(
    ("loads", "found"),
    [
        ([], []),
        ([0.0] * 4, []),
        ([0.75] * 4, []),
        ([1.0, 0.0, 0.0, 0.0], [0.1875, 1.0, 1.0, 1.0]),
        ([1.0, 1.0, 1.0, 0.0], [0.4375, 0.4375, 0.4375, 1.0]),
        ([0.0, 9.0], [1.0, LEAST_SHARE]),
    ],
)
def test_paths_that_carry_more_have_less_of_what_is_yet_to_be_connected(
    loads: list[float], found: list[float]
) -> None:
    assert shares(loads) == found


def loaded(world: World, *spines: int) -> np.ndarray:  # type: ignore[type-arg]
    """What is put on links where those from these spines to the far leaf are full."""
    names = {f"s{spine}" for spine in spines}
    return np.array([float(link.a in names and link.b == "l1") for link in world.links])


def test_of_many_paths_a_spread_takes_those_that_carry_least() -> None:
    world = World(spines=24, hosts_per_leaf=4)
    world.candidates = Candidates(world.routes)  # type: ignore[attr-defined]
    made = Spreads()
    made.see(world.routes.links, loaded(world, *range(8)), 0.0)
    (spread,) = spreads(world, made)["h0"]
    crossed = {
        int(world.links[world.routes.paths[PathName("h0/eth0", spread.dst_addr, port)][1]].b[1:])
        for port in spread.sports
    }
    assert (crossed, spread.shares) == (set(range(8, 24)), [])


def test_loads_that_change_little_or_just_now_change_no_spread() -> None:
    world = World(spines=4, hosts_per_leaf=4)
    world.candidates = Candidates(world.routes)  # type: ignore[attr-defined]
    made, full = Spreads(), loaded(world, 0)
    made.see(world.routes.links, full, 0.0)
    found = spreads(world, made)
    assert sorted(found["h0"][0].shares) == [0.1875, 1.0, 1.0, 1.0]
    for loads, now_s in ((0.85 * full, LOOK_S), (0.0 * full, 1.5 * LOOK_S)):
        made.see(world.routes.links, loads, now_s)
        assert not made.is_stale
    made.see(world.routes.links, 0.0 * full, 2 * LOOK_S)
    assert made.is_stale
    assert spreads(world, made)["h0"][0].shares == []
    assert not made.is_stale


def test_what_is_yet_to_be_connected_goes_round_what_cannot_be_moved() -> None:
    world = contention()
    tell(world, "create_only")
    for host in ("h2", "h3"):
        known = world.members.hosts[host].hello
        world.members.hear(replace(known, verbs=True), world.now_s)
    world.run(8.0)
    (spread,) = world.planner.spreads([("h2/eth0", world.address(9))])["h2"]
    share = {
        world.links[world.routes.paths[PathName("h2/eth0", spread.dst_addr, port)][1]].b: part
        for port, part in zip(spread.sports, spread.shares, strict=True)
    }
    assert share["s0"] < 0.5
    assert [share[f"s{spine}"] for spine in (1, 2, 3)] == [1.0] * 3

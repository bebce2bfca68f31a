"""How connections over InfiniBand come to be spread: in arrays, over leaves and spines, by the choice that both ends make."""

from bisect import bisect_left
from collections import Counter
from random import Random

import numpy as np
import pytest

from cwdp.rdma.ib.lid import point
from cwdp.shared.addresses import PortLids
from cwdp.shared.bus.messages import Spread
from manager.ib.balance import End, paths, spreads

LEAVES = SPINES = 4
HOSTS_OF_A_LEAF = 4
LMC = 2
PATHS = 1 << LMC


def end(host: int, lmc: int = LMC) -> End:
    return End("mlx5_0", f"fe80::{host + 1:x}", PortLids((host + 1) * 8, lmc))


def up(leaf: int, spine: int) -> int:
    return leaf * SPINES + spine


def down(leaf: int, spine: int) -> int:
    return LEAVES * SPINES + up(leaf, spine)


def ways(src: int, dst: int) -> list[tuple[int, ...]]:
    """Path k between hosts goes over spine k, there and back, as fat-tree routing has it with an LMC."""
    a, b = src // HOSTS_OF_A_LEAF, dst // HOSTS_OF_A_LEAF
    return [(up(a, k), down(b, k), up(b, k), down(a, k)) for k in range(PATHS)]


def drawn(spread: Spread, at: int) -> int:
    """The path that a table of these shares gives at a point."""
    parts = spread.shares or [1.0] * len(spread.sports)
    sums = np.round(np.cumsum(parts) / sum(parts) * 2**32) - 1
    assert spread.lids is not None
    return spread.sports[bisect_left(sums, at)] - spread.lids.lid


def place(
    connections: list[tuple[int, int, int, int]], every: int, capacity: int, full: Counter[int]
) -> np.ndarray:
    """What is on each link once these are connected, of which the manager is told after `every` of them."""
    loads = np.zeros(2 * LEAVES * SPINES)
    for link, load in full.items():
        loads[link] = load
    seen = loads.copy()
    for count, (src, dst, qpn, dest_qpn) in enumerate(connections):
        if count % every == 0:
            seen = loads / capacity
        found = spreads(end(src), end(dst), ways(src, dst), seen.tolist())
        assert found is not None
        numbers = {
            drawn(found[0], point((end(src).lids.lid, qpn), (end(dst).lids.lid, dest_qpn))),
            drawn(found[1], point((end(dst).lids.lid, dest_qpn), (end(src).lids.lid, qpn))),
        }
        assert len(numbers) == 1  # both ends take the same
        loads[list(ways(src, dst)[numbers.pop()])] += 1
    return loads


def pairs(count: int, seed: int) -> list[tuple[int, int, int, int]]:
    """Connections between hosts of different leaves: as many of each leaf as of any other."""
    random = Random(seed)
    qpns = Counter({host: random.randrange(1 << 20) for host in range(LEAVES * HOSTS_OF_A_LEAF)})
    found = []
    for n in range(count):
        a, b = n % LEAVES, (n + 1 + n // LEAVES % (LEAVES - 1)) % LEAVES
        src, dst = (leaf * HOSTS_OF_A_LEAF + random.randrange(HOSTS_OF_A_LEAF) for leaf in (a, b))
        qpns[src] += 1
        qpns[dst] += 1
        found.append((src, dst, qpns[src], qpns[dst]))
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("every", [1, 16])
def test_links_come_to_be_filled_within_a_tenth_of_the_best_placement(seed: int, every: int) -> None:
    count = 512
    loads = place(pairs(count, seed), every, 32, Counter())
    # Each connection is on an uplink of either leaf: the best placement has them equal.
    best = 2 * count / LEAVES / SPINES
    assert loads[: LEAVES * SPINES].sum() == 2 * count
    assert loads.max() <= 1.1 * best


@pytest.mark.parametrize("seed", range(5))
def test_what_others_have_put_on_links_is_made_up_for(seed: int) -> None:
    full = Counter(
        {up(leaf, 0): 64 for leaf in range(LEAVES)} | {down(leaf, 0): 64 for leaf in range(LEAVES)}
    )
    loads = place(pairs(512, seed), 16, 32, full)
    best = (2 * 512 + LEAVES * 64) / LEAVES / SPINES
    assert loads.max() <= 1.1 * best


def test_one_pair_of_hosts_takes_all_paths_alike() -> None:
    connections = [(0, 8, 500 + n, 900 + 3 * n) for n in range(64)]
    loads = place(connections, 64, 32, Counter())
    assert loads[: LEAVES * SPINES].max() <= 18


def test_both_hosts_are_told_the_same_paths_with_the_lids_of_the_other() -> None:
    loads = [0.0] * (2 * LEAVES * SPINES)
    loads[up(0, 1)] = 0.9
    found = spreads(end(0), end(5), ways(0, 5), loads, {up(1, 2)})
    assert found is not None
    there, back = found
    assert (there.sports, back.sports) == ([48, 49, 51], [8, 9, 11])
    assert there.shares == back.shares
    assert there.shares[1] < there.shares[0] == there.shares[2] == 1
    assert (there.dst_addr, there.lids, back.lids) == (end(5).addr, PortLids(48, 2), PortLids(8, 2))


def test_where_all_paths_are_to_be_avoided_they_are_as_good_as_any() -> None:
    dead = {up(0, k) for k in range(PATHS)}
    found = spreads(end(0), end(5), ways(0, 5), [0.0] * 32, dead)
    assert found is not None
    assert len(found[0].sports) == PATHS


@pytest.mark.parametrize(("one", "other", "count"), [(2, 2, 4), (0, 2, 1), (2, 0, 1), (1, 3, 2), (7, 7, 128)])
def test_two_ports_have_the_paths_of_the_lower_lmc(one: int, other: int, count: int) -> None:
    assert (
        paths(PortLids(8, one), PortLids(16, other)) == paths(PortLids(8, other), PortLids(16, one)) == count
    )


@pytest.mark.parametrize(
    ("lmc", "routes"),
    [(0, [(1,), (2,), (3,), (4,)]), (2, [(1,), (), (), ()]), (2, [(), (), (), ()]), (1, [(), (1,), (2,)])],
)
def test_without_a_choice_nothing_is_told(lmc: int, routes: list[tuple[int, ...]]) -> None:
    assert spreads(end(0, lmc), end(5, lmc), routes, [0.0] * 8) is None


def test_a_path_without_a_route_is_not_taken() -> None:
    found = spreads(end(0), end(5), [(1,), (), (2,), (3,)], [0.0] * 4)
    assert found is not None
    assert found[0].sports == [48, 50, 51]


def test_of_many_paths_sixteen_are_chosen() -> None:
    found = spreads(end(0, 7), end(5, 7), [(k,) for k in range(128)], [k / 128 for k in range(128)])
    assert found is not None
    assert len(found[0].sports) == 16
    assert found[0].sports[0] == 48

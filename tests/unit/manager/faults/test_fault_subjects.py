"""What links belong to, by arrays, is what it is by looking at one after the other."""

import random
from collections.abc import Iterable

import numpy as np
import pytest

from manager.fabric.routes import DirectedLink, is_nic
from manager.faults.causes import belonging_of
from manager.faults.finding import Subject, cable, direction

NODES = [f"h{i}/nic{j}" for i in range(4) for j in range(2)] + [f"10.0.0.{i}" for i in range(5)]
NODES += ["?10.0.0.1>10.0.0.2", "?h0/nic0>10.0.0.1:5"]


def by_hand(links: Iterable[DirectedLink]) -> list[Subject]:
    links = tuple(links)
    found = list({each.name: each for each in map(cable, links)}.values()) + [
        direction(link) for link in links
    ]
    touching: dict[tuple[str, str], list[DirectedLink]] = {}
    for link in links:
        for node in link:
            place = ("host", node.partition("/")[0]) if is_nic(node) else ("switch", node)
            touching.setdefault(place, []).append(link)
    found += [
        Subject("host" if kind == "host" else "switch", name, tuple(near))
        for (kind, name), near in touching.items()
    ]
    return found


def drawn(seed: int) -> tuple[DirectedLink, ...]:
    draw = random.Random(seed)
    pairs = (draw.sample(NODES, 2) for _ in range(draw.randrange(60)))
    return tuple(dict.fromkeys(DirectedLink(a, b) for a, b in pairs))


@pytest.mark.parametrize("seed", range(40))
def test_subjects_and_their_links(seed: int) -> None:
    links = drawn(seed)
    found = belonging_of(links)
    assert list(found.subjects) == by_hand(links)
    expected = [[float(link in each.links) for each in found.subjects] for link in links]
    assert np.array_equal(found.of_link.toarray() > 0, np.array(expected).reshape(found.of_link.shape) > 0)


@pytest.mark.parametrize("seed", range(40))
def test_what_can_be_a_cause_and_what_tells_nothing_new(seed: int) -> None:
    links = drawn(seed)
    found = belonging_of(links)
    for each, is_whole, is_nics_way in zip(found.subjects, found.is_whole, found.is_nics_way, strict=True):
        nics = {node for link in each.links for node in link if is_nic(node)}
        several = {"host": len(nics) > 1, "link": set(each.links) <= set(links)}
        assert is_whole == several.get(each.kind, True)
        assert is_nics_way == (each.kind == "direction" and bool(nics))
    some, of_link = found.only(found.is_whole)
    assert len(some) == of_link.shape[1] == found.is_whole.sum()

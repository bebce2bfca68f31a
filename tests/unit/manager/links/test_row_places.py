"""Rows among paths: what is taken over from an earlier look is what a look at everything finds."""

import random

import numpy as np
import pytest

from manager.fabric.routes import DirectedLink, PackedPaths, Pair, PathName, Routes
from manager.links.matrix import PathMatrix, build_matrix
from manager.links.row_places import Nics
from manager.paths.windows import RowName

NICS, PORTS, LINKS, MOST_LINKS = 5, 6, 12, 4


class World:
    """Paths, rows and NICs that change at random as those of a fleet do; inner mappings are replaced, not changed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.owner = {f"10.0.0.{i}": f"h{i}/nic0" for i in range(NICS)}
        self.pairs: dict[Pair, dict[int, int]] = {}
        self.crossed = np.full((200, MOST_LINKS), -1, np.int32)
        self.free = list(range(200))
        self.names: list[RowName | None] = [None] * 40
        self.version = 0
        for _ in range(60):
            self.add_path()
            self.rename_row()

    def add_path(self) -> None:
        pair, port, row = self._pair(), self.rng.randrange(PORTS), self.free[-1]
        if port in self.pairs.get(pair, {}):
            return
        self.free.pop()
        self.pairs[pair] = {**self.pairs.get(pair, {}), port: row}
        self.turn_path(row)

    def drop_path(self) -> None:
        pair = self.rng.choice(list(self.pairs))
        port = self.rng.choice(list(self.pairs[pair]))
        self.free.append(self.pairs[pair][port])
        self.pairs[pair] = {other: row for other, row in self.pairs[pair].items() if other != port}
        if not self.pairs[pair]:
            del self.pairs[pair]

    def turn_path(self, row: int) -> None:
        links = self.rng.sample(range(LINKS), self.rng.randrange(1, MOST_LINKS))
        self.crossed[row] = [*links, *[-1] * (MOST_LINKS - len(links))]

    def rename_row(self) -> None:
        src, dst = self._pair()
        ports = self.rng.randrange(PORTS), self.rng.randrange(PORTS)
        named = RowName(src, dst, *ports) if self.rng.random() < 0.8 else None
        self.names[self.rng.randrange(len(self.names))] = named

    def move_nic(self) -> None:
        one, other = self.rng.sample(list(self.owner), 2)
        self.owner = self.owner | {one: self.owner[other], other: self.owner[one]}

    def change(self) -> None:
        for _ in range(self.rng.randrange(4)):
            self.rng.choice([self.add_path, self.drop_path, self.rename_row])()
        if self.rng.random() < 0.3:
            pair = self.rng.choice(list(self.pairs))
            self.turn_path(self.rng.choice(list(self.pairs[pair].values())))
        if self.rng.random() < 0.2:
            self.names += [None] * self.rng.randrange(5)
        if self.rng.random() < 0.1:
            self.move_nic()

    def matrix(self, before: PathMatrix | None) -> PathMatrix:
        self.version += 1
        links = tuple(DirectedLink(f"s{i}", f"s{i + 1}") for i in range(LINKS))
        routes = Routes(self.version, links, PackedPaths(dict(self.pairs), self.crossed.copy()))
        addresses = {nic: [address] for address, nic in self.owner.items()}
        return build_matrix(tuple(self.names), routes, Nics(dict(self.owner), addresses), before)

    def _pair(self) -> Pair:
        src, dst = self.rng.sample(range(NICS), 2)
        return f"h{src}/nic0", f"10.0.0.{dst}"


@pytest.mark.parametrize("seed", range(30))
def test_what_is_taken_over_is_what_would_be_found(seed: int) -> None:
    world = World(seed)
    matrix = world.matrix(None)
    assert matrix.known.any()
    for _ in range(40):
        world.change()
        matrix, whole = world.matrix(matrix), world.matrix(None)
        assert matrix.same_as(whole)
        assert np.array_equal(matrix.known, whole.known)
        assert np.array_equal(matrix.place, whole.place)
        for i, name in enumerate(world.names):
            if name is not None:
                links = matrix.routes.paths.get(PathName(*name[:3]), ())
                assert sorted(matrix.fwd[[i]].indices.tolist()) == sorted(links)


def test_only_rows_that_may_be_elsewhere_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world, looked_up = World(1), list[RowName]()
    before = world.matrix(None)
    reply = Nics.reply

    def counted(nics: Nics, name: RowName) -> PathName | None:
        looked_up.append(name)
        return reply(nics, name)

    monkeypatch.setattr(Nics, "reply", counted)
    world.matrix(before)
    assert looked_up == []
    world.names[3] = RowName("h1/nic0", "10.0.0.2", 1, 2)
    world.matrix(before)
    assert looked_up == [world.names[3]]


def test_pairs_that_no_row_is_of_any_more_are_forgotten() -> None:
    world = World(2)
    matrix = world.matrix(None)
    world.names = [None] * 39 + [RowName("h1/nic0", "10.0.0.2", 1, 2)]
    matrix = world.matrix(matrix)
    assert len(matrix.places.numbers) <= 2
    assert matrix.same_as(world.matrix(None))


def test_plain_routes_are_the_same_as_packed_ones() -> None:
    world = World(3)
    packed = world.matrix(None)
    routes = packed.routes
    plain = Routes(routes.version, routes.links, dict(routes.paths))
    nics = packed.places.nics
    assert build_matrix(tuple(world.names), plain, nics).same_as(packed)

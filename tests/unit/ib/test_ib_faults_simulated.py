"""Random faults of a subnet that ibsim and opensm make, read by datagrams and judged: each is named in three polls."""

import random
from collections.abc import Iterator

import need
import numpy as np
import pytest

from tools.bench.ib.faults import KINDS, READER, try_one
from tools.bench.ib.polled import Polled
from tools.ib.faults import Kind, draw
from tools.ib.simulated import LIBRARY, Subnet
from tools.ib.topology import Clos
from tools.ib.traffic import Traffic

TOPOLOGY = Clos(leaves=3, spines=2, hosts=3)
EACH = 3
WARM_POLLS = 6


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Polled]:
    for what in ("ibsim", "opensm", LIBRARY):
        need.installed(what)
    traffic = Traffic(TOPOLOGY, np.random.default_rng(2))
    with (
        Subnet(TOPOLOGY, tmp_path_factory.mktemp("ib")) as subnet,
        Polled(subnet, traffic) as running,
    ):
        for _ in range(WARM_POLLS):
            assert running.poll() == []
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_faults_are_named_in_three_polls(polled: Polled, kind: Kind) -> None:
    rng = random.Random(f"{kind} 5")
    for _ in range(EACH):
        tried = try_one(polled, draw(kind, TOPOLOGY, rng, readers=[READER]))
        assert tried.polls is not None, tried
        assert tried.besides == (), tried


def test_a_minute_without_a_fault_finds_nothing(polled: Polled) -> None:
    assert [found for _ in range(60) for found in polled.poll()] == []

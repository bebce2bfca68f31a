"""The whole way over subnets that ibsim and opensm make: an agent's process reads, the manager's model says what there is."""

import itertools
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import need
import numpy as np

from cwdp.agent.ib.orders import IbOrder, IbWord
from manager.fabric.model import Model
from manager.fabric.routes import Routes
from manager.ib.subnets import SubnetNow, Subnets
from manager.ib.ways import Way, chosen, ways
from tools.ib.simulated import LIBRARY, Subnet
from tools.ib.topology import Clos

PAIRS = 1_000
WAIT_S = 60.0
MOST_IN_VAIN = 0.03
"""Share of datagrams for what is behind a link that goes at that moment, or whose answer a busy machine is too slow for."""


class Reader:
    """The agent's process at a host, and a manager that hears what it says."""

    def __init__(self, subnet: Subnet, host: str) -> None:
        self.manager, self.words = Subnets(), list[IbWord]()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cwdp.agent.ib.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=subnet.environment(host),
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(IbOrder(host=host)) + b"\n")
        self._process.stdin.flush()

    def until(self, is_there: Callable[[], bool]) -> None:
        """Hear until something is so."""
        assert self._process.stdout is not None
        began_s = time.monotonic()
        while not is_there():
            assert time.monotonic() - began_s < WAIT_S, self.words[-1:]
            word = msgspec.json.decode(self._process.stdout.readline(), type=IbWord)
            self.words.append(word)
            for message in (word.subnet, word.tables, word.growth):
                if message is not None:
                    hear = {kind: take for _, kind, take in self.manager.hears()}
                    hear[type(message)](message, time.monotonic())

    @property
    def now(self) -> SubnetNow:
        (now,) = self.manager.now
        return now

    def is_known(self, links: int) -> bool:
        """Whether one subnet is known, with so many cables."""
        return bool(self.manager.now) and len(self.now.subnet.links) == links

    def end(self) -> None:
        """Its input ends, and so does it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10.0)


@contextmanager
def reading(subnet: Subnet, host: str) -> Iterator[Reader]:
    reader = Reader(subnet, host)
    try:
        yield reader
    finally:
        reader.end()


@contextmanager
def running(topology: Clos, folder: Path, *, lmc: int = 2) -> Iterator[Subnet]:
    for what in ("ibsim", "opensm", "ibtracert", LIBRARY):
        need.installed(what)
    with Subnet(topology, folder, lmc=lmc) as subnet:
        yield subnet


def test_every_pair_of_hosts_has_two_ways_that_share_nothing(tmp_path: Path) -> None:
    with running(Clos(), tmp_path) as subnet, reading(subnet, "h7") as reader:
        reader.until(lambda: reader.is_known(32))
        routes = reader.now.routes
        for a, b in itertools.permutations(reader.now.names.nics.values(), 2):
            best = chosen(ways(routes, a, b))
            if routes.first_switch(a) != routes.first_switch(b):
                assert best.primary
                assert best.backup
                assert not set(best.primary.between) & set(best.backup.between)


def _traced(text: str) -> list[str]:
    """The ports that packets leave by, as ibtracert tells."""
    nodes = re.findall(r'lid \d+-\d+ "(\w+)"', text)
    by = re.findall(r"^\[(\d+)\] ->", text, flags=re.MULTILINE)
    return [f"{node}:{port}" for node, port in zip(nodes, by, strict=False)]


def test_a_re_route_is_told_as_tables(tmp_path: Path) -> None:
    with running(Clos(), tmp_path) as subnet, reading(subnet, "h7") as reader:
        reader.until(lambda: reader.is_known(32) and reader.now.growth is not None)
        count, before = len(reader.words), reader.now.subnet
        subnet.run("h1", ["opensm", "-o", "-R", "updn", "--lmc", "2", "-f", tmp_path / "again.log"])
        reader.until(lambda: not np.array_equal(reader.now.subnet.tables, before.tables))
        assert any(word.tables is not None for word in reader.words[count:])
        _settle(reader)
        for src, way, traced in _traces(subnet, reader, 20):
            assert way == traced, src


def test_a_host_that_does_not_answer_is_silent_and_one_that_loses_some_is_not(tmp_path: Path) -> None:
    with running(Clos(), tmp_path) as subnet, reading(subnet, "h7") as reader:
        reader.until(lambda: reader.is_known(32))
        subnet.console('Error "h12" 100')
        reader.until(lambda: [reader.now.names.ports[row] for row in reader.now.subnet.silent] == ["l3:4"])
        subnet.console('Error "h12" 0')
        subnet.console('Error "l4" 10')
        reader.until(lambda: reader.now.subnet.silent == () and reader.is_known(32))
        assert reader.words[-1].counters["ib_timed_out"] > 0


def test_a_subnet_of_1024_hosts_is_known_whole_and_kept_fresh(tmp_path: Path) -> None:
    with running(Clos(leaves=32, spines=16, hosts=32), tmp_path) as subnet, reading(subnet, "h1") as reader:
        cables = 32 * 16 + 1_024
        reader.until(lambda: reader.is_known(cables))
        links = reader.manager.links(time.monotonic())
        model = Model(Routes(), links.nics, links.links)
        assert (len(model.seats), len(model.nodes), len(model.cables)) == (1_024, 48, 32 * 16)
        assert [node.tier for node in model.nodes] == [1] * 32 + [2] * 16
        for src, way, traced in _traces(subnet, reader, PAIRS):
            assert way == traced, src
        subnet.console('unlink "l1"[33]')
        reader.until(lambda: reader.is_known(cables - 1))
        subnet.console('unlink "l9"[4]')
        reader.until(lambda: reader.is_known(cables - 2))
        assert len(reader.now.names.nics) == 1_023
        subnet.console('link "l1"[33] "s1"[1]')
        reader.until(lambda: reader.is_known(cables - 1))
        counters = reader.words[-1].counters
        assert counters["ib_timed_out"] < MOST_IN_VAIN * counters["ib_asked"]


def _settle(reader: Reader) -> None:
    """Hear for two readings of counters."""
    count = len(reader.words)
    reader.until(lambda: sum(word.growth is not None for word in reader.words[count:]) > 1)


def _traces(subnet: Subnet, reader: Reader, count: int) -> Iterator[tuple[str, list[str], list[str]]]:
    """Of pairs at random: who sends, the ports of one way by the model, and those of ibtracert."""
    draw, now = random.Random(11), reader.now
    nics, ports = now.names.nics, now.names.ports
    pairs = [draw.sample(sorted(nics), 2) for _ in range(count)]
    drawn = [(src, draw.choice(ways(now.routes, nics[src], nics[dst]))) for src, dst in pairs]

    def trace(src: str, way: Way) -> str:
        lid = now.subnet.ports["lid"][nics[src]]
        return subnet.run("h2", ["ibtracert", str(lid), str(way.dlid)]).stdout

    with ThreadPoolExecutor(2) as pool:
        for (src, way), text in zip(drawn, pool.map(lambda one: trace(*one), drawn), strict=True):
            yield src, [ports[row].replace("/", ":") for row in way.leaves or ()], _traced(text)


def test_no_device_is_said() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cwdp.agent.ib.process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        process.stdin.write(msgspec.json.encode(IbOrder(host="h1", device="none")) + b"\n")
        process.stdin.flush()
        word = msgspec.json.decode(process.stdout.readline(), type=IbWord)
    process.wait(WAIT_S)
    assert "cannot be opened" in word.trouble or "not installed" in word.trouble
    assert word.growth is not None
    assert word.growth.trouble == word.trouble

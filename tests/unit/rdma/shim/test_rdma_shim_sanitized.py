"""Many threads, an agent that moves what it hears of and comes and goes, children: without a word of ASan, LSan, UBSan or TSan."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from shim_programs import HERE, SOURCES, TABLE
from test_rdma_shim_lids import lid_table

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import How, Message, Moved, QpPath, QpState, Route
from tools.shim import Built, FakeAgent, Program, build
from tools.shim.agent import Peer
from tools.shim.program import ERR, GID, INIT, RTR

SANITIZERS = ("address,undefined", "thread")
STRESS_MS = 3000
THREADS = 6
STAYS_S = 0.5
"""How long the agent stays before it comes anew."""

AT_ONCE = 300
"""Messages that the agent takes in before it gives orders."""

CHILDREN = 5
ENDED, STOOD_STILL = "0", str(int(signal.SIGALRM))
"""GCC 12's ASan leaves its allocator's lock to a child as another thread had it at fork; without ASan no child stands still."""

CHILD = f"fork open {{}};sleep 100;create 0 rc;modify 0 1;modify 0 2 path={GID.hex()};destroy 0"

DGIDS = [bytes(15) + bytes([n]) for n in range(8)]


@pytest.fixture(scope="module", params=SANITIZERS)
def sanitized(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, built: Built
) -> Built:
    return build(tmp_path_factory.mktemp(request.param.split(",")[0]), request.param)


class BusyAgent(threading.Thread):
    """Gives tables, orders what it hears of to be moved, and comes anew all the time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._ends = threading.Event()
        self.moved: list[Moved] = []
        self.met = 0

    def run(self) -> None:
        while not self._ends.is_set():
            with FakeAgent(self._path) as agent, suppress(ConnectionError, TimeoutError):
                peer = agent.accept(0.5)
                self.met += 1
                self._serve(peer, time.monotonic() + STAYS_S)

    def _serve(self, peer: Peer, until: float) -> None:
        """Of all that has come, those that it heard of last may be there yet."""
        number = 0
        while time.monotonic() < until:
            number += 1
            routes = [Route(HERE, gid, ((0xC001 + number % 99, 1.0), (0xC0FF, 2.0))) for gid in DGIDS]
            peer.give(shimwire.pack(number, SOURCES, routes) if number % 2 else lid_table())
            told: list[Message] = []
            while len(told) < AT_ONCE and (message := peer.hear(0.002)) is not None:
                told.append(message)
            self.moved += [message for message in told if isinstance(message, Moved)]
            for each in [message for message in told if isinstance(message, QpPath | QpState)][-8:]:
                peer.order(each.device, each.qpn, 0xC000 + number, with_sqd=True)
                if each.device.startswith("ib"):
                    for how in (How.LOAD, How.MIGRATE):
                        self.moved.append(peer.migrate(each.device, each.qpn, (32 + number % 4, 2), how))

    def end(self) -> None:
        self._ends.set()
        self.join()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[BusyAgent]:
    agent = BusyAgent(tmp_path / "a")
    agent.start()
    yield agent
    agent.end()


def _until_joined(program: Program, children: int) -> list[list[str]]:
    """What the program and its children say until all of them are over; those that are killed leave something unsaid."""
    said: list[list[str]] = []
    while sum(words[0] == "fork" for words in said) < children or {"stress", "join"} - {
        words[0] for words in said
    }:
        said.append(program.answer())
    return said


@pytest.mark.parametrize("device", ["fake_0", "mlx5_0"])
def test_no_child_of_many_threads_stands_still(
    built: Built, busy: BusyAgent, tmp_path: Path, device: str
) -> None:
    wanted = {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(tmp_path / "a")}
    with Program(built.linked, built, wanted) as program:
        assert program.do("load libmlx5.so.1")[0] == 0
        program.do("quiet")
        program.do("drain 2")
        program.do("hold 1")
        program.tell(f"thread stress {THREADS} {STRESS_MS} {device}")
        for _ in range(CHILDREN):
            program.tell(CHILD.format(device))
        program.tell("join")
        said = _until_joined(program, CHILDREN)
        assert [words[1] for words in said if words[0] == "fork"] == [ENDED] * CHILDREN
        assert program.end() == (0, "")
    assert busy.met > 1


@pytest.mark.parametrize("device", ["fake_0", "mlx5_0", "ib_0"])
def test_many_threads(sanitized: Built, busy: BusyAgent, tmp_path: Path, device: str) -> None:
    is_tsan = sanitized.shim.parent.name.startswith("thread")
    wanted = {"CWDP_VERBS": str(tmp_path / "a"), "FAKE_LID": "16", "FAKE_LMC": "2", "FAKE_APM": "1"}
    with Program(sanitized.linked, sanitized, wanted) as program:
        program.do("far-ends 1")
        assert program.do("load libmlx5.so.1")[0] == 0
        program.do("quiet")
        program.do("drain 2")
        program.do("hold 1")
        program.tell(f"thread stress {THREADS} {STRESS_MS} {device}")
        for _ in range(0 if is_tsan else CHILDREN):
            program.tell(CHILD.format(device))
        program.tell("join")
        said = [program.answer() for _ in range(2)] if is_tsan else _until_joined(program, CHILDREN)
        assert int(next(words for words in said if words[0] == "stress")[1]) > 100
        children = [words[1] for words in said if words[0] == "fork"]
        assert {*children} <= {ENDED, STOOD_STILL}, program.end()
        assert program.end() == (0, "")
    assert device != "ib_0" or {moved.error for moved in busy.moved} >= {0}
    assert busy.met > 1
    assert any(moved.error == 0 for moved in busy.moved)


def test_one_after_the_other(sanitized: Built, tmp_path: Path) -> None:
    with (
        FakeAgent(tmp_path / "b") as agent,
        Program(sanitized.linked, sanitized, {"CWDP_VERBS": str(agent.path)}) as program,
    ):
        program.tell("open fake_0")
        peer = agent.accept()
        for _ in range(3):
            peer.give(TABLE)
        peer.give(TABLE[:100])
        peer.settle()
        program.answer()
        pairs = [program.connect() for _ in range(20)]
        for place, qpn in pairs[:10]:
            assert peer.move("fake_0", qpn, 0xC111, with_sqd=True).error == 0
            program.do(f"destroy {place}")
        program.do("refuse 1")
        program.connect()
        peer.close()
        peer = agent.accept()
        for place, _ in pairs[10:15]:
            program.do(f"modify {place} {ERR}")
            program.do(f"modify {place} 0")
            program.do(f"modify {place} {INIT}")
            program.do(f"modify {place} {RTR} path={GID.hex()} label=3")
        for place, _ in pairs[10:18]:
            program.do(f"destroy {place}")
        program.do("close 0")
        peer.hear_all()
        assert program.end() == (0, "")

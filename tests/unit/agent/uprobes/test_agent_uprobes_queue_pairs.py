"""Queue pairs that were seen: what the agent keeps of them, and tells."""

import asyncio
import os
import time

import msgspec
import pytest
from agent_fakes import NoteOrders
from waiting import until

from cwdp.agent.config import AgentConfig, UprobesConfig, VerbsConfig
from cwdp.agent.programs.programs import started
from cwdp.agent.uprobes import keeper as module
from cwdp.agent.uprobes.keeper import HostUprobes
from cwdp.agent.uprobes.orders import Owner, UprobesWord
from cwdp.agent.uprobes.probes.records import QP_CHANGED, QP_CREATED, QP_DESTROYED, QpSeen
from cwdp.agent.uprobes.queuepairs import SeenQueuePairs
from cwdp.agent.verbs import owners
from cwdp.agent.verbs.hostverbs import HostVerbs
from cwdp.agent.verbs.orders import VerbsQp, VerbsSource
from cwdp.agent.verbs.owners import Owners
from cwdp.rdma.netlink import QueuePair
from cwdp.shared.bus.messages import ACTUATORS
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import VERBS_ROW
from manager.queue_pairs.verbs import VerbsStore

INIT, RTR, RTS = 1, 2, 3
DGID = bytes([*[0] * 10, 0xFF, 0xFF, 10, 0, 1, 1])
SOURCE = VerbsSource("eth1", "mlx5_0", 1, 3, "::ffff:10.0.0.1")
OWNER = Owner(7, 1_000, "SLURM_JOB_ID=4711")


def changed(state: int, *, qpn: int = 17, kind: int = QP_CHANGED) -> QpSeen:
    has_path = state == RTR
    return QpSeen(
        kind, 7, 100, "mlx5_0", qpn, state, 99 if has_path else None, 1 if has_path else 0, 3 if has_path else 0,
        DGID if has_path else None,
    )  # fmt: skip


@pytest.fixture
def seen() -> SeenQueuePairs:
    made = SeenQueuePairs()
    made.know([SOURCE])
    return made


def test_one_that_is_connected_has_a_nic_and_a_peer(seen: SeenQueuePairs) -> None:
    seen.hear(changed(0, kind=QP_CREATED), OWNER)
    seen.hear(changed(INIT), OWNER)
    assert seen.told() == []
    seen.hear(changed(RTR), OWNER)
    seen.hear(changed(RTS), OWNER)
    assert seen.told() == [
        VerbsQp(
            1, 7, "mlx5_0", 17, RTS, "eth1", "10.0.1.1", 99, None, by_table=False, actuator="create_only", refused=0,
            told_job="SLURM_JOB_ID=4711", is_seen=True,
        )
    ]  # fmt: skip
    seen.hear(changed(0, kind=QP_DESTROYED), OWNER)
    assert (seen.told(), len(seen)) == ([], 0)


def test_one_whose_making_was_not_seen_or_that_is_reset(seen: SeenQueuePairs) -> None:
    seen.hear(changed(RTR), OWNER)
    assert len(seen.told()) == 1
    seen.hear(changed(0), OWNER)
    assert seen.told() == []
    seen.hear(changed(RTR), OWNER)
    assert len(seen.told()) == 1


def test_those_of_devices_that_are_none_of_ours(seen: SeenQueuePairs) -> None:
    seen.know([])
    seen.hear(changed(RTR), OWNER)
    assert seen.told() == []
    seen.know([SOURCE])
    assert len(seen.told()) == 1


def test_they_go_with_their_program_also_where_its_number_is_another_s(seen: SeenQueuePairs) -> None:
    for now, left in ({7: 1_000}, 1), ({7: 1_001}, 0), ({}, 0):
        seen.hear(changed(RTR), OWNER)
        seen.bury(now.get)
        assert len(seen) == left


def test_a_program_says_nothing_of_another_s(seen: SeenQueuePairs) -> None:
    other = OWNER._replace(pid=8)
    seen.hear(changed(RTR), OWNER)
    seen.hear(changed(0, kind=QP_DESTROYED), other)
    seen.hear(changed(RTR), other)
    assert [qp.pid for qp in seen.told()] == [7, 8]
    seen.hear(changed(0, kind=QP_DESTROYED), other)
    assert [qp.pid for qp in seen.told()] == [7]


@pytest.mark.parametrize("name", ["MOST", "MOST_OF_A_PROGRAM"])
def test_there_are_no_more_than_may_be(
    seen: SeenQueuePairs, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(f"cwdp.agent.uprobes.queuepairs.{name}", 3)
    for qpn in range(5):
        seen.hear(changed(RTR, qpn=qpn), OWNER)
    assert (len(seen), seen.refused) == (3, 2)
    seen.hear(changed(0, qpn=0, kind=QP_DESTROYED), OWNER)
    seen.hear(changed(RTR, qpn=9), OWNER)
    assert (len(seen), seen.refused) == (3, 2)


class Setup:
    """The agent's part, with a kernel that lists queue pairs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **config: object) -> None:
        self.listed: list[QueuePair] = []
        self.looks = 0
        monkeypatch.setattr(module, "sources", lambda _nics: [SOURCE])
        monkeypatch.setattr(module, "Owners", lambda: Owners(self._list))
        self.config = msgspec.convert(
            {"nics": ["eth1"], "host": "a", "uprobes": {"cgroups": ["/train"]}, **config}, AgentConfig
        )
        self.uprobes = HostUprobes(self.config)
        self.uprobes._seen.know([SOURCE])

    def _list(self) -> list[QueuePair]:
        self.looks += 1
        return self.listed

    def hear(self, *seen: QpSeen, owner: Owner = OWNER, trouble: str = "") -> None:
        word = UprobesWord(
            counters={"uprobes_attached": 2, "uprobes_libraries": 2},
            trouble=trouble,
            queue_pairs=[(one, owner) for one in seen],
        )
        assert self.uprobes._hear(msgspec.json.encode(word)) == {"uprobes_attached": 2}


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(monkeypatch)


def test_off_by_default() -> None:
    off = HostUprobes(AgentConfig(nics=["eth1"]))
    assert (off.jobs(), dict(off.counters), off.queue_pairs, off.take_calls()) == ([], {}, [], [])


def listed(pid: int | None, lqpn: int = 17) -> QueuePair:
    return QueuePair("mlx5_0", 1, lqpn, 99, "RC", "RTS", 0, 0, None, pid, None)


@pytest.mark.parametrize(
    ("by_kernel", "is_told"), [([listed(7)], True), ([listed(None)], True), ([listed(8)], False), ([], False)]
)
def test_the_kernel_s_list_comes_first(setup: Setup, by_kernel: list[QueuePair], is_told: bool) -> None:
    setup.listed = by_kernel
    setup.hear(changed(RTR))
    assert len(setup.uprobes.queue_pairs) == 1
    asyncio.run(setup.uprobes._owners.look())
    assert len(setup.uprobes.queue_pairs) == is_told


def test_what_is_seen_has_the_list_read_at_once(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "LOOK_S", 60.0)
    heard: list[None] = []
    setup.uprobes.on_change = lambda: heard.append(None)

    async def looked() -> float:
        setup.hear(changed(RTR))
        running = asyncio.ensure_future(setup.uprobes._owners.follow(lambda: True))
        await asyncio.to_thread(until, lambda: setup.looks >= 1)
        await asyncio.sleep(0.3)
        before, began_s = setup.looks, time.monotonic()
        setup.hear(changed(RTS))
        await asyncio.to_thread(until, lambda: setup.looks > before)
        running.cancel()
        return time.monotonic() - began_s

    assert asyncio.run(looked()) < 5
    assert len(heard) == 2


def test_a_flood_does_not_have_it_read_all_the_time(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "SOON_S", 0.2)

    async def flooded() -> None:
        setup.hear(changed(RTR))
        running = asyncio.ensure_future(setup.uprobes._owners.follow(lambda: True))
        end_s = time.monotonic() + 1
        while time.monotonic() < end_s:
            setup.hear(changed(RTS))
            await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(flooded())
    assert 2 <= setup.looks <= 6


def test_a_trouble_is_logged_once_and_so_is_its_end(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "cwdp.agent")
    for trouble in ("", "no bcc", "no bcc", "", ""):
        setup.hear(trouble=trouble)
    assert [(record.levelname, "no bcc" in record.getMessage()) for record in caplog.records] == [
        ("WARNING", True),
        ("INFO", False),
    ]


def test_programs_that_end_take_their_queue_pairs_along(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    mine = Owner(os.getpid(), started(os.getpid()) or 0, "")

    async def tidied() -> int:
        setup.hear(changed(RTR), owner=mine)
        setup.hear(changed(RTR, qpn=18), owner=mine._replace(started=1))
        running = asyncio.ensure_future(setup.uprobes._tidy())
        await asyncio.sleep(0.2)
        running.cancel()
        return len(setup.uprobes._seen)

    assert asyncio.run(tidied()) == 1


def test_from_the_process_to_the_manager(setup: Setup) -> None:
    """Without the shim, and for nobody but those that it was not told of by that."""
    verbs = HostVerbs(NoteOrders(), setup.config, [], setup.uprobes)
    assert list(verbs.reports()) == []
    setup.hear(changed(RTR), changed(RTR, qpn=18))
    (report,) = verbs.reports()
    assert report.programs[0].job == "slurm:4711"
    (nic,) = report.nics
    rows = rows_of(nic.rows, VERBS_ROW)
    assert rows["lqpn"].tolist() == [17, 18]
    assert {ACTUATORS[place] for place in rows["actuator"]} == {"tc"}
    store = VerbsStore()
    store.hear(report, ["eth1"], 0.0)
    assert set(store.jobs.values()) == {"slurm:4711"}
    setup.hear(changed(0, kind=QP_DESTROYED), changed(0, qpn=18, kind=QP_DESTROYED))
    (report,) = verbs.reports()
    assert (report.nics, list(verbs.reports())) == ([], [])


def test_the_shim_s_word_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    setup = Setup(
        monkeypatch,
        verbs={"socket": f"{os.fspath(tmp_path)}/s", "drain": True},
        interface={"eth1": {"transport": "ud"}},
    )
    assert setup.config.verbs == VerbsConfig(socket=f"{os.fspath(tmp_path)}/s", drain=True)
    verbs = HostVerbs(NoteOrders(), setup.config, [], setup.uprobes)
    assert verbs.keeper is not None
    assert setup.uprobes.on_change == verbs.keeper.look_soon
    told = VerbsQp(1, 7, "mlx5_0", 17, RTS, "eth1", "10.0.1.1", 99, 50_001, True, "create_only", 0)
    verbs.keeper._queue_pairs = {1: told}
    setup.hear(changed(RTR), changed(RTR, qpn=18))
    (report,) = verbs.reports()
    rows = rows_of(report.nics[0].rows, VERBS_ROW)
    assert sorted(zip(rows["lqpn"].tolist(), [ACTUATORS[one] for one in rows["actuator"]], strict=True)) == [
        (17, "sqd"),
        (18, "create_only"),
    ]
    verbs.keeper.close()


def test_the_settings() -> None:
    assert AgentConfig(nics=["e"]).uprobes == UprobesConfig()

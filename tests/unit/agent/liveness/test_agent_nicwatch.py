"""When a NIC is said to have failed, and to be well again."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.agent.liveness.nicwatch import NIC_DEAD_FACTOR, NicWatch, Told
from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState

MS = 1_000_000
DEAD_AFTER_NS = 10 * MS
NOW_NS = 10**12
UP = {"nic0": True, "nic1": True}


class Host:
    """Two NICs, each with some watched paths that are alive."""

    def __init__(self, paths: int = 3) -> None:
        self.watch = NicWatch({"nic0": "nic1", "nic1": "nic0"})
        self.paths = {name: np.zeros(abi.PATHS, dtype=abi.PATH) for name in UP}
        for table in self.paths.values():
            table["users"][1 : 1 + paths] = 1
            table["detours"][1 + paths] = 1
            self.answer(table[1 : 2 + paths])

    @staticmethod
    def answer(paths: NDArray[np.void]) -> None:
        paths["last_answer_ns"], paths["waiting_since_ns"], paths["state"] = NOW_NS, 0, PathState.UP

    def silence(self, ifname: str, silent_ns: int = 100 * MS, *, detours: bool = True) -> None:
        table = self.paths[ifname]
        chosen = (table["users"] > 0) | (detours & (table["detours"] > 0))
        table["last_answer_ns"][chosen] = NOW_NS - silent_ns - 1
        table["waiting_since_ns"][chosen] = NOW_NS - silent_ns

    def look(self, carriers: dict[str, bool] = UP) -> list[Told]:
        return list(self.watch.look(self.paths, carriers, NOW_NS, DEAD_AFTER_NS))


def kinds(told: list[Told]) -> list[tuple[str, str]]:
    return [(ifname, kind) for ifname, kind, _ in told]


def test_nothing_is_said_while_all_is_well() -> None:
    assert Host().look() == []


def test_a_silent_nic_is_told_of_once_and_when_it_is_well_again() -> None:
    host = Host()
    host.silence("nic0")
    told = host.look()
    assert kinds(told) == [("nic0", "nic_failed")]
    assert told[0][2] == "none of 4 paths answers; its queue pairs leave by nic1"
    assert host.look() == []
    host.answer(host.paths["nic0"][1:2])
    assert kinds(host.look()) == [("nic0", "nic_healed")]


def test_a_nic_in_its_hold_down_is_not_well_yet() -> None:
    host = Host()
    host.silence("nic0")
    host.look()
    host.answer(host.paths["nic0"][1:4])
    host.answer(host.paths["nic0"][4:5])
    host.paths["nic0"]["state"][1:5] = PathState.DOWN
    assert host.look() == []
    host.paths["nic0"]["state"][1] = PathState.UP
    assert kinds(host.look()) == [("nic0", "nic_healed")]


def test_without_carrier() -> None:
    host = Host()
    told = host.look({"nic0": False, "nic1": True})
    assert kinds(told) == [("nic0", "nic_failed")]
    assert "no carrier" in told[0][2]
    assert host.look({"nic0": False, "nic1": True}) == []
    assert kinds(host.look()) == [("nic0", "nic_healed")]


def test_one_path_that_answers_is_enough() -> None:
    host = Host()
    host.silence("nic0")
    host.answer(host.paths["nic0"][2:3])
    assert host.look() == []


@pytest.mark.parametrize(("silent_ns", "failed"), [(DEAD_AFTER_NS * NIC_DEAD_FACTOR, 0), (31 * MS, 1)])
def test_a_nic_has_longer_than_a_path(silent_ns: int, failed: int) -> None:
    host = Host()
    host.silence("nic0", silent_ns)
    assert len(host.look()) == failed


def test_the_death_of_all_peers_is_no_nics_failure() -> None:
    host = Host()
    for ifname in UP:
        host.silence(ifname)
    assert host.look() == []


def test_a_detour_that_answers_speaks_for_its_nic() -> None:
    """It is the NIC at the far end of all paths in use that is dead."""
    host = Host()
    host.silence("nic0", detours=False)
    assert host.look() == []


def test_a_partner_that_nobody_uses_is_judged_by_its_reserve() -> None:
    host = Host()
    host.paths["nic1"]["users"] = 0
    host.silence("nic0")
    assert kinds(host.look()) == [("nic0", "nic_failed")]


def test_neither_fails_by_carrier_when_both_have_none() -> None:
    assert Host().look(dict.fromkeys(UP, False)) == []

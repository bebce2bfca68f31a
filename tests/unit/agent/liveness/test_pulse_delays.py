"""One-way delays of watched paths: which answers count, and what is said of them."""

from ipaddress import ip_address

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.agent.liveness.delays import WINDOW_NS, path_delays
from cwdp.dataplane import abi
from cwdp.dataplane.abi import SlotState
from cwdp.dataplane.steering.pathtable import PathKey
from cwdp.shared.addresses import address_bytes
from cwdp.shared.tcp import PulseDelay

NOW_NS = 10**12
TCP = 6
KEYS = [PathKey(address_bytes(ip_address("10.2.0.1")), sport, TCP) for sport in (50_001, 50_002)]
ROCE = KEYS[0]._replace(protocol=0)


@pytest.fixture
def paths() -> NDArray[np.void]:
    """Two paths of TCP, 3 and 4, and one of RoCEv2 by the same port, 5."""
    paths = np.zeros(abi.PATHS, abi.PATH)
    for number, key in ((3, KEYS[0]), (4, KEYS[1]), (5, ROCE)):
        paths["dst"][number] = np.frombuffer(key.dst, paths["dst"].dtype)
        paths["sport"][number], paths["protocol"][number], paths["users"][number] = key.sport, key.protocol, 1
    return paths


@pytest.fixture
def slots() -> NDArray[np.void]:
    return np.zeros(abi.SLOTS + abi.PULSE_SLOTS, abi.SLOT)


def answer(
    slots: NDArray[np.void], seq: int, path: int, owd_ns: int, *, age_ns: int = 1, bound_ns: int = 80
) -> NDArray[np.void]:
    """A pulse that was answered."""
    slot: NDArray[np.void] = slots[abi.SLOTS + seq]
    slot["tag"], slot["path"], slot["t4"] = seq << 32 | SlotState.DONE, path, NOW_NS - age_ns
    slot["fwd_owd_ns"], slot["rev_owd_ns"], slot["bound_ns"] = owd_ns, 1, bound_ns
    return slot


def test_delays_are_those_of_the_way_there(paths: NDArray[np.void], slots: NDArray[np.void]) -> None:
    for seq, (path, owd_ns) in enumerate(((3, 900), (3, 500), (3, 600), (4, -20), (5, 7))):
        answer(slots, seq, path, owd_ns, bound_ns=80 + seq)
    assert path_delays(slots, paths, KEYS, NOW_NS) == {
        KEYS[0]: PulseDelay(pulses=3, min_ns=500, p50_ns=600, bound_ns=82),
        KEYS[1]: PulseDelay(pulses=1, min_ns=-20, p50_ns=-20, bound_ns=83),
    }
    assert path_delays(slots, paths, [ROCE], NOW_NS)[ROCE].pulses == 1
    assert path_delays(slots, paths, [], NOW_NS) == {}


def test_what_is_old_unsynced_unanswered_or_no_pulse_says_nothing(
    paths: NDArray[np.void], slots: NDArray[np.void]
) -> None:
    answer(slots, 1, 3, 500, age_ns=WINDOW_NS + 1)
    answer(slots, 2, 3, 500, bound_ns=abi.BOUND_UNSYNCED)
    answer(slots, 3, 3, 500)["tag"] = 3 << 32 | SlotState.SENT
    answer(slots, 4, 3 | 0x8000, 500)
    answer(slots, 5, 0, 500)
    answer(slots, 6, 9, 500)
    slots[7] = answer(slots, 7, 3, 500)
    slots[abi.SLOTS + 7] = 0
    assert path_delays(slots, paths, KEYS, NOW_NS) == {}

"""The data packets that the hosts' dataplanes stamped, as the manager joins them."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.addresses import words_address
from cwdp.shared.addresses import Address
from manager.queue_pairs.sample_join import STAMP, join_settled, packet_names

FOREVER_NS = 2**62
"""By then all stamps are in."""


def synced(records: NDArray[np.void]) -> NDArray[np.void]:
    """Those of some records, dtype `abi.SAMPLE`, that were made on the timeline."""
    found: NDArray[np.void] = records[records["bound_ns"] != abi.BOUND_UNSYNCED]
    return found


def stamps(records: NDArray[np.void], numbers: Mapping[Address, int], own: int) -> NDArray[np.void]:
    """A host's records, dtype `abi.SAMPLE`, as STAMPs on the timeline; shape (records,).

    Args:
        records: that are on the timeline.
        numbers: of the hosts, by address.
        own: this host's.
    """
    peer = np.array([numbers.get(words_address(words), -1) for words in records["key"]["addr"]], np.int64)
    mine = np.full(len(records), own, np.int64)
    leaves = records["direction"] == Direction.EGRESS
    made = np.zeros(len(records), STAMP)
    made["name"] = packet_names(
        np.where(leaves, mine, peer),
        np.where(leaves, peer, mine),
        records["key"]["qpn"],
        records["psn"],
    )
    made["time_ns"] = records["local_ns"].astype(np.int64) + records["offset_ns"]
    for name in ("bound_ns", "sport", "direction"):
        made[name] = records[name]
    return made


def joined(made: NDArray[np.void]) -> NDArray[np.void]:
    """The packets that were stamped at both ends."""
    found, _ = join_settled(made, FOREVER_NS, Counter())
    return found

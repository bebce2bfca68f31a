"""Slices that hold the flows of an audit to a cap while they last, on NICs that have a dataplane."""

import time
from collections.abc import Collection

from pyroute2 import IPRoute

from cwdp.agent.flows.programs import ProgramError
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.shared.slices import Match, Slice, SliceSet
from cwdp.slices.slicing import Deletion, Slicing

NAME = "audit"
UNKNOWN_LINK_BPS = 400_000_000_000
"""Of an interface of which nobody tells: nothing but the flows is to be held."""

GONE_S, AGAIN_S = 2.0, 0.1


class Caps:
    """The slices of this host's audits.

    Args:
        nics: that have a dataplane; of others the flow program alone holds the cap.
    """

    def __init__(self, nics: Collection[str]) -> None:
        self._nics = nics

    def hold(self, nic: str, peers: Collection[str], cap_bps: int) -> None:
        """Hold what goes to some addresses to a rate.

        Raises:
            ProgramError: the NIC has slices already.
            CwdpError: it cannot have one.
        """
        if nic not in self._nics:
            return
        rate = f"{cap_bps}bit"
        one = Slice(
            name=NAME,
            guaranteed=rate,
            ceiling=rate,
            qp_rate=rate,
            match=tuple(Match(dst=peer) for peer in sorted(peers)),
        )
        with tree.locked(), Maps(tree.here(nic)) as maps, IPRoute() as ip:
            slicing = Slicing(maps, ip, nic)
            if slicing.enforcer:
                raise ProgramError(f"{nic} has slices of its own, beside which no cap can be held")
            link_rate = None if slicing.knows_link else f"{UNKNOWN_LINK_BPS}bit"
            slicing.apply(SliceSet(slice=(one,), link_rate=link_rate), managed=True)

    def let_go(self, nic: str) -> None:
        """Hold nothing any more; slices that somebody else has applied meanwhile stay.

        Raises:
            CwdpError: the kernel refuses.
        """
        if nic not in self._nics:
            return
        until_s = time.monotonic() + GONE_S
        while self._delete(nic) is Deletion.QDISC_STAYS and time.monotonic() < until_s:
            time.sleep(AGAIN_S)

    def _delete(self, nic: str) -> Deletion:
        with tree.locked(), Maps(tree.here(nic)) as maps, IPRoute() as ip:
            slicing = Slicing(maps, ip, nic)
            names = {one.name for one in slicing.listed() if one.number}
            return Deletion.NOTHING if names - {NAME} else slicing.delete()

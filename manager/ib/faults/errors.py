"""Links on which bits go wrong. No I/O."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtrik

from cwdp.shared.ib.counters import NAMES
from cwdp.shared.ib.subnet import Subnet
from manager.ib.faults.holding import Key, Seen
from manager.ib.faults.links import Links
from manager.ib.faults.ports import LONGEST_S, Ports, grown
from manager.ib.faults.words import rate

MOST_BER = 1e-12
"""What a link may have: IBTA volume 2, and ibdiagnet's own limit."""

SPANS_S = np.array([2.0, 10.0, 60.0])
"""Over which errors are counted, with weights that fade: the last is that by which an end is judged."""

CHANCE = 1e-10
"""That a link at the limit has as many errors in a span: once in a month of 10,000 ports' polls at most."""

USUAL_BPS = 1e11
"""Of links whose rate is not known."""

_OWN = [NAMES.index("symbol_errors"), NAMES.index("receive_errors")]
_REMOTE = NAMES.index("remote_physical_errors")


class BitErrors:
    """Errors by receiving port."""

    def __init__(self) -> None:
        self._own: NDArray[np.float64] = np.zeros((len(SPANS_S), 0))
        self._remote: NDArray[np.float64] = np.zeros((len(SPANS_S), 0))
        self._found: NDArray[np.bool_] = np.zeros((2, 0), bool)

    def step(
        self, ports: Ports, links: Links, subnet: Subnet, per_s: NDArray[np.float64], took_s: float
    ) -> dict[Key, Seen]:
        """Take in a poll.

        Args:
            ports: of the subnet.
            links: as they are now.
            subnet: as it is now.
            per_s: by how much counters grow, NaN for unknown, shape (rows, counters).
            took_s: since the poll before.
        """
        count = len(ports.ends)
        self._own = grown(self._own, count, 0.0)
        self._remote = grown(self._remote, count, 0.0)
        self._found = grown(self._found, count, 0)
        kept = np.exp(-took_s / SPANS_S)[:, None]
        is_heard = links.is_settled[ports.slots]
        for before, columns in ((self._own, _OWN), (self._remote, [_REMOTE])):
            new = np.nan_to_num(per_s[:, columns]).max(axis=1, initial=0.0) * min(took_s, LONGEST_S)
            np.multiply(before, kept, out=before)
            before[:, ports.slots] += np.where(is_heard, new, 0.0)
        link_bps = subnet.rates_bps
        bps = np.full(count, USUAL_BPS)
        bps[ports.slots] = np.where(link_bps > 0, link_bps, USUAL_BPS)
        self._judge(bps)
        self._found[:, ~links.is_up] = False
        return dict(self._told(ports, bps, links.peer))

    def _judge(self, bps: NDArray[np.float64]) -> None:
        speeds, place = np.unique(bps, return_inverse=True)
        expected = MOST_BER * speeds * SPANS_S[:, None]
        least = np.ceil(pdtrik(1.0 - CHANCE, expected)) + 1  # of Poisson's distribution
        for found, sums in zip(self._found, (self._own, self._remote), strict=True):
            begins = (sums >= least[:, place]).any(axis=0)
            goes_on = sums[-1] >= np.maximum(expected[-1], 1.0)[place]
            found[:] = begins | (found & goes_on)

    def _told(
        self, ports: Ports, bps: NDArray[np.float64], peer: NDArray[np.intp]
    ) -> Iterator[tuple[Key, Seen]]:
        for slot in np.flatnonzero(self._found[0]).tolist():
            evidence = [
                f"{self._own[-1, slot]:.0f} symbol or receive errors at {ports.name(slot)} in about a minute",
                f"a link of {rate(bps[slot])} may have {60 * MOST_BER * bps[slot]:.2g} (a bit error rate of {MOST_BER:g})",
            ]
            if self._remote[-1, slot] >= 1:
                evidence.append(f"{self._remote[-1, slot]:.0f} packets were damaged before it")
            subject = ports.direction(int(peer[slot]), slot)
            yield ("bit_errors", (ports.ends[slot],)), Seen(subject, tuple(evidence))
        yield from self._damaged_before(ports, peer)

    def _damaged_before(self, ports: Ports, peer: NDArray[np.intp]) -> Iterator[tuple[Key, Seen]]:
        """Where packets that were damaged come in first, if the node that sends them counts no damage."""
        hurt = np.flatnonzero(self._found[1] & ~self._found[0])
        if not len(hurt):
            return
        counts = (self._own[-1] >= 1) | (self._remote[-1] >= 1)
        nodes = {ports.ends[slot].guid for slot in np.flatnonzero(counts).tolist()}
        for slot in hurt.tolist():
            far = int(peer[slot])
            if ports.ends[far].guid in nodes:
                continue
            node = ports.node_name(ports.ends[far].guid)
            evidence = (
                f"{self._remote[-1, slot]:.0f} packets in about a minute came to {ports.name(slot)} damaged, "
                f"and {node}, which sent them, counts no damage"
            )
            yield ("bit_errors", (ports.ends[slot],)), Seen(ports.direction(far, slot), (evidence,))

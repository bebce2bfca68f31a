"""An agent whose host lies about its time: every fit that it reports is off by a millisecond."""

import sys

import msgspec

from cwdp.agent.clock.edges import HostEdges
from cwdp.cli import main
from cwdp.shared.bus.edges import EdgeFit

LIE_NS = 1_000_000

_honest = HostEdges.fit


def _lie(self: HostEdges, now_local_ns: int) -> list[EdgeFit]:
    fits = _honest(self, now_local_ns)
    return [msgspec.structs.replace(fit, offset_base_ns=fit.offset_base_ns + LIE_NS) for fit in fits]


HostEdges.fit = _lie  # type: ignore[method-assign]

if __name__ == "__main__":
    main(["agent", "run", *sys.argv[1:]])

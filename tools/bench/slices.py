"""Bandwidth slices on a link of their own: rates, sharing, and the delay of a slice that is to be served first.

The measured rates are of Ethernet frames that have arrived, counted by the receiver's dataplane. Delays are of the
data packets themselves, from the sender's tc hook (before the queue) to the receiver's XDP; both read one clock.
"""

import os
import time
from collections.abc import Iterator

import numpy as np

from cwdp.shared.rates import format_rate, parse_rate
from cwdp.shared.slices import Match, Slice, SliceSet
from tools.bench.figures import Figure, figure
from tools.experiments.slices.pair import Pair, pair
from tools.experiments.slices.traffic import (
    BULK,
    BULK_DSCP,
    FRAME_BYTES,
    IDLE_DSCP,
    SETTLE_S,
    URGENT_DSCP,
    delays_ns,
    received_bps,
)

LINK = "1gbit"
RATES = (("1mbit", 250), ("10mbit", 1_000), ("100mbit", 4_158), (LINK, 8_042))
"""Each with frames so short that one more or less in a second is no more than 0.2 %."""

RATE_WITHIN = 0.01
LINK_USED = 0.97
WINDOWS = 3

SLOW_LINK = "100mbit"
DELAY_RATIO = 1.5


def figures() -> Iterator[Figure]:
    """Every figure of this part."""
    with pair(f"cwdp-bench-{os.getpid()}") as hosts:
        for rate, frame_bytes in RATES:
            yield _rate_figure(hosts, rate, frame_bytes)
        yield _idle_figure(hosts)
        yield _delay_figure(hosts)


def _rate_figure(hosts: Pair, rate: str, frame_bytes: int) -> Figure:
    """The largest deviation of a second's rate from the one that was set."""
    only = Slice(name="only", guaranteed=rate, ceiling=rate, match=(Match(dscp=BULK_DSCP),))
    hosts.apply(SliceSet(slice=(only,), link_rate=LINK))
    with hosts.flood(BULK, frame_bytes, dscp=BULK_DSCP, rate_bps=parse_rate(rate)):
        time.sleep(SETTLE_S)
        measured = [received_bps(hosts, BULK) for _ in range(WINDOWS)]
    off = max(abs(one / parse_rate(rate) - 1) for one in measured)
    reference = {"set_bps": parse_rate(rate), "measured_bps": [round(one) for one in measured]}
    return figure(f"slice_rate_off_{rate}", off, "share", reference, RATE_WITHIN)


def _idle_figure(hosts: Pair) -> Figure:
    """How much of the link one slice fills while the other, which has a guarantee of half of it, sends nothing."""
    half = format_rate(parse_rate(LINK) / 2)
    busy = Slice(name="busy", guaranteed=half, match=(Match(dscp=BULK_DSCP),))
    idle = Slice(name="idle", guaranteed=half, priority=0, match=(Match(dscp=IDLE_DSCP),))
    hosts.apply(SliceSet(slice=(busy, idle), link_rate=LINK))
    with hosts.flood(BULK, RATES[-1][1], dscp=BULK_DSCP, rate_bps=parse_rate(LINK)):
        time.sleep(SETTLE_S)
        measured = [received_bps(hosts, BULK) for _ in range(WINDOWS)]
    used = min(measured) / parse_rate(LINK)
    used_link = figure("slice_link_used_one_idle", used, "share", {"link_bps": parse_rate(LINK)}, LINK_USED)
    return used_link | {"met": used >= LINK_USED}


def _delay_figure(hosts: Pair) -> Figure:
    """The urgent slice's delay under a bulk flood, over one and a half times that without, plus one frame of bulk."""
    urgent = Slice(name="urgent", guaranteed="10mbit", priority=0, match=(Match(dscp=URGENT_DSCP),))
    bulk = Slice(name="bulk", guaranteed="50mbit", match=(Match(dscp=BULK_DSCP),))
    hosts.apply(SliceSet(slice=(urgent, bulk), link_rate=SLOW_LINK))
    alone = delays_ns(hosts)
    with hosts.flood(BULK, FRAME_BYTES, dscp=BULK_DSCP, rate_bps=parse_rate(SLOW_LINK)):
        time.sleep(SETTLE_S)
        flooded = delays_ns(hosts)
    p99_alone, p99_flooded = (float(np.percentile(delays, 99)) for delays in (alone, flooded))
    allowed_ns = DELAY_RATIO * p99_alone + FRAME_BYTES * 8e9 / parse_rate(SLOW_LINK)
    reference = {
        "alone_p99_ns": round(p99_alone),
        "flooded_p99_ns": round(p99_flooded),
        "allowed_ns": round(allowed_ns),
        "packets": [len(alone), len(flooded)],
    }
    return figure("slice_urgent_delay_p99", p99_flooded / allowed_ns, "share of allowed", reference, 1.0)

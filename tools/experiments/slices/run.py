"""`cwdp lab run slices`: what bandwidth slices promise, on one link, with them and without.

Two hosts, one link with a token bucket; the same traffic twice. Rates are of Ethernet frames that have arrived. Delays
are of the data packets themselves, from the sender's tc hook, before its queue, to the receiver's XDP.
"""

import os
import random
import time
from contextlib import ExitStack
from typing import Any

import click
import numpy as np
from rich.console import Group, RenderableType

from cwdp.cli.output import emit, progress
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.shared.rates import format_rate
from cwdp.shared.slices import Match, Slice, SliceSet
from tools.experiments.options import JSON, rate_option
from tools.experiments.report import mbit, ms, new_table
from tools.experiments.slices.pair import MTU, NIC, Pair, pair
from tools.experiments.slices.traffic import (
    BULK_DSCP,
    FRAME_BYTES,
    IDLE_DSCP,
    SETTLE_S,
    URGENT_DSCP,
    delays_ns,
    received_bps,
)
from tools.lab.network import netns
from tools.lab.network.shaping import set_rate

ARMS = ("without", "with")
TRAIN_DSCP = IDLE_DSCP
TRAIN_SHARE, CEILING_SHARE, URGENT_SHARE = 0.5, 0.8, 0.1
RIVALS = 4
"""Queue pairs that are in no slice, against one that is."""

QUEUE_S = 0.02
FIRST_QPN = 16  # those below are the benchmark's
QPNS = 15_000
"""Source ports follow from them: 50,000 plus the number."""
RATE_BPS = 100_000_000
WITHIN = 0.01
USED = 0.97
"""Of a link that one may have alone while what others are guaranteed is idle."""

DELAY_RATIO = 1.5


@click.command()
@click.option("--seed", default=1, show_default=True, help="Draws queue pair numbers.")
@rate_option(RATE_BPS, "Of the link.")
@JSON
def slices(*, seed: int, rate: int, as_json: bool) -> None:
    """Show what bandwidth slices promise: a guarantee, a ceiling, nothing wasted, and a short wait."""
    result = run_slices(seed, rate)
    emit(result, as_json=as_json, render=lambda: _render(result))


def run_slices(seed: int, rate_bps: int) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        CwdpError: the hosts cannot be made, or the kernel refused.
    """
    qpns = random.Random(seed).sample(range(FIRST_QPN, QPNS), RIVALS + 1)
    arms: dict[str, dict[str, Any]] = {}
    with pair(f"cwdp-slices-{os.getpid()}") as hosts:
        _narrow(hosts, rate_bps)
        for arm in ARMS:
            progress(f"one link of {format_rate(rate_bps)}, {arm} slices")
            if arm == "with":
                hosts.apply(_wanted(rate_bps))
            arms[arm] = _measure(hosts, qpns)
        hosts.delete()
    return {"rate_bps": rate_bps, "seed": seed, **arms, "met": _met(arms, rate_bps)}


def _wanted(rate_bps: int) -> SliceSet:
    """A slice that comes first, and one with a guarantee and a ceiling; what floods is in none."""
    urgent = Slice(
        name="urgent",
        guaranteed=format_rate(URGENT_SHARE * rate_bps),
        priority=0,
        match=(Match(dscp=URGENT_DSCP),),
    )
    train = Slice(
        name="train",
        guaranteed=format_rate(TRAIN_SHARE * rate_bps),
        ceiling=format_rate(CEILING_SHARE * rate_bps),
        match=(Match(dscp=TRAIN_DSCP),),
    )
    return SliceSet(slice=(urgent, train))


def _narrow(hosts: Pair, rate_bps: int) -> None:
    """Make the link as slow as is wanted."""
    namespace = hosts.prefix + "a"
    with netns.netns_enter(namespace):
        index = ifindex_of(NIC)
    with netns.open_netlink(namespace) as ip:
        set_rate(ip, index, rate_bps, round(rate_bps / 8 * QUEUE_S), MTU)


def _measure(hosts: Pair, qpns: list[int]) -> dict[str, Any]:
    train, *rivals = qpns
    alone_ns = delays_ns(hosts)
    with hosts.flood(train, FRAME_BYTES, dscp=TRAIN_DSCP):
        ceiling_bps = _settled_bps(hosts, train)
    with hosts.flood(rivals[0], FRAME_BYTES, dscp=BULK_DSCP):
        unused_bps = _settled_bps(hosts, rivals[0])
    with ExitStack() as flood:
        for qpn in rivals:
            flood.enter_context(hosts.flood(qpn, FRAME_BYTES, dscp=BULK_DSCP))
        with hosts.flood(train, FRAME_BYTES, dscp=TRAIN_DSCP):
            guaranteed_bps = _settled_bps(hosts, train)
            flooded_ns = delays_ns(hosts)
    return {
        "train_alone_bps": ceiling_bps,
        "bulk_alone_bps": unused_bps,
        "train_flooded_bps": guaranteed_bps,
        "urgent_alone_p99_ns": float(np.percentile(alone_ns, 99)),
        "urgent_flooded_p99_ns": float(np.percentile(flooded_ns, 99)),
        "urgent_packets": [len(alone_ns), len(flooded_ns)],
    }


def _settled_bps(hosts: Pair, qpn: int) -> float:
    time.sleep(SETTLE_S)
    return received_bps(hosts, qpn)


def _met(arms: dict[str, dict[str, Any]], rate_bps: int) -> dict[str, bool]:
    """Whether slices keep what they promise."""
    held = arms["with"]
    frame_ns = FRAME_BYTES * 8e9 / rate_bps
    return {
        "guarantee": held["train_flooded_bps"] >= (1 - WITHIN) * TRAIN_SHARE * rate_bps,
        "ceiling": abs(held["train_alone_bps"] / (CEILING_SHARE * rate_bps) - 1) <= WITHIN,
        "nothing_wasted": held["bulk_alone_bps"] >= USED * rate_bps,
        "urgent": held["urgent_flooded_p99_ns"] <= DELAY_RATIO * held["urgent_alone_p99_ns"] + 2 * frame_ns,
    }


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table("", (*ARMS, "PROMISED"))
    rate_bps = result["rate_bps"]
    rows = (
        ("guaranteed half, under a flood", "train_flooded_bps", f"{mbit(TRAIN_SHARE * rate_bps)} or more"),
        ("ceiling of four fifths, alone", "train_alone_bps", mbit(CEILING_SHARE * rate_bps)),
        ("in no slice, the others idle", "bulk_alone_bps", mbit(rate_bps)),
    )
    for name, key, promised in rows:
        table.add_row(name, *(mbit(result[arm][key]) for arm in ARMS), promised)
    for name, key in (("alone", "urgent_alone_p99_ns"), ("under the flood", "urgent_flooded_p99_ns")):
        table.add_row(f"p99 of the urgent slice, {name}", *(ms(result[arm][key]) for arm in ARMS), "")
    missed = [name for name, met in result["met"].items() if not met]
    return Group(
        table,
        f"Mbit/s of Ethernet frames that arrive over a link of {format_rate(rate_bps)}; delays in ms",
        f"missed: {', '.join(missed)}" if missed else "all that is promised is kept",
    )

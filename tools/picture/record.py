"""The same cut twice in a lab, once by ECMP alone and once with cwdp; goodput and one-way delays around it.

Every host writes to the one in its place below the next leaf, as in `tools.experiments.failover`. A link goes silent
under load and is mended. Without cwdp's planner the fleet is up all the same: it only measures.
"""

import platform
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from cwdp.cli.output import progress
from cwdp.errors import LabError
from tools.experiments import measure
from tools.experiments.failover.model import (
    MESSAGE_BYTES,
    Cut,
    Kind,
    Setting,
    draw_cut,
    make_setting,
)
from tools.experiments.fleets import PulseSettings, running_fleet
from tools.experiments.runs import IdleShare, links_in_use
from tools.experiments.taken import links_taken, without_backup
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.session import lab_for_run
from tools.picture.delays import Stamps
from tools.picture.document import Arm, Recording
from tools.picture.summary import Moments, Span, summarise
from tools.roce.flows import Flow
from tools.roce.generator import Generator
from tools.roce.jobs import pair_flows
from tools.waiting import wait_for

NAME = "pic"
RATE_BPS = 20_000_000
QUEUE_BYTES = 512 * 1024
OFFERED = 0.4
"""Of each host's link: the links that are left carry it wherever the backups lead."""

MTU = 2048
WINDOW = 14
"""Not used up before a path is given up; the queue pairs that ECMP puts on one link still fit its queue."""

PULSES = PulseSettings(interval_ms=5.0, dead_after_ms=10.0)
"""As in the demonstration: on links as slow as these, more pulses would be a load."""

SNAPSHOT_S = 0.01
SETTLED_S, BACKED_WITHIN_S, STEADY_S = 4.0, 30.0, 3.0
DARK_S = 2.0
SPAN = Span(first_s=-0.75, last_s=3.75, bin_s=0.03)
SPARE_S = 0.2
"""Recorded on either side of what is kept."""


def record(seed: int) -> Recording:
    """Raise a lab, run both, take it away.

    Raises:
        LabError: the lab or its processes failed, or queue pairs had no backup.
    """
    spec = LabSpec(
        name=NAME, rate_bps=RATE_BPS, queue_bytes=QUEUE_BYTES, spine_queue_bytes=QUEUE_BYTES, seed=seed
    )
    setting = make_setting(spec, OFFERED, None)
    with lab_for_run(NAME, setting.spec) as lab:
        faults.prepare_silence(NAME, lab.topology)
        flows = pair_flows(
            lab.topology,
            setting.pairs,
            seed,
            mtu=MTU,
            rate_bps=round(setting.flow_bps),
            window=WINDOW,
            message_bytes=MESSAGE_BYTES,
        )
        with running_fleet(lab, planner=False, pulses=PULSES):
            cut, ecmp = _with_traffic(lab, setting, flows, seed)
        with running_fleet(lab, planner=True, pulses=PULSES):
            _, cwdp = _with_traffic(lab, setting, flows, seed, cut)
    return Recording(
        recorded=datetime.now(UTC).date().isoformat(),
        kernel=platform.release().partition("-")[0],
        seed=seed,
        hosts=len(lab.hosts),
        leaves=spec.leaves,
        spines=spec.spines,
        rate_bps=spec.rate_bps,
        spine_rate_bps=setting.spec.spine_rate_bps,
        link=cut.shown,
        queue_pairs=len(flows),
        offered_bps=round(len(flows) * setting.flow_bps * measure.payload_share(MESSAGE_BYTES, MTU)),
        first_s=SPAN.first_s,
        bin_s=SPAN.bin_s,
        ecmp=ecmp,
        cwdp=cwdp,
    )


def _with_traffic(
    lab: Lab, setting: Setting, flows: Sequence[Flow], seed: int, cut: Cut | None = None
) -> tuple[Cut, Arm]:
    """Have the queue pairs send through a cut: one that is drawn, or a given one, once all of them have backups."""
    with Generator(flows, lab.popen, lab.run_dir, SNAPSHOT_S) as generator:
        generator.start()
        time.sleep(SETTLED_S)
        if cut is None:
            used = links_in_use(lab, setting.flow_bps / 2)
            cut = draw_cut(Kind.SILENT, used, lab.topology, random.Random(seed))
        else:
            _wait_for_backups(lab, flows)
        time.sleep(STEADY_S)
        taken = links_taken(lab, flows)
        with Stamps(lab) as stamps:
            idle = IdleShare()
            time.sleep(SPAN.bin_s - SPAN.first_s + SPARE_S)
            moments = _cut_and_mend(lab.name, cut)
            time.sleep(SPAN.last_s - DARK_S + SPARE_S)
            idle_share = idle.read()
            delays = stamps.delays()
        result = generator.stop()
    hit = {flow for flow, links in taken.items() if cut.hits(links)}
    arm = summarise(result, delays, moments, SPAN, hit=hit, idle_share=idle_share)
    progress(
        f"{cut.shown}: {arm.queue_pairs_hit} queue pairs hit, {arm.queue_pairs_died} died, the longest still for "
        f"{arm.stall_max_ms:.0f} ms; processors {arm.idle_share:.0%} idle"
    )
    return cut, arm


def _wait_for_backups(lab: Lab, flows: Sequence[Flow]) -> None:
    if not wait_for(lambda: without_backup(lab, flows) == 0, BACKED_WITHIN_S, poll_s=0.25):
        raise LabError(
            f"{without_backup(lab, flows)} directions of queue pairs have no backup after {BACKED_WITHIN_S:.0f} s",
            "Is the machine too busy? Stop what else runs, and try again.",
        )


def _cut_and_mend(lab_name: str, cut: Cut) -> Moments:
    cutting_ns = time.monotonic_ns()
    cut.make(lab_name)
    cut_ns = time.monotonic_ns()
    time.sleep(DARK_S)
    mending_ns = time.monotonic_ns()
    cut.mend(lab_name)
    return Moments(cutting_ns, cut_ns, mending_ns, time.monotonic_ns())

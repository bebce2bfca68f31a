"""`cwdp lab run tcp-failover`: links go silent under `iperf3`, by plain ECMP, with Linux's re-hash on time-outs and steered."""

import random
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType

from cwdp.cli.output import emit, progress
from cwdp.errors import LabError
from cwdp.shared.rates import format_rate
from tools.experiments.fleets import PulseSettings
from tools.experiments.options import JSON, arm_option, chosen, fabric_options
from tools.experiments.report import describe_lab, ms, new_table, share
from tools.experiments.runs import IdleShare
from tools.experiments.tcp.arms import Arm, prepared
from tools.experiments.tcp.failover import (
    DARK_S,
    LOAD,
    MENDED_S,
    RATE_BPS,
    SETTLE_S,
    Setting,
    links_taken,
    make_setting,
    retransmits,
    summarise_arm,
    summarise_cut,
)
from tools.experiments.tcp.watching import INTERVAL_S, Watch, resets
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.session import lab_for_run
from tools.lab.params import CLOCKS, SHARE
from tools.lab.truth.passing import spines_crossed

NAME = "tcp-failover"
CUTS, HOSTS = 5, 2
LISTEN_S, LATE_S = 1.0, 1.0
END_TIMEOUT_S = 20.0

PULSES = PulseSettings(interval_ms=3.0, dead_after_ms=10.0)
HOLD_DOWN_MS = 500.0
"""Both as in `failover`."""


@click.command("tcp-failover")
@click.option("--seed", default=1, show_default=True, help="Draws the links, and the hosts' clocks.")
@click.option("--cuts", type=click.IntRange(min=1), default=CUTS, show_default=True, help="For each arm.")
@click.option("--load", type=SHARE, default=str(LOAD), show_default=True, help="Each host's, of its link.")
@fabric_options(NAME, hosts=HOSTS, rate_bps=RATE_BPS)
@arm_option(Arm)
@CLOCKS
@JSON
def tcp_failover(
    *, spec: LabSpec, seed: int, cuts: int, load: float, arms: tuple[str, ...], as_json: bool
) -> None:
    """Let links that carry TCP go silent, and mend them, with plain ECMP, with Linux's re-hash on time-outs and steered by cwdp."""
    setting = make_setting(msgspec.structs.replace(spec, by_headers=True), load)
    result = run_failover(setting, chosen(Arm, arms), cuts, seed)
    emit(result, as_json=as_json, render=lambda: _render(result))


def run_failover(setting: Setting, arms: Sequence[Arm], cuts: int, seed: int) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    runs: list[dict[str, Any]] = []
    with lab_for_run(NAME, setting.spec) as lab:
        faults.prepare_silence(NAME, lab.topology)
        for arm in arms:
            rng = random.Random(seed)
            with prepared(lab, arm, setting.ports, PULSES, HOLD_DOWN_MS) as fleet:
                for number in range(cuts):
                    run = {"arm": str(arm)} | _one_cut(lab, setting, arm, rng)
                    runs.append(run)
                    progress(f"{arm}, cut {number + 1} of {cuts}: {run['cut']}, stalls of {_shown(run)}")
                    if fleet:
                        fleet.check()
    return {
        "lab": describe_lab(lab, setting.spec, spine_rate_bps=setting.spec.spine_rate_bps),
        "load": setting.load,
        "watched_every_ns": round(INTERVAL_S * 1e9),
        "arms": [summarise_arm(arm, [run for run in runs if run["arm"] == arm]) for arm in arms],
        "runs": runs,
    }


def _one_cut(lab: Lab, setting: Setting, arm: Arm, rng: random.Random) -> dict[str, Any]:
    """New connections, one cut, one mending."""
    idle = IdleShare()
    with Watch(lab, [setting.ports]) as watch:
        servers = _start_servers(lab, setting)
        clients = _start_clients(lab, setting, arm)
        time.sleep(SETTLE_S)
        taken = links_taken(lab.topology, spines_crossed(lab))
        link = _draw(lab, taken, rng)
        before = resets(lab)
        faults.drop(lab.name, link, 1.0)
        cut_ns = time.monotonic_ns()
        try:
            time.sleep(DARK_S)
        finally:
            mended_ns = time.monotonic_ns()
            faults.drop(lab.name, link, 0.0)
        time.sleep(MENDED_S)
        end_ns, after = time.monotonic_ns(), resets(lab)
    told = [_result(client) for client in clients]
    for server in servers:
        server.terminate()
        server.wait()
    return {
        **summarise_cut(link, taken, watch.received(), (cut_ns, mended_ns), end_ns),
        "resets": sum(after.values()) - sum(before.values()),
        "failed": told.count(None),
        "retransmits": sum(count or 0 for count in told),
        "idle_share": idle.read(),
    }


def _start_servers(lab: Lab, setting: Setting) -> list["subprocess.Popen[bytes]"]:
    """All receivers."""
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    pairs = enumerate(setting.pairs)
    servers = [lab.popen(target, setting.server(number), **quiet) for number, (_, target) in pairs]
    time.sleep(LISTEN_S)
    return servers


def _start_clients(lab: Lab, setting: Setting, arm: Arm) -> list["subprocess.Popen[str]"]:
    """All senders; what they say at their end can be read."""
    seconds = SETTLE_S + DARK_S + MENDED_S + 2 * LATE_S
    clients = []
    for number, (source, target) in enumerate(setting.pairs):
        nic = lab.host(target).nics[0]
        address = nic.ipv6 if arm.family == "ipv6" else nic.ipv4
        command = setting.client(number, address, seconds)
        clients.append(
            lab.popen(source, command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        )
    return clients


def _draw(lab: Lab, taken: dict[Any, frozenset[str]], rng: random.Random) -> str:
    """A link that data or what acknowledges it takes."""
    used = sorted(
        {lab.topology.link(way.replace(">", "-")).name for links in taken.values() for way in links}
    )
    if not used:
        raise LabError("nothing was sent between switches", "is the lab whole?")
    return rng.choice(used)


def _result(client: "subprocess.Popen[str]") -> int | None:
    """Segments sent again; None where the sender failed."""
    try:
        told, _ = client.communicate(timeout=END_TIMEOUT_S)
        return retransmits(told)
    except (LabError, subprocess.TimeoutExpired):
        client.kill()
        client.communicate()
        return None


def _shown(run: dict[str, Any]) -> str:
    return ", ".join(f"{ms(stall)} ms" for stall in run["stalls_ns"]) or "none"


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table(
        "ARM",
        ("CUTS", "HIT", "P50", "P99", "MAX", "OTHERS", "STEADY", "DARK", "RESETS", "FAILED", "AGAIN", "IDLE"),
    )
    for row in result["arms"]:
        table.add_row(
            row["arm"],
            str(row["cuts"]),
            str(row["connections_hit"]),
            *(ms(row[f"stall_{name}_ns"]) for name in ("p50", "p99", "max")),
            ms(row["others_max_ns"]),
            ms(row["steady_max_ns"]),
            share(row["dark_share"]),
            *(str(row[name]) for name in ("resets", "failed", "retransmits")),
            share(row["idle_share"]),
        )
    lab = result["lab"]
    return Group(
        table,
        f"P50, P99, MAX: the longest time, in ms, in which a connection that took the link received nothing, seen every "
        f"{ms(result['watched_every_ns'])} ms; OTHERS: the longest of those that did not take it; STEADY: of any before the cut; DARK: of the goodput before, while it was cut",
        "RESETS: connections reset while established; FAILED: senders that ended with an error; AGAIN: segments sent again",
        f"links {format_rate(lab['rate_bps'])}, spines {format_rate(lab['spine_rate_bps'])}, load {result['load']:.0%}",
    )

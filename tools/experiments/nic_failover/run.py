"""`cwdp lab run nic-failover`: NICs of two-NIC hosts die under load, with cwdp and without it."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import emit, progress
from cwdp.errors import ManagerError
from cwdp.shared.rates import format_rate
from tools.experiments.fleets import running_fleet
from tools.experiments.nic_failover import model
from tools.experiments.nic_failover.model import Kind
from tools.experiments.options import JSON, arm_option, chosen, fabric_options
from tools.experiments.report import describe_lab, ms, new_table, share
from tools.experiments.runs import interrupt, send
from tools.lab import Lab, LabSpec, faults
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import lab_for_run
from tools.lab.params import CLOCKS, SHARE
from tools.roce.flows import Flow
from tools.roce.generator import Generator

NAME = "nic-failover"
ARMS = ("ecmp", "cwdp")
DEATHS = 3
HOSTS, SPINES = 2, 2
RATE_BPS = 40_000_000
HOLD_DOWN_MS = 500.0
LEADS_WITHIN_S = 15.0
TOLD = ("nic_failed", "nic_healed")


@click.command("nic-failover")
@click.option("--seed", default=1, show_default=True, help="Draws queue pairs and NICs.")
@click.option("--deaths", type=click.IntRange(min=1), default=DEATHS, show_default=True, help="Of each kind.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([str(kind) for kind in Kind]),
    multiple=True,
    help="A NIC's link goes silent, or loses its carrier; or all uplinks of its leaf go silent.  [default: each]",
)
@click.option("--load", type=SHARE, default="0.15", show_default=True, help="Each NIC's, of its link.")
@fabric_options(NAME, hosts=HOSTS, spines=SPINES, rate_bps=RATE_BPS, rate_of="Of all links.")
@click.option(
    "--rails", default=0, help="NICs of a host, each at the leaf of its rail.  [default: 2 NICs, no rails]"
)
@click.option("--ipv6", is_flag=True, help="Send IPv6.")
@arm_option(ARMS)
@CLOCKS
@JSON
def nic_failover(
    *,
    spec: LabSpec,
    seed: int,
    deaths: int,
    kinds: tuple[str, ...],
    load: float,
    rails: int,
    ipv6: bool,
    arms: tuple[str, ...],
    as_json: bool,
) -> None:
    """Let NICs of hosts with several die under load, and mend them; with cwdp and without it."""
    nics = {"rails": rails} if rails else {"nics": model.NICS}
    spec = msgspec.structs.replace(spec, **nics, spine_rate_bps=spec.rate_bps * model.NICS)
    spec.validate()
    plan = Plan(tuple(Kind(kind) for kind in kinds or Kind for _ in range(deaths)), load, seed, ipv6)
    result = run_nic_failover(spec, plan, chosen(ARMS, arms))
    emit(result, as_json=as_json, render=lambda: _render(result))


@dataclass(frozen=True)
class Plan:
    """What is done in each arm.

    Attributes:
        deaths: one after the other.
        load: what each NIC offers of its link.
        seed: draws queue pairs and NICs.
        ipv6: send IPv6.
    """

    deaths: tuple[Kind, ...]
    load: float
    seed: int
    ipv6: bool = False


def run_nic_failover(spec: LabSpec, plan: Plan, arms: Sequence[str]) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    runs: list[dict[str, Any]] = []
    with lab_for_run(NAME, spec) as lab:
        for link in lab.topology.links:
            faults.drop(NAME, link, 0.0)
        for arm in arms:
            with running_fleet(lab, planner=False, hold_down_max_ms=HOLD_DOWN_MS) as fleet:
                rng = random.Random(plan.seed)
                for kind in plan.deaths:
                    seed = rng.randrange(2**32)
                    flows = model.make_flows(lab.spec, plan.load, seed, ipv6=plan.ipv6)
                    with _steered(lab, fleet, flows if arm == "cwdp" else []):
                        run = _one_death(lab, fleet, kind, flows, seed)
                    runs.append({"arm": arm} | run)
                    progress(f"{arm}: {_shown(run)}")
                    fleet.check()
    return {
        "lab": describe_lab(lab, spec),
        "load": plan.load,
        "arms": [model.summarise_arm(arm, [run for run in runs if run["arm"] == arm]) for arm in arms],
        "runs": runs,
    }


@contextmanager
def _steered(lab: Lab, fleet: Fleet, flows: Sequence[Flow]) -> Iterator[None]:
    """Queue pairs that have a path and a backup each, both ways, for a while."""
    client = ManagerClient(f"unix://{fleet.socket}")
    overrides = [override for flow in flows for override in model.overrides(lab.topology, flow)]
    for override in overrides:
        _insist(partial(client.put, "/v1/steer", override))
    yield
    for override in overrides:
        key = {name: override[name] for name in ("host", "nic", "dst", "qpn")}
        _insist(partial(client.delete, "/v1/steer", key))


def _insist(ask: Callable[[], object]) -> None:
    """Ask the manager again while it does not lead, as on a busy machine it may be late with its lease."""
    deadline = time.monotonic() + LEADS_WITHIN_S
    while True:
        try:
            ask()
        except ManagerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _one_death(lab: Lab, fleet: Fleet, kind: Kind, flows: Sequence[Flow], seed: int) -> dict[str, Any]:
    """One death, one mending."""
    death = model.draw_death(kind, lab.spec, random.Random(seed))
    times: list[int] = []

    def during(_: Generator) -> None:
        time.sleep(model.STEERED_S)
        times.extend(interrupt(death, lab.name, model.DARK_S))
        time.sleep(model.MENDED_S)

    told = _told(fleet)
    result = send(lab, flows, 0.0, during=during)
    return model.summarise_death(death, result, times[0], times[1], _told(fleet)[len(told) :])


def _told(fleet: Fleet) -> list[str]:
    """What the manager has heard of NICs so far."""
    found = ManagerClient(f"unix://{fleet.socket}").get("/v1/events")
    events = found["events"] if isinstance(found, dict) else found
    return [f"{event['host']}/{event['nic']} {event['kind']}" for event in events if event["kind"] in TOLD]


def _shown(run: dict[str, Any]) -> str:
    return (
        f"{run['host']}/{run['nic']} {run['kind']}: {run['queue_pairs_hit']} queue pairs hit, without deliveries for "
        f"{ms(max(run['stalls_ns'], default=None))} ms at most, {run['queue_pairs_died']} died; "
        f"{share(run['dark_share'])} of before while dead"
    )


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table(
        "ARM", ("DEATHS", "HIT", "P50", "P99", "MAX", "BACK", "DIED", "DEAD", "HEALED", "AGAIN", "IDLE")
    )
    for row in result["arms"]:
        table.add_row(
            row["arm"],
            str(row["deaths"]),
            str(row["queue_pairs_hit"]),
            ms(row["outage_p50_ns"]),
            ms(row["outage_p99_ns"]),
            ms(row["outage_max_ns"]),
            ms(row["return_max_ns"]),
            str(row["queue_pairs_died"]),
            share(row["dark_share"]),
            share(row["healed_share"]),
            str(row["retransmitted_packets"]),
            share(row["idle_share"]),
        )
    lab = result["lab"]
    return Group(
        table,
        "HIT: queue pairs at a NIC that died; P50, P99, MAX: how long they delivered nothing, in ms; BACK: the",
        "longest such time on the return; DIED for good; their goodput while the NIC is DEAD and when it has",
        "HEALED, of before; AGAIN: packets sent again; IDLE: the machine's processors",
        f"{lab['hosts']} hosts of {lab['nics']} NICs, links {format_rate(lab['rate_bps'])}, "
        f"each NIC sends {share(result['load'])} of its link; clocks {lab['clocks']}",
    )

"""`python -m tools.sim two-node|clos|cold-start|timelines|kinks|manoeuvres|takeovers|solve|incast|jobs|causes|liveness|faults|no-faults|page`, each with --seed and --json."""

import asyncio
import contextlib
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from cwdp.cli.output import emit
from manager.config import DEFAULT_PAGE
from tools.clocks import KINDS, ClockKind
from tools.sim.causes.judging import figures as cause_figures
from tools.sim.clocks.clos import ClosOptions, ClosSimulation
from tools.sim.clocks.manoeuvres import of_kind
from tools.sim.clocks.solve import solve
from tools.sim.clocks.two_node import two_node
from tools.sim.faults.localisation import many_cases, watch_well
from tools.sim.fleet.known import KnownFleet
from tools.sim.fleet.pods import PodsSimulation
from tools.sim.fleet.probes import FleetOptions
from tools.sim.fleet.rough_clocks import kink_figures, manoeuvre_figures
from tools.sim.fleet.served import serve
from tools.sim.fleet.simulation import FleetSimulation
from tools.sim.fleet.takeovers import takeover_figures
from tools.sim.incast.laws import compare
from tools.sim.jobs.judging import figures
from tools.sim.liveness.simulation import FABRICS, Traffic, cut_cables, false_switches, run_of

_seed = click.option("--seed", default=0, show_default=True, help="Of all randomness.")
_clocks = click.option(
    "--clocks",
    type=click.Choice(KINDS),
    default="steady",
    show_default=True,
    help="What they do beside drifting.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def main() -> None:
    """Simulate the clock sync, and congestion control, where the lab cannot."""


def _table(rows: list[dict[str, Any]]) -> Table:
    """Spaces in place of underscores, so that headings and names may take several lines."""
    table = Table(*(name.replace("_", " ") for name in rows[0]))
    for row in rows:
        texts = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values())
        table.add_row(*(text.replace("_", " ") for text in texts))
    return table


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    emit(rows, as_json=as_json, render=lambda: _table(rows))


@main.command("page")
@click.option("--leaves", type=click.IntRange(2, 4_096), default=32, show_default=True)
@click.option("--spines", type=click.IntRange(1, 512), default=16, show_default=True)
@click.option(
    "--pods", type=click.IntRange(1, 64), default=1, show_default=True, help="Of leaves and spines."
)
@click.option("--cores", type=click.IntRange(1, 512), default=8, show_default=True, help="That join pods.")
@click.option("--hosts", type=click.IntRange(1, 512), default=16, show_default=True, help="At each leaf.")
@click.option("--listen", metavar="HOST:PORT", default=DEFAULT_PAGE, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=float("inf"), help="For so long; else until ctrl-c."
)
@_seed
def page_command(*, pods: int, cores: int, hosts: int, listen: str, seconds: float, **sizes: int) -> None:
    """Serve the operators' page over a fleet of any size that is not there."""
    fleet = KnownFleet(pods=pods, cores=cores if pods > 1 else 0, hosts_per_leaf=hosts, **sizes)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(fleet, listen, seconds))


@main.command("jobs")
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="So many, from `--seed` on.",
)
@_seed
@_json
def jobs_command(*, seeds: int, seed: int, as_json: bool) -> None:
    """How well jobs, their iterations and stragglers are inferred from when queue pairs send."""
    _print(figures(range(seed, seed + seeds)), as_json=as_json)


@main.command("causes")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="So many cases of each kind."
)
@_seed
@_json
def causes_command(*, seeds: int, seed: int, as_json: bool) -> None:
    """How well and how soon it is said why jobs are slow, and how seldom where they are not."""
    _print(cause_figures(range(seed, seed + seeds)), as_json=as_json)


@main.command("two-node")
@click.option("--queued", type=click.FloatRange(0, 1), multiple=True, default=(0.0, 0.4, 0.9))
@click.option("--pairs", type=click.FloatRange(16, 100_000), multiple=True, default=(128.0, 1000.0))
@click.option("--seconds", type=click.FloatRange(15, 3600), default=120.0, show_default=True)
@_clocks
@_seed
@_json
def two_node_command(
    *,
    queued: tuple[float, ...],
    pairs: tuple[float, ...],
    seconds: float,
    clocks: ClockKind,
    seed: int,
    as_json: bool,
) -> None:
    """Two clocks over a path whose packets are queued with a probability, at some pairs per second.

    Nobody watches for clocks that change unannounced, as agents do: see `cold-start` for `--clocks rough`.
    """
    rows = [asdict(two_node(share, rate, seconds, seed, clocks)) for rate in pairs for share in queued]
    _print(rows, as_json=as_json)


@main.command("clos")
@click.option("--nics", type=click.IntRange(8, 100_000), default=248, show_default=True)
@click.option("--load", type=click.FloatRange(0, 0.95), default=0.4, show_default=True)
@click.option("--seconds", type=click.FloatRange(15, 3600), default=30.0, show_default=True)
@click.option("--rate-gbps", type=click.FloatRange(1, 1600), default=400.0, show_default=True)
@click.option("--peers", type=click.IntRange(2, 64), default=10, show_default=True)
@click.option("--pairs", type=click.FloatRange(10, 10_000), default=100.0, show_default=True)
@click.option("--stamp-noise-ns", type=click.FloatRange(0, 1000), default=5.0, show_default=True)
@click.option("--stamp-bias-ns", type=click.FloatRange(0, 1000), default=0.0, show_default=True)
@click.option("--asymmetric", type=click.FloatRange(0, 1), default=0.0, show_default=True)
@click.option("--liars", type=click.FloatRange(0, 0.5), default=0.0, show_default=True)
@_clocks
@_seed
@_json
def clos_command(as_json: bool, rate_gbps: float, pairs: float, **options: Any) -> None:
    """Many NICs in a three-stage Clos under load; some paths may be asymmetric, some hosts lie.

    Nobody watches for clocks that change unannounced, as agents do: see `cold-start` for `--clocks rough`.
    """
    chosen = ClosOptions(rate_bps=rate_gbps * 1e9, pairs_per_s=pairs, **options)
    _print([asdict(ClosSimulation(chosen).run())], as_json=as_json)


@main.command("cold-start")
@click.option("--hosts", type=click.IntRange(3, 200), default=8, show_default=True)
@click.option("--peers", type=click.IntRange(2, 64), default=4, show_default=True)
@click.option("--pairs", type=click.FloatRange(4, 1000), default=25.0, show_default=True, help="An edge's.")
@click.option("--jitter-ns", type=click.FloatRange(1, 1e6), default=500.0, show_default=True)
@click.option("--queued", type=click.FloatRange(0, 0.95), default=0.6, show_default=True)
@click.option("--queue-ns", type=click.FloatRange(1, 1e7), default=100_000.0, show_default=True)
@click.option("--busy-s", type=click.FloatRange(0.001, 10), default=0.05, show_default=True)
@_clocks
@_seed
@_json
def cold_start_command(as_json: bool, pairs: float, clocks: ClockKind, **options: Any) -> None:
    """A small fleet that probes little, from its first probe: errors and the bounds claimed, phase by phase."""
    result = FleetSimulation(FleetOptions(pairs_per_s=pairs, **options), of_kind(clocks)).run()
    phases = ((1.5, 3.0), (3.0, 6.0), (6.0, 10.0), (10.0, 20.0))
    _print([asdict(result.between(*phase)) for phase in phases], as_json=as_json)


@main.command("timelines")
@click.option("--hosts", type=click.IntRange(3, 200), default=6, show_default=True, help="Of each pod.")
@click.option("--seconds", type=click.FloatRange(20, 600), default=40.0, show_default=True)
@_clocks
@_seed
@_json
def timelines_command(hosts: int, seconds: float, clocks: ClockKind, seed: int, as_json: bool) -> None:
    """Two pods: how well their leaders know how far the two timelines are apart, from 13 s after the first probe on."""
    options = FleetOptions(hosts=hosts, seconds=seconds, seed=seed)
    _print([asdict(PodsSimulation(options, of_kind(clocks)).run().settled())], as_json=as_json)


@main.command("kinks")
@click.option("--ppm", type=click.FloatRange(0.1, 900), multiple=True, default=(1.0, 10.0, 50.0))
@click.option("--hosts", type=click.IntRange(3, 200), default=8, show_default=True)
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="So many fleets.")
@_seed
@_json
def kinks_command(ppm: tuple[float, ...], hosts: int, seeds: int, seed: int, as_json: bool) -> None:
    """One host's clock changes its rate and nobody says so: how far off it gets, for how long, and what others see."""
    _print([asdict(kink_figures(by, hosts, range(seed, seed + seeds))) for by in ppm], as_json=as_json)


@main.command("manoeuvres")
@click.option("--hosts", type=click.IntRange(3, 200), default=8, show_default=True)
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="So many fleets.")
@_seed
@_json
def manoeuvres_command(hosts: int, seeds: int, seed: int, as_json: bool) -> None:
    """Discipline, temperature, power events, clocks as in a rough lab: errors, bounds and claims from the first minute on."""
    found = [asdict(figures) for figures in manoeuvre_figures(hosts, range(seed, seed + seeds))]
    _print(found, as_json=as_json)


@main.command("takeovers")
@click.option("--hosts", type=click.IntRange(3, 200), default=8, show_default=True)
@click.option(
    "--silent-s",
    type=click.FloatRange(0.5, 120),
    default=8.0,
    show_default=True,
    help="So long nobody leads.",
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="So many fleets.")
@click.option("--clocks", type=click.Choice(KINDS), default="disciplined", show_default=True)
@_seed
@_json
def takeovers_command(seeds: int, seed: int, as_json: bool, **options: Any) -> None:
    """Nobody leads for a while, and then another manager does: errors and bounds, phase by phase."""
    found = takeover_figures(range(seed, seed + seeds), **options)
    _print([asdict(figures) for figures in found], as_json=as_json)


@main.command("solve")
@click.option("--nodes", type=click.IntRange(2, 4_000_000), default=100_000, show_default=True)
@click.option("--edges", type=click.IntRange(2, 40_000_000), default=1_000_000, show_default=True)
@_seed
@_json
def solve_command(nodes: int, edges: int, seed: int, as_json: bool) -> None:
    """The graph solve of a large fleet: time and memory."""
    _print([asdict(solve(nodes, edges, seed))], as_json=as_json)


@main.command("incast")
@click.option("--senders", type=click.IntRange(1, 64), default=7, show_default=True)
@click.option("--seconds", type=click.FloatRange(3, 120), default=10.0, show_default=True)
@click.option("--loop-ms", type=click.FloatRange(2, 50), default=10.0, show_default=True)
@_seed
@_json
def incast_command(senders: int, seconds: float, loop_ms: float, seed: int, as_json: bool) -> None:
    """An incast under several control laws; a pulse and a step every so often."""
    _print(compare(senders, seconds, loop_ms / 1e3, seed), as_json=as_json)


@main.command("liveness")
@click.option("--fabric", type=click.Choice(tuple(FABRICS)), default="leaf", show_default=True)
@click.option(
    "--active", type=click.FloatRange(0.01, 1), default=1.0, show_default=True, help="Share of queue pairs."
)
@click.option(
    "--acknowledged/--unacknowledged", default=True, show_default=True, help="Whether that is seen."
)
@click.option(
    "--lost", type=click.FloatRange(0, 0.9), default=0.0, show_default=True, help="Share of pulses."
)
@click.option(
    "--bursts", type=click.FloatRange(0, 100), default=0.0, show_default=True, help="Each cable's, a second."
)
@click.option(
    "--cuts", type=click.IntRange(0, 10_000), default=20, show_default=True, help="0: only false switches."
)
@click.option(
    "--seconds", type=click.FloatRange(1, 3600), default=10.0, show_default=True, help="Without cuts."
)
@click.option(
    "--each-per-s",
    type=click.FloatRange(1, 1e9),
    help="Each path by itself, so many pulses a second at most.",
)
@_seed
@_json
def liveness_command(fabric: str, seed: int, as_json: bool, **options: Any) -> None:
    """A host with 2,048 watched paths: how soon a cable that is cut is left, or what is left without a cut."""
    names = {"active", "acknowledged", "lost", "bursts_per_s"}
    traffic = Traffic(**{name: value for name, value in options.items() if name in names})
    run = run_of(FABRICS[fabric], traffic, seed, options["each_per_s"])
    cuts = options["cuts"]
    found = cut_cables(run, cuts, seed) if cuts else false_switches(run, options["seconds"])
    _print([asdict(found)], as_json=as_json)


@main.command("faults")
@click.option("--cases", type=click.IntRange(1, 100_000), default=200, show_default=True)
@click.option(
    "--leaves",
    type=click.IntRange(2, 6),
    default=3,
    show_default=True,
    help="Of a pod, of each rail, at least.",
)
@click.option(
    "--pods", type=click.IntRange(1, 16), default=1, show_default=True, help="More have three tiers."
)
@click.option("--rails", type=click.IntRange(0, 8), default=0, help="NICs of a host.  [default: no rails]")
@click.option("--pairs", type=click.FloatRange(10, 10_000), default=500.0, show_default=True, help="A NIC's.")
@_seed
@_json
def faults_command(
    *, cases: int, leaves: int, pods: int, rails: int, pairs: float, seed: int, as_json: bool
) -> None:
    """Single faults at random places of random fabrics: how many are put down to the right link, how soon."""
    summary, wrong = many_cases(cases, seed, pairs_per_s=pairs, least_leaves=leaves, pods=pods, rails=rails)
    _print([asdict(summary)], as_json=as_json)
    for case in wrong:
        click.echo(f"late or wrong: {case}", err=True)


@main.command("no-faults")
@click.option("--seconds", type=click.FloatRange(10, 36_000), default=600.0, show_default=True)
@click.option("--load", type=click.FloatRange(0, 0.95), default=0.8, show_default=True)
@click.option("--lost", type=click.FloatRange(0, 0.5), default=0.0, show_default=True, help="Of all probes.")
@_clocks
@_seed
@_json
def no_faults_command(
    *, seconds: float, load: float, lost: float, clocks: ClockKind, seed: int, as_json: bool
) -> None:
    """A fabric under load in which nothing is wrong: how often something is said to be."""
    found = watch_well(seconds, seed, load=load, everywhere=lost, kind=clocks)
    _print([asdict(found)], as_json=as_json)


if __name__ == "__main__":
    main()

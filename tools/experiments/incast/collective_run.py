"""`cwdp lab run incast --collective`: a job alone, with others at one of its ranks, and with congestion control too."""

from rich.console import Group, RenderableType

from cwdp.cli.output import progress
from cwdp.shared.rates import format_rate
from tools.experiments.collectives.jobs import SETTLE_S, Json
from tools.experiments.collectives.options import describe_jobs
from tools.experiments.incast.collective import Setting, compare, summarise
from tools.experiments.incast.fleet import incast_fleet
from tools.experiments.report import mbit, ms, new_table, share
from tools.experiments.runs import send
from tools.lab import Lab
from tools.lab.fleet.session import lab_for_run

ALONE = "alone"
"""Not an arm: the jobs without the others, which is what they have lost beside."""

ARMS = ("without", "with")


def run_collectives(setting: Setting) -> Json:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    runs: dict[str, Json] = {}
    senders = len(setting.sources)
    with lab_for_run(setting.spec.name, setting.spec) as lab:
        for controlled in (False, True):
            with incast_fleet(lab, senders, setting.hosts, controlled=controlled) as fleet:
                if not controlled:
                    runs[ALONE] = _run(lab, setting, ALONE)
                arm = ARMS[controlled]
                runs[arm] = _run(lab, setting, arm)
                fleet.check()
    return {
        "senders": senders,
        "target": setting.target,
        "seed": setting.spec.seed,
        "rate_bps": setting.spec.rate_bps,
        "clocks": lab.spec.clocks,
        "message_bytes": setting.message_bytes,
        **setting.jobs.describe(),
        "seconds": setting.seconds,
        "settle_s": SETTLE_S,
        **{arm: compare(run, runs[ALONE]) for arm, run in runs.items()},
    }


def render(result: Json) -> RenderableType:
    """A line an arm: what jobs lost, then how long iterations took and what the others had."""
    columns = ("OVER", "LOSS", "P50", "P99", "LONGEST", "SENDERS", "JAIN", "OF LINK", "AGAIN", "IDLE")
    table = new_table("CONTROL", columns)
    for arm in (ALONE, *ARMS):
        row = result[arm]
        over, fairness = row["over_alone"], row["senders_jain"]
        table.add_row(
            arm,
            "-" if over is None else f"{over:.2f}",
            *(ms(_most(row, name)) for name in ("excess_ns", "p50_ns", "p99_ns", "longest_ns")),
            mbit(row["senders_bps"]),
            "-" if fairness is None else f"{fairness:.3f}",
            share(row["goodput_share"]),
            str(row["retransmitted_packets"]),
            share(row["idle_share"]),
        )
    return Group(
        table,
        "OVER: the median iteration as so many times that of the jobs alone, LOSS: by how much the longest exceeds it; "
        "P50, P99, LONGEST of an iteration; in ms, of the job that suffers most; SENDERS: goodput of the others "
        "together in Mbit/s, JAIN: how evenly; OF LINK: goodput of all that goes to the target; AGAIN: packets sent "
        "again; IDLE: the machine's processors",
        f"{result['senders']} hosts to {result['target']}, a rank's; links of {format_rate(result['rate_bps'])}; "
        f"{describe_jobs(result)}; clocks {result['clocks']}",
    )


def _run(lab: Lab, setting: Setting, arm: str) -> Json:
    plan = setting.plan()
    others = [] if arm == ALONE else setting.others(plan)
    result = send(lab, [*plan.flows, *others], setting.seconds, ranks=plan.ranks)
    found = summarise(setting, plan, result)
    progress(f"{arm}: iterations of {', '.join(ms(job['p50_ns']) for job in found['jobs'])} ms")
    return found


def _most(row: Json, name: str) -> float | None:
    return max((job[name] for job in row["jobs"] if job[name] is not None), default=None)

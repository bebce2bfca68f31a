"""`python -m tools.roce.job_keeper`: keeps a job that stands in a lab; `cwdp lab job up` starts it."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import click

from cwdp.errors import ConfigError
from tools.lab import parts
from tools.lab.lab import Lab
from tools.lab.params import SHARE
from tools.lab.truth.ecmp import Stream, switches_of
from tools.roce.flows import Flow, largest_mtu
from tools.roce.generator import Generator
from tools.roce.jobs import Job, pair_flows

MESSAGE_BYTES = 64 * 1024
LEAST_WINDOW, MOST_WINDOW = 2, 64
TIMEOUT_NS = 536_870_912
"""4.096 us * 2^17: a slow link's queue holds a packet for 0.2 s."""

RETRIES = 10_000
"""A queue pair that stands lives through whatever is done to its links."""

PORTS = range(49_152, 49_152 + 256)
"""Tried for one that leads over a given spine."""


def part(job: str) -> str:
    """The part of a lab that a job is."""
    return f"job-{job}"


@click.command()
@click.option("--name", required=True)
@click.option("--job", required=True)
@click.option("--members", required=True)
@click.option("--load", type=SHARE, required=True)
@click.option("--over", default="")
def main(name: str, job: str, members: str, load: float, over: str) -> None:
    """Keep a job sending in a lab."""
    hosts = tuple(members.split(","))
    told = f"all-to-all of {members}, {load:.0%} of each host's link" + (f", over {over}" if over else "")
    parts.keep(name, part(job), told, partial(_sending, job=Job(job, hosts), load=load, over=over))


@contextmanager
def _sending(lab: Lab, *, job: Job, load: float, over: str) -> Iterator[dict[str, Any]]:
    flows = job_flows(lab, job, load)
    if over:
        flows = [_led_over(lab, flow, over) for flow in flows]
    with Generator(flows, partial(lab.popen, part=part(job.name)), lab.run_dir) as generator:
        generator.start()
        yield {"queue_pairs": len(flows)}


def job_flows(lab: Lab, job: Job, load: float) -> list[Flow]:
    """The queue pairs of a job, each member of which fills a share of its link.

    What those of two members have under way fits the queue of a port: a lab's links have no flow control.
    """
    mtu, transfers = largest_mtu(lab.spec.mtu), len(job.members) - 1
    window = lab.spec.queue_bytes // (2 * mtu * transfers)
    return pair_flows(
        lab.topology,
        job.pairs,
        zlib.crc32(job.name.encode()),
        mtu=mtu,
        window=min(max(window, LEAST_WINDOW), MOST_WINDOW),
        message_bytes=MESSAGE_BYTES,
        timeout_ns=TIMEOUT_NS,
        retries=RETRIES,
        rate_bps=round(load * lab.spec.rate_bps / transfers),
    )


def _led_over(lab: Lab, flow: Flow, spine: str) -> Flow:
    """The same with a source port by which ECMP leads its data over a spine.

    Raises:
        ConfigError: it does not leave its leaf, or no port leads there.
    """
    streams = [Stream(flow.source.host, flow.source.address, flow.target.address, port) for port in PORTS]
    found = switches_of(lab, streams)
    ports = [stream.sport for stream, switches in found.items() if spine in switches]
    if not ports:
        raise ConfigError(
            f"nothing leads from {flow.source.host} to {flow.target.host} over {spine}",
            "Give --over a spine whose links are up, and --hosts below different leaves.",
        )
    return replace(flow, sport=ports[flow.id % len(ports)])


def check_members(lab: Lab, members: Sequence[str], over: str) -> None:
    """Complain of a job that cannot be.

    Raises:
        ConfigError: it has too few members, or names one twice.
        LabError: the lab has no such host or switch.
    """
    for member in members:
        lab.host(member)
    if len(set(members)) != len(members) or len(members) < 2:
        raise ConfigError(f"a job of {', '.join(members) or 'nobody'}", "Give two or more hosts, each once.")
    above = [*lab.topology.spines, *lab.topology.cores]
    if over and over not in above:
        raise ConfigError(f"{over!r} is no spine of the lab", f"It has {', '.join(above)}.")


if __name__ == "__main__":
    main()

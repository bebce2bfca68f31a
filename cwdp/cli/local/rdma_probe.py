"""`cwdp rdma mirror` and `cwdp rdma probe`: probes by UD queue pair, where the NIC keeps port 4791 from XDP."""

import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table

from cwdp.agent.config import DEFAULT_KEYS
from cwdp.cli.output import emit
from cwdp.errors import ConfigError
from cwdp.rdma import netlink
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.ib import udlink
from cwdp.rdma.ib.lid import LID_MAX, gid_lid
from cwdp.rdma.sport import SPORT_MAX, SPORT_MIN
from cwdp.rdma.udprobe import REPLY_TIMEOUT_NS, Link, UdPath, UdProber, UdSample
from cwdp.shared.bus.messages import UdAddress
from cwdp.shared.identity.probe_keys import read_keys

QPN_MAX = 0xFFFFFF
INTERVAL_S = 0.05
POLL_S = 0.02

_STEP = 1031
"""Between the ports of two paths: far apart, as some switches hash near ones alike."""


@dataclass
class PathCount:
    """What became of the probes of a path."""

    path: UdPath
    sent: int
    rtts_ns: list[int]


def _transport(command: Callable[..., None]) -> Callable[..., None]:
    """The options that both commands share."""
    for option in (
        click.option("--keys", default=DEFAULT_KEYS, show_default=True, help="The cluster's keys."),
        click.option(
            "--gid-index", required=True, type=click.IntRange(min=0), help="`cwdp rdma gid` lists them."
        ),
        click.option(
            "--port", default=1, show_default=True, type=click.IntRange(min=1), help="The device's port."
        ),
        click.option("--dev", required=True, metavar="DEVICE", help="The RDMA device, such as mlx5_0."),
    ):
        command = option(command)
    return command


@click.command()
@_transport
def mirror(**transport: Any) -> None:
    """Answer probes of `cwdp rdma probe` until ctrl-c."""
    with _prober(**transport) as prober:
        click.echo(f"answering; on the other host: cwdp rdma probe {format_address(prober.address)} ...")
        with suppress(KeyboardInterrupt):
            while True:
                select.select([prober], [], [])
                prober.poll()


@click.command()
@click.argument("address")
@_transport
@click.option(
    "--paths", default=8, show_default=True, type=click.IntRange(1, 64), help="Source ports to try."
)
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 1000), help="Probes a path.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def probe(address: str, *, paths: int, count: int, as_json: bool, **transport: Any) -> None:
    """Probe the paths to a host that mirrors, at the ADDRESS which that says."""
    peer = parse_address(address)
    with _prober(**transport) as prober:
        counts = probe_paths(prober, choose_paths(prober.address, peer, paths), count)
    rows = [_row(one) for one in counts]
    emit({"address": address, "paths": rows}, as_json=as_json, render=lambda: _render(rows))


def open_link(dev: str, port: int, gid_index: int) -> Link:
    """The queue pairs on a port; see `udlink.open_link`."""
    return udlink.open_link(dev, port, gid_index, netlink.drivers().get(dev))


@contextmanager
def _prober(dev: str, port: int, gid_index: int, keys: str) -> Iterator[UdProber]:
    file = read_keys(Path(keys))
    with closing(UdProber(open_link(dev, port, gid_index), file.secrets(), file.send)) as prober:
        yield prober


def format_address(address: UdAddress) -> str:
    """An address as one word: GID/QPN, and the source ports where it cannot send from all."""
    ports = "/" + ",".join(map(str, address.sports)) if address.sports else ""
    return f"{address.gid}/{address.qpn}{ports}"


def parse_address(text: str) -> UdAddress:
    """The address that `format_address` wrote.

    Raises:
        ConfigError: it is none.
    """
    gid, _, rest = text.partition("/")
    qpn, _, ports = rest.partition("/")
    try:
        address = UdAddress(
            str(IPv6Address(gid)), int(qpn), tuple(map(int, ports.split(",") if ports else ()))
        )
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no address of a mirror", "give the one that `cwdp rdma mirror` says"
        ) from error
    least, most = (1, LID_MAX) if by_lid(address) else (SPORT_MIN, SPORT_MAX)
    if not 0 < address.qpn <= QPN_MAX or any(not least <= sport <= most for sport in address.sports):
        raise ConfigError(
            f"{text!r} is no address of a mirror", f"QPN up to {QPN_MAX}, ports from {least} to {most}"
        )
    return address


def by_lid(address: UdAddress) -> bool:
    """Whether it is of InfiniBand, where its ports are the LIDs that it is sent to by."""
    return gid_lid(gid_bytes(address.gid)) is not None


def choose_paths(here: UdAddress, there: UdAddress, count: int) -> list[UdPath]:
    """As many paths as asked for, or as both ends have source ports; on InfiniBand, as both have LIDs."""
    if by_lid(here):
        lids = zip(there.sports[:count], here.sports[:count], strict=False)
        return [UdPath(there, lid, reply_lid) for lid, reply_lid in lids]
    drawn = tuple(SPORT_MIN + (1 + i) * _STEP % (SPORT_MAX - SPORT_MIN + 1) for i in range(count))
    ports = zip((here.sports or drawn)[:count], (there.sports or drawn)[:count], strict=False)
    return [UdPath(there, sport, reply_sport) for sport, reply_sport in ports]


def probe_paths(prober: UdProber, paths: Sequence[UdPath], count: int) -> list[PathCount]:
    """Send so many probes on each path, and wait for the last answer or its time to be over."""
    counts = {path: PathCount(path, 0, []) for path in paths}
    for _ in range(count):
        prober.send(paths)
        _take(counts, _polled(prober, time.monotonic() + INTERVAL_S))
    _take(counts, _polled(prober, time.monotonic() + REPLY_TIMEOUT_NS / 1e9 + INTERVAL_S))
    return list(counts.values())


def _polled(prober: UdProber, until_s: float) -> Iterator[UdSample]:
    while time.monotonic() < until_s:
        select.select([prober], [], [], POLL_S)
        yield from prober.poll()


def _take(counts: dict[UdPath, PathCount], samples: Iterator[UdSample]) -> None:
    for sample in samples:
        count = counts[sample.path]
        count.sent += 1
        if sample.rtt_ns is not None:
            count.rtts_ns.append(sample.rtt_ns)


def _row(count: PathCount) -> dict[str, Any]:
    rtts = sorted(count.rtts_ns)
    return {
        "sport": count.path.sport,
        "reply_sport": count.path.reply_sport,
        "sent": count.sent,
        "lost": count.sent - len(rtts),
        "rtt_min_ns": rtts[0] if rtts else None,
        "rtt_p50_ns": rtts[len(rtts) // 2] if rtts else None,
        "rtt_max_ns": rtts[-1] if rtts else None,
    }


def _render(rows: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for name in ("port", "back", "sent", "lost", "min", "p50", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        rtts = (row["rtt_min_ns"], row["rtt_p50_ns"], row["rtt_max_ns"])
        shown = ("-" if rtt is None else f"{rtt / 1000:,.1f} us" for rtt in rtts)
        table.add_row(*(str(row[name]) for name in ("sport", "reply_sport", "sent", "lost")), *shown)
    return table

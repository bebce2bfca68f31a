"""Bandwidth slices as they are asked for, in a file or in a host's desired state.

A slice is a share of one interface's link for the queue pairs that its matches name. Slices are looked through in
their order; the first with a match that fits takes the queue pair. What fits none shares what is left of the link.
Rates count Ethernet frames without FCS, preamble and gap between frames, as the qdiscs of Linux do.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from msgspec import Struct

from cwdp.errors import ConfigError
from cwdp.shared.addresses import Address, read_address
from cwdp.shared.rates import format_rate, parse_rate

MIN_RATE_BPS = 1_000_000
MAX_SLICES = 200
MAX_MATCHES = 256
MAX_PRIORITY = 6
DEFAULT_PRIORITY = 3
QPN_MAX = 0xFFFFFF
DSCP_MAX = 63

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,31}")

_IPV4_MAPPED = IPv6Network("::ffff:0:0/96")

Network = IPv4Network | IPv6Network


class Match(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Queue pairs of which all that is given holds.

    Attributes:
        dst: destination address or prefix.
        qpn: destination queue pair number.
        dscp: of the queue pair's first packet.
        job: name of a job that the queue pair is listed under.
    """

    dst: str | None = None
    qpn: int | None = None
    dscp: int | None = None
    job: str | None = None

    def network(self) -> Network | None:
        """The destinations, None for all.

        Raises:
            ConfigError: `dst` is neither address nor prefix.
        """
        if self.dst is None:
            return None
        try:
            network = ipaddress.ip_network(self.dst)
        except ValueError as error:
            raise ConfigError(
                f"{self.dst!r} is no destination: {error}", "give an address, or a prefix like 10.1.0.0/16"
            ) from error
        if "%" in self.dst:
            raise ConfigError(f"{self.dst!r} names an interface", "leave out what begins with %")
        if (
            network.version == 6
            and network.prefixlen < _IPV4_MAPPED.prefixlen
            and _IPV4_MAPPED.subnet_of(network)
        ):
            raise ConfigError(f"{self.dst} covers IPv4 addresses too", "give 2000::/3 or fc00::/7")
        return network

    def validate(self) -> None:
        """Raise `ConfigError` for what no packet can have, and for a match of everything."""
        if self == Match():
            raise ConfigError("a match without any condition", "give it dst, qpn, dscp or job")
        self.network()
        for name, value, limit in (("qpn", self.qpn, QPN_MAX), ("dscp", self.dscp, DSCP_MAX)):
            if value is not None and not 0 <= value <= limit:
                raise ConfigError(f"there is no {name} {value}", f"give one from 0 to {limit}")
        if self.job is not None:
            _check_name("job", self.job)


class Slice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named share of a link.

    Attributes:
        guaranteed: rate that it has whatever others do.
        ceiling: rate that it never exceeds, the link's if not given.
        priority: 0 to 6; 0 is served first, and first given what others leave unused.
        qp_rate: rate that none of its queue pairs exceeds.
        match: the queue pairs that are in it: those that any of these fits.
    """

    name: str
    guaranteed: str
    match: tuple[Match, ...]
    ceiling: str | None = None
    priority: int = DEFAULT_PRIORITY
    qp_rate: str | None = None


class JobQueuePair(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue pair by its far end: destination address and destination queue pair number."""

    dst: str
    qpn: int


class Job(Struct, frozen=True, forbid_unknown_fields=True):
    """A job's queue pairs on this host."""

    name: str
    queue_pairs: tuple[JobQueuePair, ...]


class SliceSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All slices of one interface, most important match first.

    Attributes:
        link_rate: of the interface, if the kernel does not know it or is wrong.
    """

    slice: tuple[Slice, ...] = ()
    job: tuple[Job, ...] = ()
    link_rate: str | None = None

    def given_link_bps(self) -> int | None:
        """The rate of the link, None where it is not given.

        Raises:
            ConfigError: it is none that a link can have.
        """
        if self.link_rate is None:
            return None
        link_bps = parse_rate(self.link_rate)
        if link_bps < MIN_RATE_BPS:
            raise ConfigError(f"link_rate is {self.link_rate}", f"give {format_rate(MIN_RATE_BPS)} or more")
        return link_bps

    def shares(self, link_bps: int) -> "tuple[Share, ...]":
        """Every slice in numbers.

        Raises:
            ConfigError: something is out of range, named twice, or more than the link has.
        """
        _check_counts(self)
        _check_jobs(self.job)
        shares = tuple(_share(wanted, link_bps) for wanted in self.slice)
        _check_sum(shares, link_bps)
        return shares


@dataclass(frozen=True)
class Share:
    """A slice in numbers; `qp_bps` is 0 where its queue pairs are not held to a rate of their own."""

    name: str
    guaranteed_bps: int
    ceiling_bps: int
    priority: int
    qp_bps: int
    matches: tuple[Match, ...]


def _share(wanted: Slice, link_bps: int) -> Share:
    _check_name("slice", wanted.name)
    if not wanted.match:
        raise ConfigError(f"slice {wanted.name} has no match", "say which queue pairs are in it")
    for match in wanted.match:
        match.validate()
    if not 0 <= wanted.priority <= MAX_PRIORITY:
        raise ConfigError(
            f"slice {wanted.name} has priority {wanted.priority}", f"give one from 0 to {MAX_PRIORITY}"
        )
    guaranteed = _rate(wanted.name, "guaranteed", wanted.guaranteed)
    ceiling = link_bps if wanted.ceiling is None else _rate(wanted.name, "ceiling", wanted.ceiling)
    qp = 0 if wanted.qp_rate is None else _rate(wanted.name, "qp_rate", wanted.qp_rate)
    if ceiling < guaranteed <= link_bps:
        raise ConfigError(
            f"slice {wanted.name} is guaranteed {format_rate(guaranteed)}, above its ceiling of "
            f"{format_rate(ceiling)}",
            "raise the ceiling, or lower the guarantee",
        )
    return Share(wanted.name, guaranteed, min(ceiling, link_bps), wanted.priority, qp, wanted.match)


def _rate(name: str, what: str, text: str) -> int:
    rate_bps = parse_rate(text)
    if rate_bps < MIN_RATE_BPS:
        raise ConfigError(f"slice {name}: {what} is {text}", f"give {format_rate(MIN_RATE_BPS)} or more")
    return rate_bps


def _check_sum(shares: Iterable[Share], link_bps: int) -> None:
    guarantees = [share.guaranteed_bps for share in shares]
    if sum(guarantees) > link_bps:
        terms = " + ".join(format_rate(rate) for rate in guarantees)
        raise ConfigError(
            f"the guarantees exceed the link: {terms} = {format_rate(sum(guarantees))}, and the link has "
            f"{format_rate(link_bps)}",
            "lower some; if the link is faster than that, say so by link_rate or --link-rate",
        )


def _check_counts(wanted: SliceSet) -> None:
    matches = sum(len(slice_.match) for slice_ in wanted.slice)
    for count, limit, what in (
        (len(wanted.slice), MAX_SLICES, "slices"),
        (matches, MAX_MATCHES, "matches"),
    ):
        if count > limit:
            raise ConfigError(f"{count} {what} are too many", f"{limit} fit; list queue pairs under a job")
    _check_unique("slice", (slice_.name for slice_ in wanted.slice))
    _check_unique("job", (job.name for job in wanted.job))


def _check_unique(what: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"the {what} {twice[0]} is there twice", "remove one of them")


def _check_jobs(jobs: Iterable[Job]) -> None:
    pairs = []
    for job in jobs:
        _check_name("job", job.name)
        for pair in job.queue_pairs:
            Match(qpn=pair.qpn).validate()
            pairs.append(f"{_job_address(job, pair)} QPN {pair.qpn}")
    _check_unique("queue pair", pairs)


def _job_address(job: Job, pair: JobQueuePair) -> Address:
    try:
        return read_address(pair.dst)
    except ValueError as error:
        raise ConfigError(
            f"job {job.name}: {pair.dst!r} is no IP address", "give one like 10.0.0.2 or fd00::2"
        ) from error


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name for a {what}",
            "use up to 32 letters, digits and _ . : -, with a letter or digit first",
        )

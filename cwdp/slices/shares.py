"""Which number each slice has, and what the dataplane is told: arrays of its maps, no I/O."""

import zlib
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.addresses import address_words, words_address
from cwdp.shared.slices import Match, Share

MAPPED_BITS = 96
"""IPv4 addresses are ::ffff:a.b.c.d in the dataplane."""

DSCP_MASK = 0x3F
CRUMB, CRUMB_BPS = 0.001, 500_000
"""Of the link; the management of a host may be in no slice."""

Shape = tuple[str, bool]
"""Name of a slice, and whether its queue pairs have rates of their own."""


def number(wanted: tuple[Share, ...], present: Mapping[int, Shape]) -> dict[int, Share]:
    """Give each slice the number that it has, or one that nobody has.

    A slice whose queue pairs get, or lose, rates of their own takes a new number: packets that wait under the old one
    can leave from there.

    Args:
        wanted: every slice, in order.
        present: name and shape of every number in use.
    """
    numbers = {known: n for n, known in present.items()}
    free = iter(sorted(set(range(1, abi.SLICES)) - set(present)))
    shapes = ((share.name, share.qp_bps > 0) for share in wanted)
    return {
        numbers[s] if s in numbers else next(free): share for s, share in zip(shapes, wanted, strict=True)
    }


def rest_bps(shares: Iterable[Share], link_bps: int) -> int:
    """What all that is in no slice is guaranteed: what nobody else is, if only a crumb."""
    left_bps = link_bps - sum(share.guaranteed_bps for share in shares)
    return max(left_bps, round(link_bps * CRUMB), CRUMB_BPS)


def describe(record: np.void, share: Share) -> None:
    """Write what is wanted of a slice into a record of `abi.SLICE`; what packets move stays."""
    record["name"], record["priority"] = share.name.encode(), share.priority
    record["guaranteed_bps"], record["ceiling_bps"] = share.guaranteed_bps, share.ceiling_bps
    record["qp_bps"] = share.qp_bps


def shape(record: np.void) -> Shape:
    """Name and shape of a record of `abi.SLICE`."""
    return record["name"].decode(), bool(record["qp_bps"])


def job_number(name: str) -> int:
    """What stands for a job in the dataplane: the CRC-32 of its name; 0 is nobody's."""
    return zlib.crc32(name.encode()) or 1


def rules(numbered: Mapping[int, Share]) -> NDArray[np.void]:
    """The rules in the order of the slices; shape (SLICE_RULES,), dtype `abi.SLICE_RULE`."""
    table = np.zeros(abi.SLICE_RULES, dtype=abi.SLICE_RULE)
    each = ((n, match) for n, share in numbered.items() for match in share.matches)
    for row, (n, match) in enumerate(each):
        _fill(table[row], match)
        table["slice"][row] = n
    return table


def matches(table: NDArray[np.void]) -> dict[int, tuple[Match, ...]]:
    """What `rules` was made from, by the numbers of the slices, in order."""
    found: dict[int, tuple[Match, ...]] = {}
    for row in table[table["slice"] != 0]:
        number = int(row["slice"])
        found[number] = (*found.get(number, ()), _match(row))
    return found


def _fill(row: np.void, match: Match) -> None:
    network = match.network()
    if network is not None:
        row["addr"] = address_words(network.network_address)
        row["addr_mask"] = _mask_words(network.prefixlen + (MAPPED_BITS if network.version == 4 else 0))
    if match.qpn is not None:
        row["qpn"], row["qpn_mask"] = match.qpn, abi.QPN_MAX
    if match.dscp is not None:
        row["dscp"], row["dscp_mask"] = match.dscp, DSCP_MASK
    if match.job is not None:
        row["job"], row["job_name"] = job_number(match.job), match.job.encode()


def _match(row: np.void) -> Match:
    return Match(
        dst=_network(row),
        qpn=int(row["qpn"]) if row["qpn_mask"] else None,
        dscp=int(row["dscp"]) if row["dscp_mask"] else None,
        job=row["job_name"].decode() if row["job"] else None,
    )


def _network(row: np.void) -> str | None:
    bits = sum(int(word).bit_count() for word in row["addr_mask"])
    if not bits:
        return None
    address = words_address(row["addr"])
    length = bits - MAPPED_BITS if address.version == 4 else bits
    return str(address) if length == address.max_prefixlen else f"{address}/{length}"


def _mask_words(bits: int) -> NDArray[np.uint32]:
    mask = (1 << 128) - (1 << 128 - bits)
    return np.frombuffer(mask.to_bytes(16, "big"), dtype=">u4").astype(np.uint32)

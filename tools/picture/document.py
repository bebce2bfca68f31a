"""What is recorded of a cut, as the JSON beside the picture has it."""

import json
import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

Rates = Annotated[list[int], Meta(min_length=2)]


class Arm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to run the fabric; times are from the cut.

    Attributes:
        queue_pairs_hit: those whose packets or acknowledgements took the link just before.
        queue_pairs_died: gave up for good.
        stall_max_ms: the longest that one of those hit delivered nothing, retransmission included.
        mended_s: when the link carried packets again.
        idle_share: of the machine's processors, from 0 to 1.
        goodput_bps: payload delivered by all queue pairs, in each bin.
        sent_s: when each packet that was stamped at both ends left, ascending.
        owd_us: its one-way delay.
    """

    queue_pairs_hit: int
    queue_pairs_died: int
    stall_max_ms: float
    mended_s: float
    idle_share: float
    goodput_bps: Rates
    sent_s: list[float]
    owd_us: list[float]


class Recording(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same queue pairs and the same cut, once by ECMP alone and once with cwdp.

    Attributes:
        recorded: the day.
        kernel: its version.
        seed: draws queue pairs and the link.
        hosts, leaves, spines: of the lab.
        rate_bps, spine_rate_bps: of hosts' links and of those between switches.
        link: that went silent, both ways.
        queue_pairs: that sent.
        offered_bps: payload that all of them want to send.
        first_s: where the first bin of goodput begins, from the cut.
        bin_s: how long each is.
        ecmp, cwdp: what came of it.
    """

    recorded: str
    kernel: str
    seed: int
    hosts: int
    leaves: int
    spines: int
    rate_bps: int
    spine_rate_bps: int
    link: str
    queue_pairs: int
    offered_bps: int
    first_s: float
    bin_s: float
    ecmp: Arm
    cwdp: Arm


def load(path: Path) -> Recording:
    """Read what was stored.

    Raises:
        OSError, msgspec.MsgspecError: it is not there, or something else.
    """
    return msgspec.json.decode(path.read_bytes(), type=Recording)


def store(recording: Recording, path: Path) -> None:
    """Write it with each list on a line of its own."""
    text = json.dumps(msgspec.to_builtins(recording), indent=1)
    path.write_text(re.sub(r"\[[^][]*\]", lambda found: "".join(found[0].split()), text) + "\n")

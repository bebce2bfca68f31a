"""Packets that arrive at a host's NIC, by their source port."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tools.rdma.testbed.fabric import RdmaHost

ROCE_PORT = 4791
_PREFERENCE = "77"


@contextmanager
def arriving(host: RdmaHost, sports: Sequence[int]) -> Iterator[Callable[[], dict[int, int]]]:
    """Count packets of RoCEv2 over IPv4 from these ports; asked for, how many of each have arrived since."""
    where = ("dev", host.ifname, "ingress", "pref", _PREFERENCE)
    subprocess.run(("tc", "qdisc", "add", "dev", host.ifname, "clsact"), check=False, capture_output=True)
    for sport in sports:
        ports = ("dst_port", str(ROCE_PORT), "src_port", str(sport))
        _tc("filter", "add", *where, "protocol", "ip", "flower", "ip_proto", "udp", *ports, "action", "pass")
    try:
        yield (
            lambda: (
                dict.fromkeys(sports, 0)
                | packets_by_port(json.loads(_tc("-s", "-j", "filter", "show", *where)))
            )
        )
    finally:
        _tc("filter", "del", *where)


def packets_by_port(filters: list[dict[str, object]]) -> dict[int, int]:
    """What filters of tc have counted, as `tc -s -j filter show` lists them."""
    found = {}
    for each in filters:
        match each:
            case {
                "options": {
                    "keys": {"src_port": int(sport)},
                    "actions": [{"stats": {"packets": int(packets)}}],
                }
            }:
                found[sport] = packets
    return found


def _tc(*arguments: str) -> str:
    return subprocess.run(("tc", *arguments), check=True, capture_output=True, text=True).stdout

"""What each host is to be told, from all that wants something of it. No I/O."""

from collections.abc import Iterable, Mapping

from cwdp.shared.bus.messages import Desired, Hello, Leader, ProbeEdge, RoceSettings, Spread
from cwdp.shared.tcp import SteerTcp, tcp_key
from manager.fabric.discovery import Discovery
from manager.hosts.elsewhere import PodHost
from manager.overrides.tables import Overrides
from manager.planner.detours import detours
from manager.planner.planner import Planner, merged


def wanted_documents(
    edges: Mapping[str, list[ProbeEdge]],
    *,
    leader: Leader,
    roce: RoceSettings | None,
    report_interval_s: float,
    overrides: Overrides,
    planner: Planner,
    by_lids: Mapping[str, list[Spread]],
    discovery: Discovery,
    hosts: Iterable[Hello | PodHost],
) -> list[Desired]:
    """The documents of the hosts that are to probe something, without versions.

    Args:
        edges: what each host is to probe.
        leader: who tells them.
        roce: what all dataplanes are to do with queue pairs.
        report_interval_s: from one report of an agent to the next.
        overrides: what operators want; it comes before what the planner does.
        planner: what it wants.
        by_lids: how each host's connections over InfiniBand are spread.
        discovery: what is to be traced.
        hosts: what hosts say of themselves, by proven addresses; those of other pods among them.
    """
    by_hand, slices, tcp = (
        overrides.steering.messages(),
        overrides.slicing.messages(),
        overrides.tcp.messages(),
    )
    steer = {host: merged(by_hand.get(host, []), planner.planned.get(host, [])) for host in edges}
    round_nics = detours(hosts, steer)
    spreads = planner.spreads(discovery.in_use)
    return [
        Desired(
            host=host,
            version=0,
            epoch=leader.epoch,
            led_since_s=leader.since_s,
            probes=probes,
            steer=steer[host],
            roce=roce,
            slices=slices.get(host, []),
            traces=discovery.orders.get(host, []),
            detours=round_nics.get(host, []),
            spreads=[*spreads.get(host, []), *by_lids.get(host, [])],
            tcp=merged_tcp(tcp.get(host, []), planner.planned_tcp.get(host, [])),
            tcp_traces=discovery.tcp_orders.get(host, []),
            report_interval_s=report_interval_s,
        )
        for host, probes in edges.items()
    ]


def merged_tcp(overrides: list[SteerTcp], planned: list[SteerTcp]) -> list[SteerTcp]:
    """What operators want of a host's connections, and of all others what the planner does."""
    taken = {tcp_key(one) for one in overrides}
    return overrides + [one for one in planned if tcp_key(one) not in taken]

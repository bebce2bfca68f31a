"""Breaking and mending links: carrier, silence, loss, slowness, a smaller MTU and another class.

Losses are dropped, and classes changed, at the switch's end of a host's link, in both directions: on its egress towards the host, on its
ingress from it. What a host reflects with XDP_TX never passes the host's own tc hooks, and what it receives is seen
by XDP before tc. For the same reason a host that sends slowly is held back where the switch takes it in.

There is no routing daemon: `cut` and `heal` install the routes that one would have found, after the time that it
would have taken. Anything but a cut leaves the carrier, so routing never learns of it.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from cwdp.errors import ConfigError
from tools.lab import state
from tools.lab.lifecycle import kernel_errors
from tools.lab.network import drops, fabric, shaping
from tools.lab.network.fabric import Node
from tools.lab.state import LabState, LinkFault, TosChange
from tools.lab.topology import Link, Port, Topology

DEFAULT_CONVERGENCE_S = 0.05
BOTH = "both"
ECN_BITS = 2
LEAST_MTU = 1280
"""Of IPv6 (RFC 8200 5): with less the kernel takes it off an interface, addresses and all."""


def cut(name: str, link_name: str, convergence_s: float = DEFAULT_CONVERGENCE_S) -> None:
    """Take a link's carrier; after `convergence_s` the switches route round it."""
    with _changing(name, link_name) as (known, topology, link):
        _fault(known, link).cut = True
        state.save(known)
        with fabric.open_nodes(topology, topology.switches) as nodes:
            _set_link(nodes[link.b.node], link, "down")
            _converge(topology, nodes, known, link, convergence_s)


def drop(name: str, link_name: str, share: float, direction: str = BOTH) -> None:
    """Drop `share` (0 to 1, 1 is silence) of a link's packets, both ways or in one direction (`h1>l1`)."""
    with _changing(name, link_name) as (known, topology, link):
        fault = _fault(known, link)
        fault.loss |= dict.fromkeys(_directions(link, direction), share)
        state.save(known)
        with fabric.open_nodes(topology, (link.a.node, link.b.node)) as nodes:
            fault.drop_map_ids = _install_drops(topology, nodes, link, fault)
        state.save(known)


def remark(
    name: str, link_name: str, dscp: int | None, ecn: int | None = None, direction: str = BOTH
) -> None:
    """Give what crosses a link another DSCP (0 to 63) or ECN (0 to 3), None for that it has, both ways or in one direction."""
    ecn_mask = (1 << ECN_BITS) - 1
    dscp_mask = 0xFF & ~ecn_mask
    change = TosChange(
        mask=(0 if dscp is None else dscp_mask) | (0 if ecn is None else ecn_mask),
        value=(dscp or 0) << ECN_BITS | (ecn or 0),
    )
    with _changing(name, link_name) as (known, topology, link):
        fault = _fault(known, link)
        fault.tos |= dict.fromkeys(_directions(link, direction), change)
        state.save(known)
        with fabric.open_nodes(topology, (link.a.node, link.b.node)) as nodes:
            fault.drop_map_ids = _install_drops(topology, nodes, link, fault)
        state.save(known)


def narrow(name: str, link_name: str, mtu: int) -> None:
    """Give both ends of a link between switches another MTU, in bytes, up to that of the fabric."""
    with _changing(name, link_name) as (known, topology, link):
        if link.a.node not in topology.switches:
            raise ConfigError(
                f"{link.name} is a host's link, whose MTU the host would know of",
                "Name one between switches.",
            )
        if not LEAST_MTU <= mtu <= topology.spec.mtu:
            raise ConfigError(
                f"{mtu} bytes is no MTU of a link of this lab", f"Give {LEAST_MTU} to {topology.spec.mtu}."
            )
        _fault(known, link).mtu = mtu
        state.save(known)
        with fabric.open_nodes(topology, (link.a.node, link.b.node)) as nodes:
            _set_mtu(nodes, link, mtu)


def prepare_silence(name: str, topology: Topology) -> None:
    """Have classifiers that drop nothing on all links between switches, so that a cut is made at a moment."""
    for link in topology.switch_links:
        drop(name, link.name, 0.0)


def slow(name: str, link_name: str, rate_bps: int, direction: str = BOTH) -> None:
    """Lower (or raise) a link's rate, both ways or in one direction; its queue keeps its size in bytes."""
    with _changing(name, link_name) as (known, topology, link):
        fault = _fault(known, link)
        fault.rate_bps |= dict.fromkeys(_directions(link, direction), rate_bps)
        state.save(known)
        with fabric.open_nodes(topology, (link.a.node, link.b.node)) as nodes:
            _set_rates(topology, nodes, link, fault.rate_bps)


def heal(name: str, link_name: str, convergence_s: float = DEFAULT_CONVERGENCE_S) -> None:
    """Undo everything that was done to a link; after `convergence_s` the switches use it again."""
    with _changing(name, link_name) as (known, topology, link):
        with fabric.open_nodes(topology, {*topology.switches, link.a.node}) as nodes:
            _install_drops(topology, nodes, link, LinkFault())
            _set_rates(topology, nodes, link, {})
            fault = known.faults.pop(link.name, LinkFault())
            if fault.mtu:
                _set_mtu(nodes, link, topology.spec.mtu)
            if fault.cut:
                _set_link(nodes[link.b.node], link, "up")
                fabric.configure_switch_port(topology, nodes[link.b.node], link)
                _converge(topology, nodes, known, link, convergence_s)
        state.save(known)


@contextmanager
def _changing(name: str, link_name: str) -> Iterator[tuple[LabState, Topology, Link]]:
    with state.locked(name), kernel_errors(f"to change the link {link_name!r}"):
        known = state.require(name)
        topology = Topology(known.spec)
        yield known, topology, topology.link(link_name)


def _fault(known: LabState, link: Link) -> LinkFault:
    return known.faults.setdefault(link.name, LinkFault())


def _directions(link: Link, direction: str) -> tuple[str, ...]:
    if direction == BOTH:
        return link.directions
    if direction not in link.directions:
        raise ConfigError(
            f"{direction!r} is not a direction of the link {link.name}",
            f"Give {BOTH}, {link.directions[0]} or {link.directions[1]}.",
        )
    return (direction,)


def _set_link(node: Node, link: Link, operstate: str) -> None:
    node.ip.link("set", index=node.index(link.port_of(node.name).name), state=operstate)


def _set_mtu(nodes: dict[str, Node], link: Link, mtu: int) -> None:
    for port in (link.a, link.b):
        nodes[port.node].ip.link("set", index=nodes[port.node].index(port.name), mtu=mtu)


def _converge(
    topology: Topology, nodes: dict[str, Node], known: LabState, link: Link, convergence_s: float
) -> None:
    """Route round the links that are cut; a host's link changes nobody's routes but its leaf's own."""
    if link.a.node in topology.switches:
        time.sleep(convergence_s)
        fabric.install_routes(topology, nodes, [name for name, fault in known.faults.items() if fault.cut])


def _set_rates(topology: Topology, nodes: dict[str, Node], link: Link, rates_bps: dict[str, int]) -> None:
    """A host that is slower than its link is held back where the leaf takes in what it sends."""
    for direction, port in zip(link.directions, (link.a, link.b), strict=True):
        rate_bps = rates_bps.get(direction, link.rate_bps)
        if port.node in topology.nics:
            slow_bps = rate_bps if rate_bps < link.rate_bps else None
            fabric.hold_inbound(topology, nodes[link.b.node], link, slow_bps)
            rate_bps = max(rate_bps, link.rate_bps)
        fabric.shape_port(topology, nodes[port.node], link, rate_bps)


def _install_drops(
    topology: Topology, nodes: dict[str, Node], link: Link, fault: LinkFault
) -> dict[str, int]:
    """Replace a link's classifiers; return the ids of the maps in which they count, by direction.

    All are loaded before the first is attached, which takes milliseconds: a cable fails both ways at once.
    """
    directions = fault.loss.keys() | fault.tos.keys()
    for port in (link.a, link.b):
        if port.node in topology.switches and not directions:
            shaping.detach_classifiers(nodes[port.node].ip, nodes[port.node].index(port.name))
    with ExitStack() as loaded:
        programs = {
            direction: loaded.enter_context(_classifier(fault, direction)) for direction in sorted(directions)
        }
        for direction, (program_fd, _) in programs.items():
            port, hook = _drop_point(topology, link, direction)
            node = nodes[port.node]
            shaping.attach_classifier(node.ip, node.index(port.name), hook, program_fd, drops.OBJECT.name)
    return {direction: map_id for direction, (_, map_id) in programs.items()}


def _classifier(fault: LinkFault, direction: str) -> AbstractContextManager[tuple[int, int]]:
    change = fault.tos.get(direction, TosChange())
    return drops.loaded(fault.loss.get(direction, 0.0), change.mask, change.value)


def _drop_point(topology: Topology, link: Link, direction: str) -> tuple[Port, shaping.Hook]:
    sender, receiver = (link.a, link.b) if direction == link.directions[0] else (link.b, link.a)
    return (sender, "egress") if sender.node in topology.switches else (receiver, "ingress")

"""Cutting hosts, managers and bus servers off the management network, and bringing them back; nothing tells them."""

from cwdp.errors import LabError
from tools.lab import state
from tools.lab.lifecycle import kernel_errors
from tools.lab.network import fabric
from tools.lab.topology import MGMT, Topology


def isolate(name: str, node: str) -> None:
    """Have nothing of what a node sends over the management network come through, nor what is sent to it.

    Raises:
        LabError: there is no such lab or node, or it is a switch.
    """
    _set(name, node, reachable=False)


def rejoin(name: str, node: str) -> None:
    """Undo `isolate`. Raises what that does."""
    _set(name, node, reachable=True)


def _set(name: str, node: str, *, reachable: bool) -> None:
    with state.locked(name), kernel_errors(f"to change the management network of {node!r}"):
        known = state.require(name)
        topology = Topology(known.spec)
        if topology.require_node(node) not in topology.managed:
            raise LabError(
                f"{node!r} is not on the management network", f"These are: {', '.join(topology.managed)}."
            )
        with fabric.open_nodes(topology, [MGMT]) as nodes:
            fabric.set_reachable(nodes[MGMT], node, reachable)
        known.isolated = sorted({*known.isolated, node} - ({node} if reachable else set()))
        state.save(known)

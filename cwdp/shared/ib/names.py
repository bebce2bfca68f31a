"""What nodes and ports of an InfiniBand subnet are called, everywhere. Pure.

A host's port is a NIC, `HOST/DEVICE`, where the node description is `HOST DEVICE`, as Linux writes it: `node01 mlx5_0`. From the
second port of a device on it is `HOST/DEVICE.PORT`; the host's own agent calls its ports so, too (`nic_name`). A description of one word names a host: its ports are `HOST/1`, `HOST/2`.
A switch goes by its description, or its GUID where it has none; its ports are `SWITCH:PORT`. A slash becomes `-`, as it parts host and NIC. Of several that
have one name, all but the one with the lowest GUID have theirs behind it; of several subnets those of the later ones.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

from cwdp.shared.ib.subnet import SWITCH, Subnet

FIRST_PORT = 1


class Names:
    """Of one subnet.

    Args:
        subnet: it.
        taken: names of nodes of other subnets, by name the GUID. An adapter with a port in each has one name in both.
    """

    def __init__(self, subnet: Subnet, taken: Mapping[str, int] = MappingProxyType({})) -> None:
        self._subnet, self._taken = subnet, taken

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Of each node what it is called: a switch's name, or `HOST/DEVICE`; only `HOST` where no device is told."""
        subnet = self._subnet
        nodes = zip(subnet.names, subnet.guids.tolist(), subnet.kinds.tolist(), strict=True)
        return node_names(nodes, self._taken)

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """Of each port the node that links name: its switch, or the NIC that it is."""
        subnet = self._subnet
        return tuple(
            self.nodes[node] if subnet.kinds[node] == SWITCH else name
            for node, name in zip(subnet.ports["node"].tolist(), self.ports, strict=True)
        )

    @cached_property
    def ports(self) -> tuple[str, ...]:
        """Of each port: `SWITCH:PORT`, or the NIC that it is."""
        subnet = self._subnet
        kinds = subnet.kinds.tolist()
        return tuple(
            port_name(self.nodes[node], number, kinds[node])
            for node, number in zip(
                subnet.ports["node"].tolist(), subnet.ports["number"].tolist(), strict=True
            )
        )

    @cached_property
    def nics(self) -> Mapping[str, int]:
        """The row of each host's port by the NIC that it is."""
        kinds, node = self._subnet.kinds, self._subnet.ports["node"].tolist()
        return {end: row for row, end in enumerate(self.ends) if kinds[node[row]] != SWITCH}


def node_names(
    nodes: Iterable[tuple[str, int, int]], taken: Mapping[str, int] = MappingProxyType({})
) -> tuple[str, ...]:
    """Of each node, all of a subnet: its description, GUID and kind, by ascending GUIDs; `taken` as of `Names`."""
    owner = dict(taken)
    found: list[str] = []
    for name, guid, kind in nodes:
        plain = _switch(name, guid) if kind == SWITCH else _adapter(name, guid)
        unique = plain if owner.get(plain, guid) == guid else f"{plain}-{guid:016x}"
        owner[unique] = guid
        found.append(unique)
    return tuple(found)


def nic_name(device: str, number: int) -> str:
    """What a host calls a port of one of its devices."""
    return device if number == FIRST_PORT else f"{device}.{number}"


def port_name(node: str, number: int, kind: int) -> str:
    """Of a port of a node, by what this is called: `SWITCH:PORT`, or the NIC that it is."""
    return f"{node}:{number}" if kind == SWITCH else _nic(node, number)


def _switch(name: str, guid: int) -> str:
    return _clean(name) or f"{guid:#018x}"


def _adapter(name: str, guid: int) -> str:
    host, _, device = name.strip().partition(" ")
    parts = [_clean(part) for part in (host, device)]
    return "/".join(part for part in parts if part) or f"{guid:#018x}"


def _clean(text: str) -> str:
    shown = "".join(one if one.isprintable() else "?" for one in text.strip())
    return "_".join(shown.replace("/", "-").split()).lstrip("?")


def _nic(node: str, number: int) -> str:
    if "/" not in node:
        return f"{node}/{number}"
    return nic_name(node, number)

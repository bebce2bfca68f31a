"""Subnets in the words of ibsim: each node with its ports, both ends of every link. Pure."""

from dataclasses import dataclass

AS_FAST_AS_CAN_BE = "w=31 s=7"
"""Of each port: all widths and speeds that ibsim's ports can do are enabled, so a link that is whole has 12 lanes of 10 Gb/s."""

LANES, LANE_BPS = 12, 8_000_000_000
"""Of a link that is whole, encoding taken off."""

RATE_BPS = LANES * LANE_BPS
TICKS_PER_S = LANE_BPS / 64
"""Of PortXmitWait, at a port that waits all the time: a tick is the time of eight bytes on a lane."""

Port = tuple[str, int]
"""A node and the number of its port."""


@dataclass(frozen=True)
class Clos:
    """Leaves that are each joined to all spines, by `parallel` links; hosts are numbered over all leaves from 1 on."""

    leaves: int = 4
    spines: int = 4
    hosts: int = 4
    parallel: int = 1

    def text(self) -> str:
        """The file."""
        return "\n".join(_node(name, ports) for name, ports in self.nodes().items())

    def nodes(self) -> dict[str, dict[int, Port]]:
        """Of each node, the far end of each of its ports."""
        return {**self._spines(), **self._leaves(), **self._hosts()}

    def _spines(self) -> dict[str, dict[int, Port]]:
        return {
            f"s{spine}": {
                self._down(leaf, number): (f"l{leaf}", self._up(spine, number))
                for leaf in _to(self.leaves)
                for number in _to(self.parallel)
            }
            for spine in _to(self.spines)
        }

    def _leaves(self) -> dict[str, dict[int, Port]]:
        nodes = {}
        for leaf in _to(self.leaves):
            ports = {host: (f"h{(leaf - 1) * self.hosts + host}", 1) for host in _to(self.hosts)}
            for spine in _to(self.spines):
                for number in _to(self.parallel):
                    ports[self._up(spine, number)] = f"s{spine}", self._down(leaf, number)
            nodes[f"l{leaf}"] = ports
        return nodes

    def _hosts(self) -> dict[str, dict[int, Port]]:
        return {
            f"h{(leaf - 1) * self.hosts + host}": {1: (f"l{leaf}", host)}
            for leaf in _to(self.leaves)
            for host in _to(self.hosts)
        }

    def _up(self, spine: int, number: int) -> int:
        return self.hosts + (spine - 1) * self.parallel + number

    def _down(self, leaf: int, number: int) -> int:
        return (leaf - 1) * self.parallel + number


def port_name(node: str, number: int) -> str:
    """As cwdp has it: `h1/1`, `l1:5`."""
    return f"{node}/{number}" if node.startswith("h") else f"{node}:{number}"


def port_of(name: str) -> Port:
    """What `port_name` names."""
    node, number = name.replace("/", ":").split(":")
    return node, int(number)


def _to(count: int) -> range:
    return range(1, count + 1)


def _node(name: str, ports: dict[int, Port]) -> str:
    kind = "Hca" if name.startswith("h") else "Switch"
    lines = [f'[{port}] "{peer}"[{at}] {AS_FAST_AS_CAN_BE}' for port, (peer, at) in sorted(ports.items())]
    return "\n".join([f'{kind} {max(ports)} "{name}"', *lines, ""])

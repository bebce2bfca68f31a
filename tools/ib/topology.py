"""Subnets in the words of ibsim: each node with its ports, both ends of every link. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Clos:
    """Leaves that are each joined to all spines; hosts are numbered over all leaves from 1 on."""

    leaves: int = 4
    spines: int = 4
    hosts: int = 4

    def text(self) -> str:
        """The file."""
        return "\n".join([*self._spines(), *self._leaves(), *self._hosts()])

    def _spines(self) -> list[str]:
        return [
            _node(
                "Switch", f"s{spine}", {leaf: (f"l{leaf}", self.hosts + spine) for leaf in _to(self.leaves)}
            )
            for spine in _to(self.spines)
        ]

    def _leaves(self) -> list[str]:
        nodes = []
        for leaf in _to(self.leaves):
            ports = {host: (f"h{(leaf - 1) * self.hosts + host}", 1) for host in _to(self.hosts)}
            ports |= {self.hosts + spine: (f"s{spine}", leaf) for spine in _to(self.spines)}
            nodes.append(_node("Switch", f"l{leaf}", ports))
        return nodes

    def _hosts(self) -> list[str]:
        return [
            _node("Hca", f"h{(leaf - 1) * self.hosts + host}", {1: (f"l{leaf}", host)})
            for leaf in _to(self.leaves)
            for host in _to(self.hosts)
        ]


def _to(count: int) -> range:
    return range(1, count + 1)


def _node(kind: str, name: str, ports: dict[int, tuple[str, int]]) -> str:
    lines = [f'[{port}] "{peer}"[{at}]' for port, (peer, at) in sorted(ports.items())]
    return "\n".join([f'{kind} {max(ports)} "{name}"', *lines, ""])

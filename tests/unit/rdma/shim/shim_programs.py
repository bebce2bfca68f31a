"""What programs below the verbs shim are tried with."""

from collections.abc import Callable

from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import Route, Source
from cwdp.rdma.sport import sport_to_flow_label
from tools.shim import Program
from tools.shim.agent import Peer
from tools.shim.program import GID, RTR

HERE = bytes([0xFE, 0x80, *[0] * 13, 1])
SOURCES = [Source(f"{kind}_{n}", 1, 3, HERE) for kind in ("fake", "mlx5") for n in (0, 1)]
TABLE = shimwire.pack(1, SOURCES, [Route(HERE, GID, ((0xC123, 1.0),))])
"""A table with one path for what programs connect to unless told otherwise."""

LABEL = sport_to_flow_label(0xC123)
"""Of that path."""

Start = Callable[..., tuple[Program, Peer]]
"""The fixture `start`: a program with the shim that has opened a device, and the agent's end."""


def labels(program: Program) -> list[int]:
    """Of the calls to RTR that reached the provider."""
    return [call.flow_label for call in program.calls() if call.what == "modify_qp" and call.state == RTR]

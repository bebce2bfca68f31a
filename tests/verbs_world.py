"""The insides of the process for the verbs shim, stepped by hand, with programs that tests play."""

import socket
from pathlib import Path

import msgspec

from cwdp.agent.ud.orders import DownPaths
from cwdp.agent.verbs.host import VerbsHost
from cwdp.agent.verbs.orders import VerbsOrder, VerbsQp, VerbsSource
from cwdp.agent.verbs.queuepairs import address_gid
from cwdp.shared.bus.messages import Spread, SteerQp
from tools.shim.client import FakeShim

HERE, THERE = "10.0.0.1", "10.0.1.1"
DST = address_gid(THERE)
SOURCES = [
    VerbsSource("nic0", "mlx5_0", 1, 3, f"::ffff:{HERE}"),
    VerbsSource("nic0", "mlx5_0", 1, 1, "fd00::1"),
    VerbsSource("nic1", "mlx5_1", 1, 3, "::ffff:10.0.0.2"),
]
SPORTS = [50_001, 50_002, 50_003, 50_004]
SPREADS = [
    Spread(nic="nic0", dst_addr=THERE, sports=SPORTS),
    Spread(nic="nic0", dst_addr="fd00::9", sports=[51_000]),
]
ORDER = VerbsOrder(sources=SOURCES, spreads=SPREADS, moved=["nic0", "nic1"])


def steer(qpn: int, sport: int, backup: int | None = None) -> SteerQp:
    return SteerQp(nic="nic0", dst_addr=THERE, qpn=qpn, sport=sport, backup_sport=backup)


class World:
    """The process' insides, stepped by hand."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "verbs.sock"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.paths, self._watcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.host = VerbsHost(self.listener, self.paths)
        self.host.follow(ORDER)
        self.told: dict[int, VerbsQp] = {}
        self._shims: list[FakeShim] = []

    def shim(self, *, greets: bool = True) -> FakeShim:
        shim = FakeShim(self.path, greets=greets)
        self._shims.append(shim)
        self.run()
        return shim

    def run(self) -> None:
        """Until there is nothing to do any more."""
        while self.host.step() or self.host.step():
            pass

    def down(self, *sports: int, nic: str = "nic0") -> None:
        self._watcher.send(msgspec.json.encode(DownPaths(nic, [(THERE, sport) for sport in sports])))
        self.run()

    def garble(self, data: bytes) -> None:
        self._watcher.send(data)
        self.run()

    def queue_pairs(self) -> list[VerbsQp]:
        """As the agent knows them."""
        while self.host.has_news():
            word = self.host.word()
            if word.anew:
                self.told.clear()
            self.told.update({qp.number: qp for qp in word.changed})
            for number in word.gone:
                self.told.pop(number, None)
        return list(self.told.values())

    def count(self, name: str) -> int:
        return self.host.counters[name]

    def close(self) -> None:
        for shim in self._shims:
            shim.close()
        self.host.close()
        for sock in (self.listener, self.paths, self._watcher):
            sock.close()

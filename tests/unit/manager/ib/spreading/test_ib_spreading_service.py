"""Hosts with InfiniBand alone, a manager and the bus between them: spreads reach both ends, and outlive the manager."""

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest
from asynchronous import asynchronous
from fakes import FakeHost, hello, until
from ib_fleets import LINK_BPS, NIC

from cwdp.shared.addresses import IbPort, PortLids
from cwdp.shared.bus.messages import Desired, Hello, Spread
from cwdp.shared.bus.subjects import up
from cwdp.shared.ib.counters import NAMES, WORD_BYTES, Growth
from cwdp.shared.ib.reports import IbGrowth, pack_growth, subnet_pieces
from manager.ib import spreading
from manager.service import Manager
from tests.unit.manager.ib.ib_worlds import clos, port
from tests.unit.manager.one_manager import config_of, running
from tools.free_ports import free_port

pytestmark = pytest.mark.needs("nats-server")

SUBNET = clos()


class IbHost(FakeHost):
    """One without a network interface that is probed from; it may read the subnet. `told` is all that it was told."""

    told: list[list[Spread]]

    def _on_desired(self, desired: Desired) -> None:
        super()._on_desired(desired)
        self.told = [*getattr(self, "told", []), desired.spreads]

    def hello(self) -> Hello:
        row = port(SUBNET, f"{self.name} mlx5_0", 1)
        lids = PortLids(int(SUBNET.ports["lid"][row]), int(SUBNET.ports["lmc"][row]))
        version = self.desired.version if self.desired else 0
        said = hello(self.name, nics=0, desired_version=version)
        return msgspec.structs.replace(
            said, reads_changes=True, ib_ports=[IbPort(NIC, SUBNET.gid(row), lids)]
        )

    async def read_subnet(self, load_bps: np.ndarray) -> None:
        """Tell of it, with these loads of its ports, for ever."""
        while True:
            for piece in subnet_pieces(self.name, 1, SUBNET):
                self.bus.publish(up(self.pod, self.name, "ib-subnet"), piece)
            per_s = np.zeros((len(load_bps), len(NAMES)))
            per_s[:, NAMES.index("sent_words")] = load_bps / 8 / WORD_BYTES
            data = pack_growth(Growth(per_s, np.zeros(per_s.shape, bool)))
            growth = IbGrowth(host=self.name, number=1, ports=len(load_bps), data=data)
            self.bus.publish(up(self.pod, self.name, "ib-growth"), growth)
            await asyncio.sleep(0.5)

    @property
    def spreads(self) -> list[Spread]:
        return [] if self.desired is None else self.desired.spreads


@asynchronous
async def test_spreads_reach_both_hosts_and_outlive_the_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("QUIET_S", "CALM_S", "SETTLED_S"):
        monkeypatch.setattr(spreading, name, 0.5)
    config = config_of(tmp_path, free_port())
    hosts = [IbHost(name, f"nats://{config.bus_listen}", offset_ns=0, drift=0.0) for name in ("h0", "h5")]
    load_bps = np.zeros(len(SUBNET.ports))
    reading = asyncio.create_task(hosts[0].read_subnet(load_bps))
    try:
        async with running(config):
            for host in hosts:
                host.start()
            await until(lambda: all(host.spreads for host in hosts), timeout_s=20)
            load_bps[port(SUBNET, "l0", 5)] = 0.9 * LINK_BPS
            await until(lambda: all(host.spreads[0].shares for host in hosts), timeout_s=20)
            assert hosts[0].spreads[0].shares == hosts[1].spreads[0].shares
        kept = [host.spreads for host in hosts]
        monkeypatch.setattr(spreading, "QUIET_S", 3600.0)
        for host in hosts:
            host.told.clear()
        async with running(config) as manager:
            await until(lambda: _plans(manager), timeout_s=20)
            await asyncio.sleep(1.0)
        assert [spreads for host in hosts for spreads in host.told if spreads != host.spreads] == []
        assert [host.spreads for host in hosts] == kept
    finally:
        reading.cancel()
        await asyncio.gather(reading, *(host.stop() for host in hosts), return_exceptions=True)


def _plans(manager: Manager) -> bool:
    return manager.state.leads and bool(manager.state.ib_spreads.ports.paths)

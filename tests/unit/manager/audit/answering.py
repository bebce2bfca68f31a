"""Hosts that exist in facts only, and answer audits; a manager as people ask it of audits."""

import asyncio
import json
from typing import Any

from bus_fakes import POD
from click.testing import CliRunner, Result
from fakes import FakeHost
from msgspec.structs import replace

from cwdp.cli import main
from cwdp.shared.audit.facts import HostFacts
from cwdp.shared.bus.audits import AuditOrder, audit_reports
from cwdp.shared.bus.subjects import down, up


class AnsweringHost(FakeHost):
    """A host that answers orders with the facts that it is given; None for not at all."""

    def __init__(self, facts: HostFacts, url: str) -> None:
        super().__init__(facts.host, url, offset_ns=0, drift=0.0)
        self.facts: HostFacts | None = facts
        self.told = 0
        self.reaches: list[bool] = []
        self.bus.subscribe(down(POD, self.name, "audit"), AuditOrder, self._tell)

    def _tell(self, order: AuditOrder) -> None:
        if self.facts is not None:
            for report in audit_reports(order.number, self.facts):
                self.bus.publish(up(POD, self.name, "audit"), replace(report, boot_id="boot"))
            self.told += 1
            self.reaches.append(order.reach)


async def ask(socket: str, *arguments: str) -> Result:
    """`cwdp audit` with some arguments, of the manager at a socket."""
    command = ["audit", *arguments, "--manager", f"unix://{socket}"]
    return await asyncio.to_thread(CliRunner().invoke, main, command)


async def told(socket: str, *arguments: str) -> dict[str, Any]:
    """The same with `--json`."""
    done = await ask(socket, *arguments, "--json")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer

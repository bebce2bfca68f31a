"""All that operators want, by kind."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manager.overrides.slices import SliceTable
from manager.overrides.steering import SteerTable
from manager.overrides.store import OverrideTable
from manager.overrides.tcp import TcpTable


@dataclass(frozen=True)
class Overrides:
    """The tables; by default nothing is wanted, and nothing kept in files."""

    steering: SteerTable = field(default_factory=lambda: SteerTable(None))
    slicing: SliceTable = field(default_factory=lambda: SliceTable(None))
    tcp: TcpTable = field(default_factory=lambda: TcpTable(None))

    @classmethod
    def kept_in(cls, directory: Path) -> "Overrides":
        """Those in a manager's files.

        Raises:
            ManagerError: there is a file that cannot be read.
        """
        return cls(
            SteerTable(directory / "steer.json"),
            SliceTable(directory / "slice.json"),
            TcpTable(directory / "steer_tcp.json"),
        )

    def by_key(self) -> dict[str, OverrideTable[Any]]:
        """Each under its key on the bus."""
        return {"steer": self.steering, "slice": self.slicing, "steer-tcp": self.tcp}

"""TCP connections as the agent has them: nothing where no service is named; else a process that looks, and what it saw."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

import msgspec

from cwdp.agent.helper import Helper
from cwdp.agent.links import LinkTable
from cwdp.agent.tcp.orders import STATES, TcpOrder, TcpWord
from cwdp.agent.tcp.services import TcpConfig, refused_ports, services
from cwdp.shared.connections import NicConnections, TcpReport

MOST_WAITING = 64
"""Reports that have not been said yet."""


class Settings(Protocol):
    """See `cwdp.agent.config.AgentConfig`."""

    @property
    def host(self) -> str:
        """The host's name."""

    @property
    def nics(self) -> list[str]:
        """Its NICs."""

    @property
    def nats(self) -> str:
        """The bus."""

    @property
    def tcp(self) -> TcpConfig | None:
        """Services; None for none."""


class TcpKeeper(Helper[TcpOrder]):
    """The process as the agent sees it; `words` are those that have not been taken."""

    def __init__(self, order: TcpOrder) -> None:
        super().__init__("cwdp.agent.tcp.measuring", [], "tcp_restarts", order)
        self.words: list[TcpWord] = []
        self.dropped = 0

    def order(self, nics: dict[str, list[str]], interval_s: float) -> None:
        """Look at connections from these addresses so often."""
        self._want(msgspec.structs.replace(self._wanted, nics=nics, interval_s=interval_s))

    @property
    def service_names(self) -> list[str]:
        """In the order of the places by which rows name them."""
        return [service.name for service in self._wanted.services]

    def _hear(self, line: bytes) -> dict[str, int]:
        word = msgspec.json.decode(line, type=TcpWord)
        if len(self.words) < MOST_WAITING:
            self.words.append(word)
        else:
            self.dropped += 1
        return {name: n for name, n in word.counters.items() if name not in STATES}


class HostTcp:
    """The connections of a host's named services.

    Args:
        config: the agent's.
        links: the addresses that there are.

    Raises:
        ConfigError: a service cannot be named so.
    """

    def __init__(self, config: Settings, links: LinkTable) -> None:
        self._host, self._nics, self._links = config.host, config.nics, links
        self.keeper = None
        if config.tcp is not None:
            named, refused = services(config.tcp, config.nats), refused_ports(config.nats)
            self.keeper = TcpKeeper(TcpOrder(services=named, refused_ports=sorted(refused)))

    @property
    def counters(self) -> Counter[str]:
        """Totals by name."""
        if self.keeper is None:
            return Counter()
        total = self.keeper.counters
        total["tcp_reports_dropped"] = self.keeper.dropped
        return total

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run for as long as the agent does."""
        return [] if self.keeper is None else [self.keeper.run()]

    def order(self, interval_s: float) -> None:
        """Have connections looked at so often, from the addresses that NICs have now."""
        if self.keeper is not None:
            found = {nic: self._links.get(nic) for nic in self._nics}
            self.keeper.order(
                {nic: sorted(link.addresses) for nic, link in found.items() if link}, interval_s
            )

    def tell(self, say: Callable[[str, TcpReport], object]) -> None:
        """Say what was seen since the last time."""
        for report in self.reports():
            say("tcp", report)

    def reports(self) -> Iterable[TcpReport]:
        """What was seen since the last time."""
        if self.keeper is None:
            return
        words, self.keeper.words = self.keeper.words, []
        for word in words:
            yield TcpReport(
                host=self._host,
                at_ns=word.at_ns,
                nics=[NicConnections(nic=one.nic, rows=one.rows, unlisted=one.unlisted) for one in word.nics],
                services=self.keeper.service_names,
                programs=word.programs,
                in_full=word.in_full,
            )

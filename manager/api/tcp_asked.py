"""From what an operator asks of a TCP connection to what both its ends are to be told. No I/O."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from cwdp.errors import ConfigError
from cwdp.shared.bus.messages import nic_id
from manager.fabric.routes import DirectedLink, Pair, Routes
from manager.hosts.members import Members
from manager.overrides.grantable import require_known
from manager.overrides.steering import SourcePort
from manager.overrides.tcp import TcpEnd, TcpOverride, TcpTable
from manager.tcp.connections import ConnectionStore, NicName
from manager.tcp.named import Found, Name, NamedEnd, find, read_name
from manager.tcp.names import tcp_address
from manager.tcp.steered import SteeredConnections

HELP = "see: cwdp steer tcp set --help"


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A connection by its name, and the source ports of its paths from the end named first, and back.

    Ports of the way back that are left out are those of paths over the same links.
    """

    connection: str
    sport: SourcePort
    backup_sport: SourcePort | None = None
    back_sport: SourcePort | None = None
    back_backup_sport: SourcePort | None = None


class TcpAsked:
    """Finds out what is meant by what is asked, by what is known of the fleet.

    Args:
        members: the hosts.
        store: their connections.
        steered: what is steered on them.
    """

    def __init__(self, members: Members, store: ConnectionStore, steered: SteeredConnections) -> None:
        self._members, self._store, self._steered = members, store, steered

    def read(self, body: bytes, routes: Routes) -> TcpOverride:
        """An override from JSON.

        Args:
            body: an `Asked`.
            routes: the known paths, among which ways back are looked for.

        Raises:
            ConfigError: it is none, or the connection is not known, not told of by both its ends, or cannot be steered at one.
        """
        try:
            asked = msgspec.json.decode(body, type=Asked)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(str(error), HELP) from error
        name = read_name(asked.connection)
        nics = self._nic_of(name.near), self._nic_of(name.far)
        found = self._found(name, nics)
        there = nic_id(*nics[0]), tcp_address(found.far_addr)
        back = nic_id(*nics[1]), tcp_address(found.near_addr)
        backs = _ways_back(routes, there, back, asked)
        near, far = (
            TcpEnd(host=nic[0], nic=nic[1], addr=addr, port=end.port, sport=sport, backup_sport=backup_sport)
            for nic, addr, end, (sport, backup_sport) in (
                (nics[0], found.near_addr, name.near, (asked.sport, asked.backup_sport)),
                (nics[1], found.far_addr, name.far, backs),
            )
        )
        for end in (near, far):
            if end.sport == end.backup_sport:
                raise ConfigError(f"source port {end.sport} cannot be its own backup", "give another one")
        return TcpOverride(near=near, far=far)

    def _nic_of(self, end: NamedEnd) -> NicName:
        """The NIC of one end of a name.

        Raises:
            ConfigError: it is of no host that can be told anything.
        """
        nic = end.where if "/" in end.where else self._members.nics_by_address.get(end.where)
        if nic is None:
            raise ConfigError(
                f"no host of this fleet has {end.where}: the end there has no agent",
                "a connection is steered at both its ends: run an agent there too",
            )
        host, _, ifname = nic.rpartition("/")
        require_known(self._members, host, ifname)
        return host, ifname

    def _found(self, name: Name, nics: tuple[NicName, NicName]) -> Found:
        found = find(self._store, self._members.nics_by_address, name)
        for (host, _), is_told in zip(nics, (found.by_near, found.by_far), strict=True):
            if not is_told:
                raise ConfigError(
                    f"the agent of {host} does not tell of {name}, which is the service {found.service!r} at its other end",
                    f"name that service in the configuration of {host}'s agent too; see docs/tcp.md",
                )
        for host, ifname in nics:
            if (host, ifname) not in self._steered.nics:
                raise ConfigError(
                    f"the agent of {host} has not told which TCP connections are steered there",
                    "try again in a few seconds; if it is of an older release, upgrade it",
                )
        return found


def _ways_back(routes: Routes, there: Pair, back: Pair, asked: Asked) -> tuple[int, int | None]:
    """Source ports of the way back and of its backup.

    Raises:
        ConfigError: one is left out, and no path back over the same links is known.
    """
    sport = asked.back_sport or mirrored(routes, there, asked.sport, back)
    if sport is None:
        raise _no_way_back(asked.sport, "--back-sport", asked.connection)
    backup_sport = asked.back_backup_sport
    if backup_sport is None and asked.backup_sport is not None:
        backup_sport = mirrored(routes, there, asked.backup_sport, back)
        if backup_sport is None:
            raise _no_way_back(asked.backup_sport, "--back-backup", asked.connection)
    return sport, backup_sport


def mirrored(routes: Routes, there: Pair, sport: int, back: Pair) -> int | None:
    """The least source port that leads back over the links by which another leads there; None where none is known to.

    Args:
        routes: the known paths.
        there: NIC and destination address of the way there.
        sport: its source port.
        back: NIC and destination address of the way back.
    """
    links = routes.ports(*there).get(sport)
    if not links:
        return None
    wanted = [DirectedLink(b, a) for a, b in (routes.links[number] for number in reversed(links))]
    ports: Mapping[int, tuple[int, ...]] = routes.ports(*back)
    return min(
        (port for port, way in ports.items() if [routes.links[n] for n in way] == wanted), default=None
    )


def _no_way_back(sport: int, option: str, connection: str) -> ConfigError:
    return ConfigError(
        f"no way back is known over the links that source port {sport} leads over",
        f"give one with {option}; `cwdp path {connection}` shows those that are known",
    )


def withdrawn(table: TcpTable, text: str) -> TcpOverride:
    """The override of a connection that is named, whether or not the connection still is.

    Raises:
        ConfigError: there is none.
    """
    name = read_name(text)
    for override in table.all():
        ends = [(nic_id(end.host, end.nic), end.addr, end.port) for end in override.ends]
        if name.fits(ends[0], ends[1]) or name.fits(ends[1], ends[0]):
            return override
    raise ConfigError(
        f"no operator steers the TCP connection {name}", "`cwdp steer list --host HOST` lists those steered"
    )

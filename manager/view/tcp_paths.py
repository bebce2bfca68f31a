"""What the HTTP API answers of the paths of one TCP connection, both ways."""

import msgspec

from cwdp.shared.tcp import PulseDelay, SteeredTcp
from manager.state import FleetState
from manager.tcp.connections import NicName
from manager.tcp.named import find, read_name
from manager.tcp.names import Connection, tcp_address
from manager.tcp.steered import standing
from manager.view.fabric_views import nodes_of, pair_paths
from manager.view.json_values import Json
from manager.view.tcp_views import set_by


def connection_paths(state: FleetState, text: str) -> Json:
    """The paths of a connection, first from the end that is named first.

    Raises:
        ConfigError: it is no connection's name, or nobody tells of the connection.
    """
    name, owners = read_name(text), state.members.nics_by_address
    found = find(state.traffic.tcp, owners, name)
    ends = (found.near_addr, name.near.port), (found.far_addr, name.far.port)
    return {
        "connection": str(name),
        "service": found.service,
        "ways": [_way(state, *here, *there) for here, there in (ends, ends[::-1])],
    }


def _way(state: FleetState, local: str, local_port: int, remote: str, remote_port: int) -> Json:
    """One direction; of an end that is none of the fleet's nothing is known."""
    owners = state.members.nics_by_address
    nic, far = owners.get(local), owners.get(remote)
    told, known = None, None
    if nic is not None:
        told = state.planner.steered_tcp.of(Connection(*_split(nic), local_port, remote, remote_port).name)
        known = far and pair_paths(state.discovery, nic, tcp_address(remote), far)
    return {
        "src": nic or local,
        "dst": far or remote,
        "local_port": local_port,
        "remote_port": remote_port,
        "standing": None if told is None else standing(told),
        "set_by": None if told is None else set_by(told),
        **_paths(state, nic, remote, told),
        "known": known,
    }


def _paths(state: FleetState, nic: str | None, remote: str, told: SteeredTcp | None) -> Json:
    """The path and the backup of a connection that is steered."""
    path = backup = None
    if nic is not None and told is not None:
        steer = told.steer
        path = _path(state, nic, remote, steer.sport, told.delay)
        if steer.backup_sport is not None:
            backup = _path(state, nic, remote, steer.backup_sport, told.backup_delay)
    return {"path": path, "backup": backup}


def _path(state: FleetState, nic: str, remote: str, sport: int, delay: PulseDelay | None) -> Json:
    routes = state.fabric.routes
    links = routes.ports(nic, tcp_address(remote)).get(sport)
    return {
        "sport": sport,
        "nodes": None if links is None else nodes_of(routes, links),
        "links": None if links is None else [routes.links[number]._asdict() for number in links],
        "owd": None if delay is None else msgspec.to_builtins(delay),
    }


def _split(nic: str) -> NicName:
    host, _, ifname = nic.rpartition("/")
    return host, ifname

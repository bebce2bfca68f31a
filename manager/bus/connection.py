"""The bus as managers use it: with the credential of one, signing what it sends."""

from typing import Any

import nkeys

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.sealing import LeaderSeal
from cwdp.shared.bus.servers import server_urls
from manager.bus.flood_watch import LimitedSeal
from manager.bus.floods import Floods
from manager.duties import CountedSeal, Duties
from manager.identity.authority import DEFAULT_POD, Authority


def manager_bus(
    url: str,
    authority: Authority,
    *,
    name: str,
    pod: str = DEFAULT_POD,
    duties: Duties | None = None,
    floods: Floods | None = None,
    **others: Any,
) -> Bus:
    """A manager's connection, not started yet.

    Args:
        url: where the bus is.
        authority: the fleet's.
        name: what its server shows for this process.
        pod: whose documents it keeps.
        duties: where the time is counted in which messages are made out, if it is.
        floods: keeps account of what hosts send, where no more than some is taken in.
        others: what `Bus` takes besides.
    """
    seal = _seal(authority.control_key, duties, floods)
    return Bus(url, authority.manager_credential(name), seal, pod=pod, name=name, **others)


def manager_buses(url: str, authority: Authority, *, name: str, pod: str = DEFAULT_POD) -> list[Bus]:
    """A manager's connections to each server that a bus is told by, as of `manager_bus`: what stops one stops no other.

    Raises:
        ConfigError: the URL is of another form.
    """
    return [manager_bus(each, authority, name=name, pod=pod) for each in server_urls(url)]


def _seal(key: nkeys.KeyPair, duties: Duties | None, floods: Floods | None) -> LeaderSeal:
    if floods is not None:
        return LimitedSeal(key, duties or Duties(), floods)
    return LeaderSeal(key) if duties is None else CountedSeal(key, duties)

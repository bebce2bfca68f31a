"""The bus as managers use it: with the credential of one, signing what it sends."""

from typing import Any

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.sealing import LeaderSeal
from manager.identity.authority import DEFAULT_POD, Authority


def manager_bus(url: str, authority: Authority, *, name: str, pod: str = DEFAULT_POD, **others: Any) -> Bus:
    """A manager's connection, not started yet; `others` are what `Bus` takes besides."""
    credential, seal = authority.manager_credential(name), LeaderSeal(authority.control_key)
    return Bus(url, credential, seal, pod=pod, name=name, **others)

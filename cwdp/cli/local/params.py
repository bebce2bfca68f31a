"""Arguments and options that several commands take."""

import click

from cwdp.errors import ConfigError
from cwdp.shared.bus.messages import nic_id

host_option = click.option(
    "--host", metavar="HOST", help="Of this host, by way of the manager, which has it stay so."
)
manager_option = click.option(
    "--manager",
    "url",
    envvar="CWDP_MANAGER",
    metavar="URL",
    help="With --host: unix:///PATH or https://HOST:PORT; else the only manager on this host.",
)


def require_host(host: str | None, why: str | None) -> None:
    """Let a reason through only where the manager is told, as nobody keeps what is done here by hand.

    Raises:
        ConfigError: it is given without a host.
    """
    if why is not None and host is None:
        raise ConfigError("--why is kept by the manager", "give --host too, or leave --why out")


def place(host: str | None, ifname: str) -> str:
    """An interface of this host or, where one is named, of another."""
    return ifname if host is None else nic_id(host, ifname)

"""What of hosts can be granted to operators. No I/O."""

from cwdp.errors import ConfigError
from manager.hosts.members import Members


def require_known(members: Members, host: str, ifname: str) -> None:
    """Let through a NIC that an agent has told of.

    Raises:
        ConfigError: there is none of that name, it has no dataplane, or its host grants no overrides.
    """
    known = members.hosts.get(host)
    if known is None:
        raise ConfigError(f"the manager knows no host {host!r}", "see: cwdp host")
    nic = next((nic for nic in known.hello.nics if nic.ifname == ifname), None)
    if nic is None:
        raise ConfigError(f"{host} has no interface {ifname!r} that cwdp uses", "see: cwdp host")
    if nic.transport == "ud":
        raise ConfigError(
            f"{ifname} of {host} probes by UD queue pairs: it has no dataplane that could do this",
            "where the hardware sends RDMA, only its programs can steer it, with the verbs shim; see docs/verbs.md",
        )
    require_acting(members, host)


def require_acting(members: Members, host: str) -> None:
    """Let through a host that does more than observe.

    Raises:
        ConfigError: it does not.
    """
    if members.hosts[host].hello.observe_only:
        raise ConfigError(f"{host} only observes", "take observe_only out of its agent's configuration")

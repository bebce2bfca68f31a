"""What stands between a probe and the NIC: sockets on its port, packet filters, connection tracking, and the way to the bus."""

from collections.abc import Iterator
from typing import Any

from cwdp.dataplane.abi import ROCE_PORT
from cwdp.doctor.facts import Facts
from cwdp.doctor.result import Result

HOOKS = ("output", "postrouting", "egress")
"""Of netfilter, on the way from the agent's raw socket to tc egress; what comes in meets XDP first."""

NEARLY_FULL = 0.5


def probe_port(facts: Facts) -> Iterator[Result]:
    """Whether somebody else receives on the probes' port; RoCEv2's own receiver is expected there."""
    port = _port(facts)
    others = sorted({socket.program for socket in facts.udp_sockets if socket.program})
    if others:
        what = f"{', '.join(others)} receives on UDP port {port} too; XDP takes cwdp's probes before it"
        step = "nothing, if that is meant; else set probe_port on every host"
        yield Result(name="probe port", verdict="warn", what=what, next_step=step)
        return
    yield Result(name="probe port", verdict="ok", what=f"UDP port {port} is free")


def packet_filter(facts: Facts) -> Iterator[Result]:
    """Whether a rule drops probes that leave."""
    name, rules = "packet filter", facts.firewall.ruleset
    port = _port(facts)
    if facts.firewall.has_iptables:
        what = "rules of iptables-legacy are there, which are not read"
        step = f"see whether they drop UDP to port {port}: iptables-legacy-save"
        yield Result(name=name, verdict="warn", what=what, next_step=step)
    elif rules is None:
        yield Result(
            name=name, verdict="ok", what="no rules can be seen: nft is not installed, or may not be asked"
        )
    elif drops := [chain for chain in _chains(rules) if _drops(chain, rules, port)]:
        what = (
            f"{', '.join(_called(chain) for chain in drops)} drops UDP to port {port}, as far as can be seen"
        )
        step = f"add a rule there: udp dport {port} accept"
        yield Result(name=name, verdict="fail", what=what, next_step=step)
    else:
        yield Result(name=name, verdict="ok", what="no rule is seen to drop probes")


def tracking(facts: Facts) -> Iterator[Result]:
    """Whether connections are tracked: a probe's addresses and ports take a place there."""
    name, port, found = "connection tracking", _port(facts), facts.firewall
    rules = found.ruleset or []
    if not found.tracked or found.tracked_max is None:
        yield Result(name=name, verdict="ok", what="no connections are tracked")
    elif any(_matches(rule, port) and _has(rule, "notrack") for rule in _rules(rules)):
        yield Result(name=name, verdict="ok", what=f"UDP to port {port} is not tracked")
    elif found.tracked >= NEARLY_FULL * found.tracked_max:
        what = f"{found.tracked:,} of {found.tracked_max:,} places are taken; a full table drops packets"
        step = f"nft add rule of a chain with hook output, priority raw: udp dport {port} notrack"
        yield Result(name=name, verdict="warn", what=what, next_step=step)
    else:
        what = f"probes are tracked; {found.tracked:,} of {found.tracked_max:,} places are taken"
        yield Result(name=name, verdict="ok", what=what)


def bus(facts: Facts) -> Iterator[Result]:
    """Whether a bus answers."""
    if facts.bus is None or facts.config is None:
        return
    if facts.bus.problem is None:
        what = f"nats-server {facts.bus.version} answers at {facts.config.nats}"
        yield Result(name="bus", verdict="ok", what=what)
        return
    what = f"{facts.config.nats}: {facts.bus.problem}"
    step = (
        "correct nats in agent.toml; on the manager's host: systemctl status cwdp-manager, and its bus_listen"
    )
    yield Result(name="bus", verdict="fail", what=what, next_step=step)


def _port(facts: Facts) -> int:
    return ROCE_PORT if facts.config is None else facts.config.probe_port


def _chains(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that packets on their way out pass."""
    return [entry["chain"] for entry in rules if entry.get("chain", {}).get("hook") in HOOKS]


def _rules(rules: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (entry["rule"] for entry in rules if "rule" in entry)


def _called(chain: dict[str, Any]) -> str:
    return " ".join(("chain", chain["family"], chain["table"], chain["name"]))


def _drops(chain: dict[str, Any], rules: list[dict[str, Any]], port: int) -> bool:
    """Whether a probe ends in a chain: by its first rule about this port, else by what it does to all."""
    for rule in _rules(rules):
        if (rule["family"], rule["table"], rule["chain"]) != (chain["family"], chain["table"], chain["name"]):
            continue
        if _matches(rule, port) or not _conditions(rule):
            if _has(rule, "drop") or _has(rule, "reject"):
                return True
            if _has(rule, "accept"):
                return False
    return chain.get("policy") == "drop"


def _conditions(rule: dict[str, Any]) -> list[dict[str, Any]]:
    return [part["match"] for part in rule.get("expr", []) if "match" in part]


def _matches(rule: dict[str, Any], port: int) -> bool:
    """Whether a rule is about UDP to a port."""
    wanted = {"payload": {"protocol": "udp", "field": "dport"}}
    return any(
        match["left"] == wanted and match.get("op") in ("==", "in") and _holds(match["right"], port)
        for match in _conditions(rule)
    )


def _holds(right: Any, port: int) -> bool:
    """Whether a number, a range or a set of them holds a port."""
    if isinstance(right, int):
        return right == port
    if isinstance(right, dict) and "range" in right:
        first, last = right["range"]
        return bool(first <= port <= last)
    return isinstance(right, dict) and any(_holds(part, port) for part in right.get("set", ()))


def _has(rule: dict[str, Any], verdict: str) -> bool:
    return any(verdict in part for part in rule.get("expr", []))

"""The NICs: whether the dataplane can be on them, in which mode, and why not."""

from collections.abc import Iterator

from cwdp.dataplane.kernel.interface import ALLOW, MERGING, ON_TOP, PORTS_OF, VLAN_OFFLOADS
from cwdp.doctor.facts import Facts, Nic
from cwdp.doctor.result import Result, Verdict

XDP_BASIC, XDP_FRAGMENTS = 1 << 0, 1 << 5
"""`NETDEV_XDP_ACT_BASIC` and `NETDEV_XDP_ACT_RX_SG` of linux/netdev.h."""

ONE_BUFFER_MTU = 3498
"""The largest packet of a driver that gives XDP one page of 4 KiB: less headroom (256), struct skb_shared_info (320) and
Ethernet header with two tags (22)."""

WITH_NATIVE_XDP = frozenset(
    {
        "atlantic",
        "bnxt_en",
        "bonding",
        "dpaa2-eth",
        "ena",
        "fsl_dpaa2_eth",
        "fsl_enetc",
        "hv_netvsc",
        "i40e",
        "ice",
        "igb",
        "igc",
        "ixgbe",
        "ixgbevf",
        "lan966x-switch",
        "mana",
        "mlx4_en",
        "mlx5_core",
        "mvneta",
        "mvpp2",
        "nfp",
        "qede",
        "sfc",
        "st_gmac",
        "tun",
        "veth",
        "virtio_net",
        "vif",
    }
)
"""Drivers of Linux that take native XDP, for kernels before 6.3, which cannot be asked; by what ethtool calls them."""


def present(facts: Facts) -> Iterator[Result]:
    """Whether each is there, is one that can be used, and has what probes need."""
    here = {nic.name for nic in facts.nics}
    for name in facts.config.nics if facts.config else ():
        if name not in here:
            step = "correct nics in agent.toml; interfaces here: ip -brief link"
            yield Result(
                name="interface", of=name, verdict="fail", what="there is no such interface", next_step=step
            )
    for nic in facts.nics:
        yield _interface(nic)


def _interface(nic: Nic) -> Result:
    name = "interface"
    if not nic.is_ethernet:
        step = "name the Ethernet interface that RoCEv2 leaves by"
        return Result(
            name=name, of=nic.name, verdict="fail", what="it carries no Ethernet frames", next_step=step
        )
    if nic.master_kind in PORTS_OF:
        what = f"it is a port of the {nic.master_kind} {nic.master}, which has its addresses"
        return Result(
            name=name, of=nic.name, verdict="fail", what=what, next_step=f"name {nic.master} instead"
        )
    if not nic.has_carrier:
        step = f"look at cable and switch, or: ip link set {nic.name} up"
        return Result(name=name, of=nic.name, verdict="fail", what="no carrier", next_step=step)
    if not nic.addresses:
        step = f"give it the fabric's address: ip address add ADDRESS dev {nic.name}"
        return Result(
            name=name, of=nic.name, verdict="fail", what="no address of global scope", next_step=step
        )
    driver = f"{nic.driver or nic.kind or 'no driver'}, MTU {nic.mtu}"
    return Result(name=name, of=nic.name, verdict="ok", what=f"{driver}, {', '.join(nic.addresses)}")


def xdp(facts: Facts) -> Iterator[Result]:
    """In which mode XDP is on each NIC, or would be."""
    for nic in _with_dataplane(facts):
        if nic.is_ethernet and nic.master_kind not in PORTS_OF:
            yield _xdp(nic, generic_will_do=_generic_will_do(facts, nic))


def _xdp(nic: Nic, *, generic_will_do: bool) -> Result:
    if nic.dataplane is not None and nic.dataplane.mode in ("native", "generic"):
        is_native, is_sure, why = nic.dataplane.mode == "native", True, "as it was loaded"
    elif nic.dataplane is None and nic.program is not None:
        what = f"another XDP program (id {nic.program}) is attached"
        step = f"find its owner by `bpftool net show dev {nic.name}`, and have it removed"
        return Result(name="XDP", of=nic.name, verdict="fail", what=what, next_step=step)
    else:
        is_native, is_sure, why = _expected(nic)
    if is_native:
        return _native(nic, is_sure, why)
    if generic_will_do:
        verdict: Verdict = "ok" if _is_never_timed(nic) else "warn"
        what = f"generic, whose timestamps are later and noisier ({why})"
        return Result(name="XDP", of=nic.name, verdict=verdict, what=what, next_step=_way_to_native(nic))
    step = f"{_way_to_native(nic)}, {ALLOW}"
    return Result(name="XDP", of=nic.name, verdict="fail", what=f"no native XDP: {why}", next_step=step)


def _expected(nic: Nic) -> tuple[bool, bool, str]:
    """Whether the driver takes native XDP, whether that is sure, and how it is known."""
    if nic.xdp_features is not None:
        has = bool(nic.xdp_features & XDP_BASIC)
        return has, True, f"the driver {nic.driver or nic.kind} says so" if has else _why_not(nic)
    known = nic.driver in WITH_NATIVE_XDP or nic.kind in WITH_NATIVE_XDP
    why = f"the driver {nic.driver or nic.kind} has it, as far as known; this kernel cannot be asked"
    return known, False, why if known else _why_not(nic)


def _why_not(nic: Nic) -> str:
    return (
        f"the driver {nic.driver} has none"
        if nic.driver
        else f"a {nic.kind or 'interface without a driver'} has none"
    )


def _native(nic: Nic, is_sure: bool, why: str) -> Result:
    if nic.dataplane is None and (merging := [feature for feature in MERGING if feature in nic.offloads]):
        what = f"native ({why}), but many drivers take no program while they merge packets"
        step = f"ethtool -K {nic.name} {merging[0]} off"
        return Result(name="XDP", of=nic.name, verdict="warn", what=what, next_step=step)
    if nic.dataplane is None and nic.driver and nic.mtu > ONE_BUFFER_MTU and not _takes_fragments(nic):
        what = f"native ({why}), but perhaps not with an MTU of {nic.mtu}: the driver does not say that it takes fragments"
        step = f"if it is refused: ip link set {nic.name} mtu {ONE_BUFFER_MTU // 500 * 500}"
        return Result(name="XDP", of=nic.name, verdict="warn", what=what, next_step=step)
    step = "" if is_sure else f"to be sure: cwdp dataplane load {nic.name}"
    return Result(name="XDP", of=nic.name, verdict="ok", what=f"native ({why})", next_step=step)


def _takes_fragments(nic: Nic) -> bool:
    return nic.xdp_features is not None and bool(nic.xdp_features & XDP_FRAGMENTS)


def _way_to_native(nic: Nic) -> str:
    if _is_never_timed(nic):
        return ""
    if nic.kind in ON_TOP:
        return f"give the fabric's address to {nic.lower or 'the NIC'}, which this {nic.kind} is on top of, and name that"
    if nic.kind == "bridge":
        return "take the NIC out of the bridge, give it the fabric's address, and name it"
    return "another NIC or a newer kernel"


def _is_never_timed(nic: Nic) -> bool:
    """Whether nobody expects timestamps of it, so that generic XDP is always taken."""
    return nic.kind == "veth" or nic.name == "lo"


def _generic_will_do(facts: Facts, nic: Nic) -> bool:
    return _is_never_timed(nic) or (facts.config is not None and facts.config.generic == "allow")


def offloads(facts: Facts) -> Iterator[Result]:
    """What each NIC does with packets before XDP sees them."""
    for nic in _with_dataplane(facts):
        tags = ", ".join(feature for feature in VLAN_OFFLOADS if feature in nic.offloads)
        if tags and nic.dataplane is not None:
            step = f"cwdp dataplane load {nic.name}; the agent does it by itself"
            what = f"{tags}: VLAN tags are taken off before XDP sees them"
            yield Result(name="offloads", of=nic.name, verdict="warn", what=what, next_step=step)
        else:
            what = f"{tags}: off while the dataplane is loaded" if tags else "none that matters is on"
            yield Result(name="offloads", of=nic.name, verdict="ok", what=what)


def dataplane(facts: Facts) -> Iterator[Result]:
    """What is loaded on each NIC."""
    for nic in _with_dataplane(facts):
        yield _dataplane(nic)


def _dataplane(nic: Nic) -> Result:
    name, found = "dataplane", nic.dataplane
    if found is None:
        step = f"the agent loads it; by hand: cwdp dataplane load {nic.name}"
        return Result(name=name, of=nic.name, verdict="warn", what="not loaded", next_step=step)
    if found.error:
        step = f"cwdp dataplane unload {nic.name}; cwdp dataplane load {nic.name}"
        return Result(name=name, of=nic.name, verdict="fail", what=found.error, next_step=step)
    if not found.is_current:
        step = f"cwdp dataplane upgrade {nic.name}"
        return Result(
            name=name, of=nic.name, verdict="fail", what="another build has loaded it", next_step=step
        )
    if found.faults:
        step = f"cwdp dataplane load {nic.name}"
        return Result(name=name, of=nic.name, verdict="fail", what="; ".join(found.faults), next_step=step)
    return Result(name=name, of=nic.name, verdict="ok", what="loaded and attached")


def _with_dataplane(facts: Facts) -> list[Nic]:
    """The NICs that are to have one."""
    by_queue_pairs = facts.config.ud_nics if facts.config else {}
    return [nic for nic in facts.nics if nic.name not in by_queue_pairs]

"""What is loaded where, as plain data for tables and JSON."""

from typing import Any

from cwdp.dataplane import abi
from cwdp.dataplane.abi import BOUND_UNSYNCED, Enforcer, Reason
from cwdp.dataplane.loading import attached, hooks, loader
from cwdp.dataplane.pinned import meta
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import DataplaneError

REFUSED = [r.name.lower() for r in Reason if r.name.startswith(("REQUEST_", "REPLY_", "BAD_", "PROBE_"))]
TAKES_DETOURS = {0: None, abi.METADATA_HAS: True, abi.METADATA_LACKS: False}
GOOD = ("probe_sent", "request_reflected", "reply_accepted")


def describe(where: TreePath) -> dict[str, Any]:
    """One interface's dataplane; `error` says what is wrong with a tree that cannot be read."""
    found: dict[str, Any] = {
        "netns_cookie": where.netns_cookie,
        "ifname": where.ifname,
        "path": str(where.path),
        "attached": attached.interface_of(where) != 0,
    }
    try:
        loaded = loader.inspect(where)
        faults = _faults(where)
        with Maps(where) as maps:
            counters, key_ids, clock = maps.counters(), maps.key_ids(), maps.read_clock()
            enforcer = Enforcer(int(maps.slice_table["enforcer"][0]))
    except DataplaneError as error:
        return found | {"error": error.message}
    synced = bool(clock["synced"]) and int(clock["bound_ns"]) != BOUND_UNSYNCED
    return found | {
        "mode": loaded.mode.name.lower() if attached.is_attached(where, hooks.XDP) else "detached",
        "attached": not faults,
        "faults": faults,
        "egress": _egress(where),
        "takes_detours": TAKES_DETOURS[int(meta.read(where.path)["metadata"][0])],
        "tag": loaded.tag,
        "current": loaded.tag == loader.object_tag(),
        "key_ids": key_ids,
        "slices": enforcer.name.lower(),
        "clock": {
            "synced": synced,
            "offset_ns": int(clock["offset_ns"]) if synced else None,
            "drift_ppb": float(clock["drift_q48"]) / 2**48 * 1e9 if synced else None,
            "bound_ns": int(clock["bound_ns"]) if synced else None,
        },
        "counters": counters,
    }


def _faults(where: TreePath) -> list[str]:
    try:
        return attached.faults(where)
    except OSError as error:
        raise DataplaneError(f"{where.path} is not whole: {error.strerror}") from error


def _egress(where: TreePath) -> str:
    """What holds the program at tc egress."""
    if not attached.is_attached(where, hooks.EGRESS):
        return "detached"
    return "tcx" if (where.path / hooks.EGRESS.link).exists() else "clsact"


def refused(counters: dict[str, int]) -> int:
    """How many packets looked like probes and were not accepted, for whatever reason."""
    return sum(counters[name] for name in REFUSED if name not in GOOD)

"""An interface of this host whose dataplane a command is to read or change."""

from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import DataplaneError


def require_loaded(ifname: str) -> TreePath:
    """The tree of an interface.

    Raises:
        DataplaneError: there is none.
    """
    ifindex_of(ifname)
    where = tree.here(ifname)
    if not where.path.exists():
        raise DataplaneError(f"{ifname} has no dataplane", f"run: cwdp dataplane load {ifname}")
    loader.inspect(where)
    return where

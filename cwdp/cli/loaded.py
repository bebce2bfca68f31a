"""An interface of this host whose dataplane a command is to read or change."""

from cwdp.dataplane import loader, tree
from cwdp.dataplane.tree import TreePath
from cwdp.errors import DataplaneError


def require_loaded(ifname: str) -> TreePath:
    """The tree of an interface.

    Raises:
        DataplaneError: there is none.
    """
    loader.ifindex_of(ifname)
    where = tree.here(ifname)
    if not where.path.exists():
        raise DataplaneError(f"{ifname} has no dataplane", f"run: cwdp dataplane load {ifname}")
    loader.inspect(where)
    return where

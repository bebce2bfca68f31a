"""This host."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from cwdp.audit import answers
from cwdp.audit.files import Files
from cwdp.audit.kernel import dcb, devlink, ethtool, host, interfaces, nvml
from cwdp.audit.unreadable import of_error

T = TypeVar("T")

WHOLE: dict[type, Callable[[], Any]] = {
    answers.Uname: host.name_and_release,
    answers.KernelClock: host.kernel_clock,
    answers.Own: host.own,
    answers.Links: interfaces.links,
    answers.Addresses: interfaces.addresses,
    answers.Routes: interfaces.routes,
    answers.Gpus: nvml.gpus,
}
EACH: dict[type, Callable[[str], Any]] = {
    answers.Driver: ethtool.driver,
    answers.Ethtool: ethtool.ethtool,
    answers.Module: ethtool.module,
    answers.Dcb: dcb.dcb,
    answers.Devlink: devlink.devlink,
}


class Live(Files):
    """This host's files and answers."""

    pause_s = 1.0

    def __init__(self) -> None:
        super().__init__(Path("/"))
        self._known: dict[type, Any] = {}

    def ask(self, kind: type[T], of: str = "") -> T:
        """Ask the kernel, or whoever knows; what is about the whole host once."""
        try:
            if kind in EACH:
                return cast("T", EACH[kind](of))
            if kind not in self._known:
                self._known[kind] = WHOLE[kind]()
            return cast("T", self._known[kind])
        except OSError as error:
            raise of_error(error) from error

    def later(self) -> "Live":
        """Itself: it goes on living."""
        return self
